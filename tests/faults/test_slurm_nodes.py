"""What a cluster does to a run: nodes crash, freeze and lose their cable, jobs are preempted and run out of time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Home, until
from tests.faults.slurm_runs import Runs

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from remuda.testing.slurm import SlurmBed

GPU_POOLS = ("--gpus", "1", "--partitions", "gpu-a100,gpu-l40s")


@pytest.fixture
def runs(home: Home, slurm: SlurmBed) -> Runs:
    return Runs(home, slurm)


def went_on(runs: Runs, attempts: int = 2, *, in_flight: int = 0) -> None:
    """Every attempt began where the one before left off, none wrote after its successor began, and all was done.

    Args:
        runs: of the test.
        attempts: how many there were.
        in_flight: lines that the first one may write late: it was in the midst of one when it was frozen, and wakes
            together with the program that ends it, or a moment before that.
    """
    steps = [tuple(map(int, line.split())) for line in runs.lines("steps")]
    late = [line for before, line in pairwise(steps) if line[0] < before[0]]
    assert len(late) <= in_flight, steps
    steps = [line for line in steps if line not in late]
    assert [attempt for attempt, _ in steps] == sorted(attempt for attempt, _ in steps), steps
    numbers = [number for _, number in steps]
    # The script keeps a step before it writes the line: the one that was under way may have no line.
    assert len(set(range(1, max(numbers) + 1)) - set(numbers)) <= attempts - 1, steps
    # At most the one step that was under way when it ended is made twice.
    assert len(numbers) - len(set(numbers)) <= attempts - 1, numbers
    assert len({job for _, job, _ in runs.starts()}) == len(runs.starts())


def test_a_crashed_node_is_left(runs: Runs) -> None:
    runs.begin(*GPU_POOLS)
    runs.wait_running()
    node = runs.starts()[0][2]
    runs.bed.crash(node)
    runs.wait_running(attempt=2)
    runs.enough()
    runs.wait_done()
    went_on(runs)
    assert runs.starts()[1][2] != node
    assert "node" in {event["reason"] for event in runs.events()} or node in runs.told()


def test_what_waits_gets_the_crashed_node_back_when_nothing_speaks_against_it_any_more(runs: Runs) -> None:
    """Slurm keeps what a job was told to exclude for as long as it waits."""
    runs.begin("--gpus", "4", "--partitions", "gpu-a100", "--blacklist-ttl", "15s")
    runs.wait_running()
    node = runs.starts()[0][2]
    (other,) = {"a100-1", "a100-2"} - {node}
    runs.slurm("sbatch", "-o", "/dev/null", "-p", "gpu-a100", "-w", other, "--exclusive", "--wrap", "sleep 3600")
    runs.bed.crash(node)
    runs.wait(lambda: runs.task()["attempt"] == 2 and runs.task()["phase"] == "pending", "the next attempt waits")
    job = runs.job_id()
    assert f"ExcNodeList={node}" in runs.slurm("scontrol", "show", "job", job)
    runs.bed.start(node)
    runs.bed.resume(node)
    runs.wait_running(attempt=2)
    assert runs.starts()[1][1:] == [job, node], "it has kept its turn"
    assert "no node is avoided any more" in runs.home.run("events", "train").stdout
    runs.enough()
    runs.wait_done()
    went_on(runs)


def test_a_frozen_node_is_left_before_the_scheduler_knows(runs: Runs) -> None:
    """Nothing of the node answers, neither slurmd nor the script: silence is noticed by the run's own grace."""
    runs.begin(*GPU_POOLS)
    runs.wait_running()
    node = runs.starts()[0][2]
    runs.bed.freeze(node)
    # Only for as long as it is the subject: else whatever stands still for a moment is left, too.
    runs.home.run("set", "train", "heartbeat_grace=2")
    runs.wait(lambda: runs.task()["attempt"] >= 2, "the frozen node is left")
    runs.home.run("set", "train", "heartbeat_grace=90")
    runs.wait_running(attempt=2)
    assert runs.starts()[1][2] != node
    runs.bed.thaw(node)
    runs.wait(lambda: not any(".script.0.1." in token for token in runs.home.tokens().values()), "the old copy ends")
    runs.enough()
    runs.wait_done()
    went_on(runs, in_flight=10)


def test_behind_a_cut_cable_the_old_copy_writes_nothing_more(runs: Runs) -> None:
    """The old copy goes on where nobody sees it. From the moment that the new one writes, it does not."""
    if not runs.bed.layout.isolated:
        with pytest.raises(InputError, match="isolated"):
            runs.bed.cut("a100-1")
        return
    runs.begin(*GPU_POOLS)
    runs.wait_running()
    node = runs.starts()[0][2]
    runs.bed.cut(node)
    runs.wait_running(attempt=2)
    runs.bed.heal(node)
    runs.enough()
    runs.wait_done()
    went_on(runs)
    assert runs.starts()[1][2] != node


