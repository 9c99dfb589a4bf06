"""What is written down of what is over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remuda.backends.base import TaskKey
from remuda.base.paths import StatePaths
from remuda.control.aftermath import Aftermath, fate_of
from remuda.control.jobs import JobFolder
from remuda.plan.model import Command, Endpoint, Group, Kind, Role, Workload
from remuda.supervise.model import Cause, Phase, Task, Want

if TYPE_CHECKING:
    from pathlib import Path

KEY = TaskKey("j1", "driver", 0)


def job(*, running: bool = True) -> Want:
    group = Group(name="driver", role=Role.DRIVER, count=1, command=Command(argv=("x",)))
    return Want(Workload(name="j1", kind=Kind.JOB, uid="u", backend="slurm", groups=(group,), run_dir="/r"), running, 1)


def driver(phase: Phase, reason: str = "", cause: Cause = Cause.NONE) -> dict[TaskKey, Task]:
    return {KEY: Task(KEY, "slurm", phase=phase, reason=reason, cause=cause)}


@pytest.mark.parametrize(
    ("running", "phase", "cause", "expected"),
    [
        (True, Phase.READY, Cause.NONE, None),
        (True, Phase.WAITING, Cause.NODE, None),
        (True, Phase.DONE, Cause.NONE, {"state": "DONE", "reason": ""}),
        (True, Phase.FAILED, Cause.NODE, {"state": "FAILED", "reason": "as told"}),
        (True, Phase.STOPPED, Cause.USER, {"state": "STOPPED", "reason": "as told"}),
        (False, Phase.STOPPING, Cause.NONE, None),
        (False, Phase.STOPPED, Cause.NONE, {"state": "STOPPED", "reason": "cancelled"}),
    ],
)
def test_fates(running: bool, phase: Phase, cause: Cause, expected: dict[str, str] | None) -> None:
    assert fate_of(job(running=running), driver(phase, "as told", cause)) == expected


async def followed(paths: StatePaths, want: Want, tasks: dict[TaskKey, Task]) -> None:
    aftermath = Aftermath(paths, lambda name: f"{name} was idle for 1h")
    for _ in range(2):
        await aftermath.step(want, tasks)
    await aftermath.close()


@pytest.mark.parametrize("kind", ["batch", "script"])
async def test_an_end_that_no_driver_lived_to_write_is_written(tmp_path: Path, kind: str) -> None:
    paths = StatePaths(tmp_path)
    folder = JobFolder(paths, "j1")
    folder.create({"kind": kind})
    await followed(paths, job(), driver(Phase.READY))
    assert folder.read("outcome.json") == {}
    await followed(paths, job(), driver(Phase.FAILED, "its node failed"))
    assert folder.read("outcome.json") == {"state": "FAILED", "reason": "its node failed"}
    await followed(paths, job(running=False), driver(Phase.STOPPED))
    assert folder.read("outcome.json")["state"] == "FAILED", "what is written stays"


@pytest.mark.parametrize(("kind", "expected"), [("batch", {}), ("script", {"state": "DONE", "reason": ""})])
async def test_a_batch_says_itself_that_it_is_done(tmp_path: Path, kind: str, expected: dict[str, str]) -> None:
    paths = StatePaths(tmp_path)
    JobFolder(paths, "j1").create({"kind": kind})
    await followed(paths, job(), driver(Phase.DONE))
    assert JobFolder(paths, "j1").read("outcome.json") == expected


async def test_jobs_of_others_are_no_business_of_ours(tmp_path: Path) -> None:
    await followed(StatePaths(tmp_path), job(), driver(Phase.FAILED))
    assert not StatePaths(tmp_path).jobs.exists()


async def test_drivers_can_read_that_their_swarm_was_taken_down(tmp_path: Path) -> None:
    group = Group(name="replica", role=Role.REPLICA, count=1, command=Command(argv=("x",)))
    workload = Workload(
        name="herd", kind=Kind.SWARM, uid="u", backend="slurm", groups=(group,), run_dir=str(tmp_path / "herd"),
        endpoint=Endpoint(host="", port=1),
    )  # fmt: skip
    mark = tmp_path / "herd" / "down.json"
    paths = StatePaths(tmp_path)
    await followed(paths, Want(workload, False, 2), {})
    assert not mark.parent.exists(), "nothing is made for a swarm that is gone"
    mark.parent.mkdir()
    await followed(paths, Want(workload, False, 2), {})
    assert json.loads(mark.read_text()) == {"reason": "herd was idle for 1h"}
    await followed(paths, Want(workload, True, 3), {})
    assert not mark.exists()
