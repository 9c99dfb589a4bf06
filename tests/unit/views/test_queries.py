"""What is shown of a workload that is up, and which task is meant when a user does not say it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.supervise.build import group, key, want
from tests.unit.supervise.test_handover import LEAVING, NEW, OLD, WANT

from remuda.plan.model import Endpoint, Role
from remuda.supervise.groups.handover import SUCCESSOR
from remuda.supervise.model import Phase, Task
from remuda.views.queries import main_task, with_router
from remuda.views.workloads import RouterView, workload_view


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([], 0, id="nothing was begun"),
        pytest.param([OLD], 0, id="no successor"),
        pytest.param([OLD, replace(NEW, phase=Phase.PENDING)], 0, id="the successor waits"),
        pytest.param([LEAVING, NEW], SUCCESSOR, id="the successor has taken over"),
    ],
)
def test_the_task_that_serves(tasks: list[Task], expected: int) -> None:
    group = WANT.workload.groups[0].name
    assert main_task(WANT, {task.key: task for task in tasks}) == f"{group}/{expected}"


@pytest.mark.parametrize(
    ("members", "phase"),
    [(None, "STARTING"), ([], "STARTING"), (["d"], "STARTING"), (["p"], "STARTING"), (["d", "p"], "RUNNING")],
)
def test_what_runs_apart_is_up_once_the_router_has_both(members: list[str] | None, phase: str) -> None:
    groups = [group(role.value, 1, role=role) for role in (Role.PREFILL, Role.DECODE, Role.ROUTER)]
    wanted = want(*groups, endpoint=Endpoint(router="router"))
    tasks = [Task(key(0, one.name), "fake", Phase.READY, attempt=1, url=one.name[0]) for one in groups]
    view = workload_view(wanted, {task.key: task for task in tasks}, created_at=0.0, unreachable="")
    assert view.phase == "RUNNING"
    router = None if members is None else RouterView(url="r", members=members, stats={})
    assert with_router(view, wanted, router).phase == phase


@pytest.mark.parametrize(("members", "phase"), [([], "STARTING"), (["x"], "DEGRADED"), (["x", "y"], "RUNNING")])
def test_one_of_several_frontends_is_enough_to_answer(members: list[str], phase: str) -> None:
    groups = [group("agg", 3), group("frontend", 2, role=Role.FRONTEND), group("balancer", 1, role=Role.ROUTER)]
    wanted = want(*groups, endpoint=Endpoint(router="balancer", behind="frontend", ready="all"))
    tasks = [Task(key(index, one.name), "fake", Phase.READY) for one in groups for index in range(one.count)]
    view = workload_view(wanted, {task.key: task for task in tasks}, created_at=0.0, unreachable="")
    assert with_router(view, wanted, RouterView(url="r", members=members, stats={})).phase == phase
