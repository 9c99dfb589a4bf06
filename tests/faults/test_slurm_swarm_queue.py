"""What the queue does to a swarm: half of its array is preempted, and tasks find no room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.slurm_herds import BACKEND, Herd

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


@pytest.fixture
def herd(home: Home, slurm: SlurmBed) -> Herd:
    return Herd(home, slurm)


def test_half_of_an_array_is_preempted_and_comes_back(herd: Herd) -> None:
    before = herd.up(replicas=4)
    # Work of a higher tier takes a whole node; what was there finds room on nodes with fewer GPUs.
    herd.bed.run("sbatch", "-p", "gpu-a100", "-N1", "--gres=gpu:4", "--wrap", "sleep 20", "-o", "/dev/null")
    herd.wait(lambda: any(task["attempt"] > 1 for task in herd.replicas().values()), "some are preempted")
    herd.wait(herd.serves, "all serve again")
    again = [name for name, task in herd.replicas().items() if task["attempt"] > 1]
    assert len(again) < len(before) - 1, "the others went on"
    assert all(herd.tasks()[name]["failures"] == 0 for name in again)
    assert "preempt" in herd.told()
    assert herd.ask() == 200
    herd.bed.run("scancel", "-n", "wrap", check=False)
    herd.wait(lambda: "wrap" not in herd.jobs(), "the other job has left the queue")
    herd.down()


def test_tasks_that_do_not_start_are_told_and_the_others_serve(herd: Herd) -> None:
    """Eight GPUs, five replicas of two: the last one waits for room, and `up` for all of them gives up in time."""
    file = herd.document(replicas=5, ready="all", wait_endpoint_s=60, backend={**BACKEND, "partition": "gpu-a100"})
    done = herd.home.run("up", "-c", file, check=False)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-2]
    assert "herd did not answer within 60 s: replica/" in last
    assert "waits for resources" in last or "higher priority" in last
    herd.wait(lambda: len(herd.members()) == 4, "four serve")
    assert herd.view()["phase"] == "STARTING", "not what was asked for"

    def waiting() -> dict[str, Any]:
        return next(task for task in herd.replicas().values() if task["phase"] == "pending")

    # Slurm may have another reason a moment later.
    herd.wait(lambda: waiting()["reason"] in herd.home.run("status", "herd").stdout, "its reason is told")
    assert not waiting()["never"]
    herd.down()