#: A rank on each of two nodes, as Slurm itself starts them; each writes for as long as it lives.
RANKS = """#!/bin/sh
exec srun --nodes=2 --ntasks=2 --ntasks-per-node=1 sh -c '
while [ ! -e "$OUT/enough" ]; do
  echo "$REMUDA_ATTEMPT $SLURM_PROCID $SLURMD_NODENAME" >> "$OUT/steps"
  sleep 0.1
done'
"""


@pytest.mark.parametrize("which", ["the first node", "the second node"])
def test_behind_a_cut_cable_no_rank_of_the_old_copy_writes_beside_the_new_one(runs: Runs, which: str) -> None:
    """Over two nodes: each of them fences itself, and the new copy waits for that."""
    if not runs.bed.layout.isolated:
        return
    runs.begin("--nodes", "2", "--partitions", "spot", script=runs.script(RANKS, "ranks.sh"))
    runs.wait(lambda: {line.split()[1] for line in runs.lines("steps")} == {"0", "1"}, "both ranks write")
    nodes = {rank: node for _, rank, node in map(str.split, runs.lines("steps"))}
    assert len(set(nodes.values())) == 2
    runs.bed.cut(nodes["0" if which == "the first node" else "1"])
    runs.wait_running(attempt=2, limit_s=300)
    seen = len(runs.lines("steps"))
    runs.wait(
        lambda: (
            len(runs.lines("steps")) > seen + 100
            and {line.split()[1] for line in runs.lines("steps")[seen:]} == {"0", "1"}
        ),
        "both ranks of the new copy write on",
    )
    writers = [line.split()[0] for line in runs.lines("steps")]
    assert writers == sorted(writers), "one of the old copy wrote beside the new one"
    runs.bed.heal(nodes["0" if which == "the first node" else "1"])
    runs.enough()
    runs.wait_done()
    writers = [line.split()[0] for line in runs.lines("steps")]
    assert writers == sorted(writers)


def test_a_drained_node_keeps_its_run_and_gets_no_other(runs: Runs) -> None:
    runs.begin(*GPU_POOLS)
    runs.wait_running()
    node = runs.starts()[0][2]
    runs.bed.drain(node)
    runs.home.run("restart", "train")
    runs.wait_running(attempt=2)
    assert runs.starts()[1][2] != node
    runs.enough()
    runs.wait_done()
    assert runs.task()["failures"] == 0


@pytest.mark.parametrize("pool", ["spot", "spotc"])
def test_preemption_uses_up_no_retry(runs: Runs, pool: str) -> None:
    """In both modes: the job that must give way is told with SIGTERM, and the run begins again when it can."""
    runs.begin("--gpus", "4", "--partitions", pool, "--max-retries", "1")
    runs.wait_running()
    # Both nodes with four GPUs are wanted by a partition of a higher tier.
    runs.slurm("sbatch", "-o", "/dev/null", "-p", "gpu-a100", "-N2", "--gres=gpu:4", "--wrap", "sleep 4")
    runs.wait_running(attempt=2)
    runs.enough()
    runs.wait_done()
    assert set(runs.lines("signals")) == {"1 TERM"}  # Slurm tells the script, and so does the node program
    assert "preemption" in runs.told()


def test_slurms_own_requeue_keeps_the_job(runs: Runs) -> None:
    runs.begin("--gpus", "4", "--partitions", "spot", "--requeue")
    runs.wait_running()
    runs.slurm("sbatch", "-o", "/dev/null", "-p", "gpu-a100", "-N2", "--gres=gpu:4", "--wrap", "sleep 4")
    runs.wait(lambda: len(runs.starts()) == 2, "started again", 300)
    runs.enough()
    runs.wait_done()
    assert len({job for _, job, _ in runs.starts()}) == 1
    assert {attempt for attempt, _, _ in runs.starts()} == {"1"}


def test_a_time_limit_uses_up_no_retry(runs: Runs) -> None:
    runs.begin(*GPU_POOLS, "--max-retries", "1")
    runs.wait_running()
    node = runs.starts()[0][2]
    runs.slurm("scontrol", "update", f"jobid={runs.job_id()}", "EndTime=now+5")
    runs.wait_running(attempt=2)
    runs.enough()
    runs.wait_done()
    went_on(runs)
    assert "time limit" in runs.told()
    assert (
        node not in runs.home.run("nodes", "list", "--json").stdout
        or '"excluded": true' not in runs.home.run("nodes", "list", "--json").stdout
    )


def test_a_persons_cancel_is_the_end(runs: Runs) -> None:
    runs.begin(*GPU_POOLS)
    runs.wait_running()
    runs.slurm("scancel", runs.job_id())
    until(lambda: runs.phase() in ("DONE", "FAILED", "DOWN", "STOPPED"), "it has ended")
    assert len(runs.starts()) == 1
    assert "cancelled" in runs.told()
    assert not runs.jobs()
    runs.home.run("restart", "train")
    runs.wait_running(attempt=2)
    runs.home.run("stop", "train")
    assert not runs.jobs()
