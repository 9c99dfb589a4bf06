"""What Slurm itself does to the job of a rigid gang: preemption and a time limit are no failures."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.component.gang.test_rigid import TRAIN
from tests.conftest import until
from tests.faults.test_slurm_gangs import SlurmGang, read_proc

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


@pytest.fixture
def gang(home: Home, slurm: SlurmBed) -> SlurmGang:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    (home.root / "train.py").write_text(TRAIN)
    return SlurmGang(home, slurm)


@pytest.mark.parametrize("pool", ["spot", "spotc"])
def test_preemption_is_no_failure(gang: SlurmGang, pool: str) -> None:
    """In both modes: all ranks are told and may save, and all return together when there is room."""
    gang.begin("-s", f"partitions={pool}", "-s", "resources.gpus=1", "-s", "max_retries=0", "-s", "gpu_check=false")
    gang.until_up(1)
    gang.slurm.run("sbatch", "-o", "/dev/null", "-p", "gpu-a100", "-N2", "--gres=gpu:4", "--wrap", "sleep 4")
    gang.until_up(2)
    assert {line[1] for line in gang.said("told") if line[0] == "1"} == {"0", "1", "2"}
    assert gang.tasks("failures") == [0, 0, 0]
    assert "preempt" in gang.home.run("explain", "train").stdout
    gang.let_go()


def test_the_time_limit_is_no_failure(gang: SlurmGang) -> None:
    gang.begin("-s", "max_retries=0")
    gang.until_up(1)
    ((job, _, _),) = gang.jobs()
    gang.slurm.expire(int(job))
    gang.until_up(2)
    assert {line[1] for line in gang.said("told") if line[0] == "1"} == {"0", "1", "2"}
    assert gang.tasks("failures") == [0, 0, 0]
    assert "time limit" in gang.home.run("explain", "train").stdout
    gang.let_go()


def test_srun_that_is_killed_is_one_failure(gang: SlurmGang) -> None:
    gang.begin()
    gang.until_up(1)
    (srun,) = [
        pid
        for pid in gang.home.tokens()
        if "--job-name=remuda-crew" in read_proc(pid, "cmdline")
        and read_proc(_parent(pid), "cmdline")[-2:-1] == ["crew"]
    ]
    os.kill(srun, signal.SIGKILL)
    gang.until_up(2)
    assert gang.tasks("failures") == [1, 1, 1]
    gang.let_go()


@pytest.mark.parametrize("rank", [0, 2])
def test_behind_a_cut_cable_no_rank_writes_beside_the_next_attempt(gang: SlurmGang, rank: int) -> None:
    """Nodes that see each other or the controller no more end their ranks; the next attempt waits for that."""
    if not gang.slurm.layout.isolated:
        return
    gang.begin("-s", "partitions=spot")
    gang.until_up(1)
    lost = gang.home.task("train", f"rank/{rank}")["node"]
    gang.slurm.cut(lost)
    until(lambda: set(gang.tasks("attempt")) == {2}, "it is missed", 300)
    gang.until_up(2)
    assert lost not in gang.tasks("node")
    gang.slurm.heal(lost)
    gang.let_go()


def _parent(pid: int) -> int:
    words = "".join(read_proc(pid, "stat")).rpartition(") ")[2].split()
    return int(words[1]) if words else 0
