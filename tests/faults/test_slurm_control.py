"""What happens to runs when Slurm's own daemons and commands misbehave: never a twin, never a guess."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Home, until
from tests.faults.slurm_runs import Runs

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.testing.slurm import SlurmBed

CPU = ("--partitions", "cpu")
SHIM = """#!/bin/sh
mode=$(cat "{mode}" 2>/dev/null)
case "$mode" in
  missing) echo "sh: 1: squeue: not found" >&2; exit 127 ;;
  garbage) echo "@@ not what was asked for @@"; exit 0 ;;
  empty) exit 0 ;;
  error) echo "slurm_load_jobs error: Unexpected message received" >&2; exit 1 ;;
esac
exec {real} "$@"
"""


@pytest.fixture
def runs(home: Home, slurm: SlurmBed) -> Runs:
    return Runs(home, slurm)


def squeue_of(runs: Runs) -> Path:
    """A squeue before the real one; what is written into the returned file makes it misbehave."""
    mode = runs.home.root / "squeue-mode"
    shim = runs.home.root / "bin" / "squeue"
    shim.parent.mkdir()
    shim.write_text(SHIM.format(mode=mode, real=shutil.which("squeue")))
    shim.chmod(0o755)
    runs.home.env["PATH"] = f"{shim.parent}:{runs.home.env['PATH']}"
    return mode


@pytest.mark.parametrize("how", ["missing", "garbage", "error"])
def test_an_unreadable_squeue_changes_nothing(runs: Runs, how: str) -> None:
    mode = squeue_of(runs)
    for name in ("one", "two", "three"):
        runs.begin(*CPU, name=name, last=100000)
    until(lambda: len(runs.starts()) == 3, "three run")
    until(lambda: {runs.phase(name) for name in ("one", "two", "three")} == {"RUNNING"}, "the host has seen it")
    mode.write_text(how)
    until(lambda: "does not answer" in runs.told("one"), "it is noticed")
    time.sleep(2)
    assert {runs.phase(name) for name in ("one", "two", "three")} == {"RUNNING"}
    mode.write_text("")
    until(lambda: "does not answer" not in runs.told("one"), "it answers again")
    assert len(runs.starts()) == 3
    runs.home.run("stop", "one", "two", "three")
    assert not runs.jobs()


def test_a_controller_that_is_restarted(runs: Runs) -> None:
    runs.begin(*CPU)
    runs.wait_running()
    runs.bed.stop("slurmctld")
    until(lambda: "does not answer" in runs.told(), "it is noticed")
    runs.bed.start("slurmctld")
    runs.enough()
    runs.wait_done()
    assert len(runs.starts()) == 1


def test_a_controller_that_lost_its_jobs(runs: Runs) -> None:
    """Killed, and its state is of yesterday: the job is not known any more and its id is given out again."""
    runs.begin(*CPU, last=100000)
    runs.wait_running()
    before = runs.job_id()
    runs.bed.lose_state()
    runs.slurm("sbatch", "-o", "/dev/null", "-p", "cpu", "--job-name", "somebody-else", "--wrap", "sleep 3600")
    runs.wait_running(attempt=2, limit_s=240)
    mine = [job for job in runs.jobs() if job[1].startswith("train.")]
    assert len(mine) == 1
    assert "somebody-else" in {name for _, name, _ in runs.jobs()}, "another's job was taken for ours"
    assert before
    runs.home.run("stop", "train")
    assert {name for _, name, _ in runs.jobs()} == {"somebody-else"}


def test_a_controller_that_lost_its_last_seconds_starts_a_job_twice(runs: Runs) -> None:
    """Its state knows the job as waiting, the node as running: Slurm cancels it in the name of root. Nobody asked."""
    runs.slurm("scontrol", "update", "partitionname=cpu", "state=down")
    runs.begin(*CPU, last=100000)
    runs.wait(lambda: [job[2] for job in runs.jobs()] == ["PENDING"], "it waits")
    runs.bed.save_state()
    runs.slurm("scontrol", "update", "partitionname=cpu", "state=up")
    runs.wait_running()
    runs.bed.lose_state()
    runs.slurm("scontrol", "update", "partitionname=cpu", "state=up")
    runs.wait_running(attempt=2, limit_s=240)
    assert "cancelled by" not in runs.told(), runs.told()
    assert "started it a second time" in runs.told()
    seen = len(runs.lines("steps"))
    runs.wait(lambda: len(runs.lines("steps")) > seen + 5, "it goes on")
    attempts = [line.split()[0] for line in runs.lines("steps")]
    assert attempts == sorted(attempts), "the first attempt writes beside the second"
    runs.home.run("stop", "train")
    assert not runs.jobs()


def test_a_controller_frozen_while_submitting_makes_no_twin(runs: Runs) -> None:
    runs.home.run("host", "start")
    runs.bed.freeze("slurmctld")
    runs.begin(*CPU, last=100000)
    until(lambda: "no answer" in runs.told() or "does not answer" in runs.told(), "it is noticed")
    runs.bed.thaw("slurmctld")
    runs.wait_running(limit_s=240)
    # One that comes into being late, when the controller goes on with what it was asked, is held and ended.
    runs.wait(lambda: len([job for job in runs.jobs() if job[1].startswith("train.")]) == 1, "there is no twin")
    assert len(runs.starts()) == 1


def test_a_stop_that_nobody_hears_says_so_and_keeps_the_record(runs: Runs) -> None:
    runs.begin(*CPU)
    runs.wait_running()
    runs.bed.freeze("slurmctld")
    done = runs.home.run("down", "train", "--timeout", "8", check=False)
    assert done.returncode != 0
    assert "train is not down" in done.stderr
    assert f"scancel {runs.job_id()}" in done.stderr
    runs.bed.thaw("slurmctld")
    runs.wait(lambda: runs.phase() == "DOWN", "it is down")
    assert not runs.jobs()


def test_without_the_accounting_daemon(runs: Runs) -> None:
    runs.bed.stop("slurmdbd")
    script = runs.script('#!/bin/sh\necho "$REMUDA_ATTEMPT" >> "$OUT/starts"\n[ "$REMUDA_ATTEMPT" -ge 2 ] || exit 3\n')
    runs.begin(*CPU, script=script)
    runs.wait_done()
    assert runs.lines("starts") == ["1", "2"]
    assert "exit code 3" in runs.told()


def test_a_partition_that_is_gone_is_passed_over(runs: Runs) -> None:
    runs.slurm("scontrol", "create", "partition=fleeting", "nodes=cpu-1", "state=up")
    runs.begin("--partitions", "fleeting,cpu")
    runs.wait_running()
    assert runs.task()["pool"] == "fleeting"
    # Slurm takes a partition away only when nothing of it is left.
    runs.home.run("pause", "train")
    (runs.out / "fail").touch()
    runs.wait(lambda: not runs.jobs(), "its job has ended")
    runs.wait(lambda: _deleted(runs, "fleeting"), "the partition is gone")
    runs.home.run("unpause", "train")
    runs.wait_running(attempt=3)
    assert runs.task()["pool"] == "cpu"
    assert "the partition does not exist" in runs.told()
    runs.home.run("stop", "train")


def _deleted(runs: Runs, partition: str) -> bool:
    runs.slurm("scontrol", "delete", f"partition={partition}", check=False)
    return partition not in runs.slurm("sinfo", "-h", "-o", "%R")


def test_what_can_never_start_says_so(runs: Runs) -> None:
    """Slurm takes it and would leave it pending for ever."""
    runs.begin(*CPU, "--sbatch-args=--nodes=1 --exclude=cpu-1,cpu-2 --no-kill")
    runs.wait(lambda: runs.phase() == "FAILED", "it is given up")
    assert "never" in runs.told() or "no node" in runs.told()
    assert not runs.jobs()


def test_a_partition_that_does_not_fit_is_told_before_anything_is_sent(runs: Runs) -> None:
    script = str(runs.script())
    done = runs.home.run("run", script, "--backend", "slurm", "-p", "short", "--time-limit", "2h", check=False)
    assert done.returncode == 2
    assert done.stderr == "error: --partitions: no partition fits\n  short: at most 1m, 2h asked\n"


def test_a_qos_that_is_gone_is_told_at_once(runs: Runs) -> None:
    script = str(runs.script())
    done = runs.home.run("run", script, "--name", "train", "--backend", "slurm", *CPU, "--qos", "nosuch", "--wait",
                         check=False)  # fmt: skip
    assert done.returncode == 1
    assert "train is FAILED" in done.stderr
    assert "the QOS does not exist, or the account may not use it" in done.stderr
    assert not runs.jobs()
    assert not runs.starts()


def test_limits_of_an_account_are_waited_for(runs: Runs) -> None:
    """The site lets a user submit four jobs of this quality of service: the fifth goes when there is room."""
    other = ["sbatch", "--parsable", "-o", "/dev/null", "-p", "cpu", "--qos", "limited", "--wrap", "sleep 3600"]
    others = [runs.slurm(*other).strip() for _ in range(4)]
    runs.begin(*CPU, "--qos", "limited", last=5)
    until(lambda: "limit" in runs.told().lower(), "the limit is told")
    runs.slurm("scancel", *others)
    runs.wait_done()
