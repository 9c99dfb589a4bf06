"""Where a workload says that it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.supervise.build import group, workload

from remuda.backends.base import TaskKey
from remuda.control.views import endpoint_url
from remuda.plan.model import Endpoint, Role
from remuda.supervise.model import Phase, Task

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
