"""A cluster without accounting: what befalls a run is told by squeue and by the run's own files alone."""

from __future__ import annotations

import tempfile
import time
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_runs import QUICK, Runs

from remuda.testing.slurm import SlurmBed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

CPU = ("--partitions", "cpu")
GPU_POOLS = ("--gpus", "1", "--partitions", "gpu-a100,gpu-l40s")
FAILS_ONCE = """#!/bin/sh
echo "$REMUDA_ATTEMPT $SLURM_JOB_ID $SLURMD_NODENAME" >> "$OUT/starts"
[ "$REMUDA_ATTEMPT" -ge 2 ] && exit 0
echo "no such file: weights.bin" >&2
exit 3
"""


@pytest.fixture
def runs(home: Home, slurm_bare: SlurmBed) -> Runs:
    return Runs(home, slurm_bare)


@pytest.fixture(scope="module")
def forgetful_bed() -> Iterator[SlurmBed]:
    """A controller that forgets jobs two seconds after their end."""
    bed = SlurmBed(
        tempfile.mkdtemp(prefix="rmsl", dir="/tmp"), accounting=False, owned=True, extra=["MinJobAge=2"]
    )  # fmt: skip
    try:
        bed.up()
        yield bed
    finally:
        bed.down()


@pytest.fixture
def forgetful(home: Home, forgetful_bed: SlurmBed) -> Runs:
    forgetful_bed.restore(240)
    return Runs(home, forgetful_bed)


def has_ended(runs: Runs, name: str = "train", limit_s: float = 180) -> str:
    runs.wait(lambda: runs.phase(name) in ("DONE", "FAILED", "DOWN", "STOPPED"), f"{name} has ended", limit_s)
    return runs.phase(name)


def test_there_is_no_accounting(runs: Runs) -> None:
    assert "accounting storage is disabled" in runs.bed.run("sacct", check=False).stderr.lower()


def test_a_crashed_node_is_left(runs: Runs) -> None:
    runs.begin(*GPU_POOLS)
    runs.wait_running()
    node = runs.starts()[0][2]
    runs.bed.crash(node)
    runs.wait_running(attempt=2)
    assert runs.starts()[1][2] != node
    assert "its node failed" in runs.told()
    runs.enough()
    runs.wait_done()


def test_a_persons_cancel_is_the_end(runs: Runs) -> None:
    """Nobody tells who it was. That it was not us is certain. Who waits for the run hears of it; its name is free."""
    waits = runs.home.start("run", str(runs.script()), "--name", "train", *QUICK, *CPU, "--env", f"OUT={runs.out}",
                            "--env", "LAST=100000", "--wait")  # fmt: skip
    runs.wait_running()
    runs.slurm("scancel", runs.job_id())
    _, told = waits.communicate(timeout=240)
    assert waits.returncode == 1
    assert "train is STOPPED" in told
    has_ended(runs)
    assert "cancelled" in runs.told()
    assert len(runs.starts()) == 1
    assert not runs.jobs()
    runs.begin(*CPU)
    runs.wait(lambda: len(runs.starts()) == 2, "another of that name runs")


def test_a_persons_cancel_of_what_waits_is_the_end(runs: Runs) -> None:
    runs.begin("--partitions", "down")
    runs.wait(lambda: bool(runs.jobs()) and runs.task()["native"] != "", "it waits")
    runs.slurm("scancel", runs.job_id())
    has_ended(runs)
    assert "cancelled" in runs.told()
    assert not runs.starts()
    assert not runs.jobs()


@pytest.mark.parametrize("pool", ["spot", "spotc"])
def test_preemption_uses_up_no_retry(runs: Runs, pool: str) -> None:
    runs.begin("--gpus", "4", "--partitions", pool, "--max-retries", "1")
    runs.wait_running()
    runs.slurm("sbatch", "-o", "/dev/null", "-p", "gpu-a100", "-N2", "--gres=gpu:4", "--wrap", "sleep 4")
    runs.wait_running(attempt=2)
    assert runs.task()["failures"] == 0
    assert set(runs.lines("signals")) == {"1 TERM"}  # Slurm tells the script, and so may the node program
    assert "preempt" in runs.told()
    runs.enough()
    runs.wait_done()


def test_a_time_limit_uses_up_no_retry(runs: Runs) -> None:
    runs.begin(*CPU, "--max-retries", "1")
    runs.wait_running()
    runs.bed.expire(int(runs.job_id()))
    runs.wait_running(attempt=2)
    assert runs.task()["failures"] == 0
    assert "time limit" in runs.told()
    runs.enough()
    runs.wait_done()


def test_a_script_that_fails_says_how_and_is_begun_again(runs: Runs) -> None:
    runs.begin(*CPU, script=runs.script(FAILS_ONCE))
    runs.wait_done()
    assert [attempt for attempt, *_ in runs.starts()] == ["1", "2"]
    assert "exit code 3" in runs.told()
    assert any("exit code 3" in str(event) for event in runs.events())


def test_a_script_that_is_killed_is_begun_again(runs: Runs) -> None:
    runs.begin(*CPU, script=runs.script(FAILS_ONCE.replace("exit 3", "kill -9 $$")))
    runs.wait_done()
    assert [attempt for attempt, *_ in runs.starts()] == ["1", "2"]
    assert "signal 9" in runs.told() or "SIGKILL" in runs.told()


def test_what_ended_and_was_forgotten_while_nobody_looked(forgetful: Runs) -> None:
    """The host is away until the controller knows nothing of them any more; their last words lie in their files."""
    good = forgetful.script('#!/bin/sh\necho good >> "$OUT/begun"\nwhile [ ! -e "$OUT/go" ]; do sleep 0.1; done\n',
                            "good.sh")  # fmt: skip
    bad = forgetful.script(
        '#!/bin/sh\necho bad >> "$OUT/begun"\n[ "$REMUDA_ATTEMPT" -ge 2 ] && exit 0\n'
        'while [ ! -e "$OUT/go" ]; do sleep 0.1; done\nexit 3\n',
        "bad.sh",
    )
    forgetful.begin(*CPU, script=good, name="good")
    forgetful.begin(*CPU, script=bad, name="bad")
    forgetful.wait(lambda: len(forgetful.lines("begun")) == 2, "both began")
    forgetful.wait(lambda: {forgetful.phase(name) for name in ("good", "bad")} == {"RUNNING"}, "both run")
    forgetful.home.kill_host()
    (forgetful.out / "go").touch()
    forgetful.wait_forgotten()
    forgetful.home.run("host", "start")
    forgetful.wait_done("good")
    forgetful.wait_done("bad")
    assert sorted(forgetful.lines("begun")) == ["bad", "bad", "good"]
    assert "exit code 3" in forgetful.told("bad")
    assert forgetful.task("good")["attempt"] == 1


def test_a_job_that_vanished_is_begun_again(forgetful: Runs) -> None:
    """Its node is lost and the controller has forgotten the job: there is no word of its end anywhere."""
    forgetful.begin(*GPU_POOLS)
    forgetful.wait_running()
    node = forgetful.starts()[0][2]
    forgetful.home.kill_host()
    forgetful.bed.crash(node)
    forgetful.wait_forgotten()
    began = time.monotonic()
    forgetful.home.run("host", "start")
    forgetful.wait_running(attempt=2, limit_s=300)
    # What is missing for a moment is not gone: a look that misses it must not make a twin.
    assert time.monotonic() - began > 5
    assert "does not know its job any more" in forgetful.told()
    assert len(forgetful.jobs()) == 1
    forgetful.enough()
    forgetful.wait_done()
