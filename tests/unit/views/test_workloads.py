"""Where a workload says that it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.supervise.build import group, want, workload

from remuda.backends.base import TaskKey
from remuda.plan.model import Endpoint, Kind, Role
from remuda.supervise.model import Phase, Task
from remuda.views.workloads import endpoint_url, workload_view

AT_ROUTER = "http://10.0.0.7:9001"
AT_REPLICA = "http://10.0.0.8:8000"


def task(name: str, phase: Phase, url: str) -> tuple[TaskKey, Task]:
    key = TaskKey("w", name, 0)
    return key, replace(Task(key, "slurm"), phase=phase, url=url)


@pytest.mark.parametrize(
    ("endpoint", "phase", "expected"),
    [
        (Endpoint(host="127.0.0.1", port=9000, router="router"), Phase.STARTING, "http://127.0.0.1:9000"),
        (Endpoint(host="", port=9000, router="router"), Phase.READY, AT_ROUTER),
        (Endpoint(host="", port=9000, router="router"), Phase.UNHEALTHY, AT_ROUTER),
        (Endpoint(host="", port=9000, router="router"), Phase.STARTING, ""),
        (Endpoint(host="", port=9000, router="router"), Phase.WAITING, ""),
        (Endpoint(host="", port=9000), Phase.READY, AT_REPLICA),
        (None, Phase.READY, ""),
    ],
)
def test_where_it_answers(endpoint: Endpoint | None, phase: Phase, expected: str) -> None:
    front = group("router", 1).model_copy(update={"role": Role.ROUTER})
    made = workload(group(), front).model_copy(update={"endpoint": endpoint})
    tasks = dict([task("router", phase, AT_ROUTER), task("replica", Phase.READY, AT_REPLICA)])
    assert endpoint_url(made, tasks) == expected


def test_a_router_that_never_ran_is_nowhere() -> None:
    front = group("router", 1).model_copy(update={"role": Role.ROUTER})
    made = workload(group(), front).model_copy(update={"endpoint": Endpoint(host="", router="router")})
    assert endpoint_url(made, {}) == ""


@pytest.mark.parametrize("is_paused", [True, False])
@pytest.mark.parametrize("attempt", [0, 2])
@pytest.mark.parametrize("phase", list(Phase))
def test_a_run_has_one_state_wherever_it_is_shown(phase: Phase, attempt: int, is_paused: bool) -> None:
    wanted = replace(want(group("script", 1, role=Role.SCRIPT)), paused=is_paused)
    wanted = replace(wanted, workload=wanted.workload.model_copy(update={"kind": Kind.RUN}))
    key = TaskKey("w", "script", 0)
    view = workload_view(wanted, {key: Task(key, "slurm", phase, attempt)}, created_at=0.0, unreachable="")
    assert view.run is not None
    assert view.run.state == view.phase
