"""Two tasks of a slot take turns: what is said of them, as a table of situations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, want

from remuda.plan.model import Endpoint, Role, Succession
from remuda.supervise.decide import Cancel, Note, Submit, decide, next_due
from remuda.supervise.explain import explain
from remuda.supervise.groups.handover import SETTLE_S, SUCCESSOR, Part, is_drained, lead_s, next_change, parts, slot_of
from remuda.supervise.model import Cause, Phase, Task, Want
from remuda.supervise.summary import current, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.backends.base import TaskKey

NOW = 10_000.0
LEAD, DRAIN = 600.0, 120.0
GROUP = group(count=1).model_copy(update={"succession": Succession(lead_s=LEAD, drain_s=DRAIN)})


def lasting(count: int = 1, **changes: object) -> Want:
    plain = want(GROUP.model_copy(update={"count": count}))
    workload = plain.workload.model_copy(update={"lifetime_s": 1e6})
    return replace(plain, workload=workload, **changes)  # type: ignore[arg-type]


WANT = lasting()
OLD = Task(key(0), "fake", Phase.READY, attempt=1, generation=1, token="t0", submitted_at=1000, ready_since=1100,
           limit_at=NOW + 5000)  # fmt: skip
DUE = replace(OLD, limit_at=NOW + LEAD)
NEW = Task(key(SUCCESSOR), "fake", Phase.READY, attempt=1, generation=1, token="t1", submitted_at=9000,
           ready_since=NOW - SETTLE_S, limit_at=NOW + 9000)  # fmt: skip
LEAVING = replace(DUE, yields_at=NOW - 60)
IDLE = {"running": 0.0, "waiting": 0.0}


def by_key(*tasks: Task) -> dict[TaskKey, Task]:
    return {task.key: task for task in tasks}


def said(wanted: Want, tasks: Iterable[Task], now: float = NOW) -> dict[int, str]:
    return {index: cast.part.value for index, cast in parts(wanted, GROUP, by_key(*tasks), now).items()}


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([], {0: "keep"}, id="nothing was begun"),
        pytest.param([OLD], {0: "keep"}, id="its limit is far"),
        pytest.param([replace(OLD, limit_at=0.0)], {0: "keep"}, id="it has no limit"),
        pytest.param([DUE], {0: "keep", 500: "begin"}, id="a successor is due"),
        pytest.param([replace(DUE, phase=Phase.PENDING)], {0: "keep"}, id="what does not run needs no successor"),
        pytest.param([replace(DUE, phase=Phase.STARTING)], {0: "keep", 500: "begin"}, id="late, and starting"),
        pytest.param([DUE, replace(NEW, phase=Phase.PENDING)], {0: "keep", 500: "keep"}, id="its successor waits"),
        pytest.param([OLD, replace(NEW, phase=Phase.PENDING)], {0: "keep", 500: "keep"},
                     id="asked for too early is kept all the same"),
        pytest.param([DUE, replace(NEW, phase=Phase.WAITING)], {0: "keep", 500: "keep"}, id="and is retried"),
        pytest.param([OLD, replace(NEW, phase=Phase.WAITING)], {0: "keep", 500: "end"}, id="the limit was moved"),
        pytest.param([DUE, replace(NEW, ready_since=NOW - 1)], {0: "keep", 500: "keep"}, id="ready since a moment"),
        pytest.param([DUE, NEW], {0: "yield", 500: "keep"}, id="the successor serves"),
        pytest.param([OLD, NEW], {0: "yield", 500: "keep"}, id="two that serve are one too many"),
        pytest.param([LEAVING, NEW], {0: "drain", 500: "keep"}, id="it finishes"),
        pytest.param([replace(LEAVING, metrics=IDLE, loaded_at=NOW - 1), NEW], {0: "end", 500: "keep"}, id="finished"),
        pytest.param([replace(LEAVING, metrics=IDLE, loaded_at=NOW - 59), NEW], {0: "drain", 500: "keep"},
                     id="idle before the router surely knew"),
        pytest.param([replace(LEAVING, metrics={"running": 1.0}, loaded_at=NOW), NEW], {0: "drain", 500: "keep"},
                     id="one request is left"),
        pytest.param([replace(LEAVING, yields_at=NOW - DRAIN), NEW], {0: "end", 500: "keep"}, id="long enough"),
        pytest.param([LEAVING, replace(NEW, limit_at=NOW + LEAD - 1)], {0: "end", 500: "keep"},
                     id="its index is needed"),
        pytest.param([LEAVING, replace(NEW, phase=Phase.WAITING)], {0: "return", 500: "keep"}, id="successor lost"),
        pytest.param([LEAVING, replace(NEW, phase=Phase.UNHEALTHY)], {0: "return", 500: "keep"}, id="successor ill"),
        pytest.param([replace(LEAVING, phase=Phase.STOPPING, yields_at=0.0), NEW], {0: "end", 500: "keep"},
                     id="it is ending"),
        pytest.param([replace(OLD, phase=Phase.STOPPED), NEW], {500: "keep"}, id="the successor is the one"),
        pytest.param([replace(OLD, phase=Phase.WAITING), replace(NEW, phase=Phase.PENDING)], {500: "keep", 0: "end"},
                     id="the old one was lost: its successor is first in the queue"),
        pytest.param([replace(OLD, phase=Phase.WAITING), replace(NEW, phase=Phase.FAILED)], {0: "keep"},
                     id="the successor was given up and the limit came"),
        pytest.param([replace(DUE, limit_at=NOW + 1), replace(NEW, phase=Phase.FAILED, since=NOW - 1)],
                     {0: "keep", 500: "keep"}, id="given up in this hand-over"),
        pytest.param([replace(DUE, limit_at=NOW + 1), replace(NEW, phase=Phase.FAILED, since=NOW - LEAD)],
                     {0: "keep", 500: "begin"}, id="given up in an earlier one"),
        pytest.param([replace(OLD, phase=Phase.STOPPED), replace(NEW, limit_at=NOW + 1)], {500: "keep", 0: "begin"},
                     id="the next turn"),
    ],
)  # fmt: skip
def test_parts(tasks: list[Task], expected: dict[int, str]) -> None:
    assert said(WANT, tasks) == expected


@pytest.mark.parametrize(
    ("wanted", "tasks", "expected"),
    [
        pytest.param(lasting(paused=True), [DUE], {0: "keep"}, id="paused: nothing is begun"),
        pytest.param(lasting(paused=True), [DUE, NEW], {0: "keep", 500: "keep"}, id="paused: nobody yields"),
        pytest.param(lasting(paused=True), [replace(LEAVING, yields_at=1), NEW], {0: "drain", 500: "keep"},
                     id="paused: nobody is ended"),
        pytest.param(lasting(ends_at=DUE.limit_at), [DUE], {0: "keep"}, id="the lifetime ends first"),
        pytest.param(lasting(ends_at=DUE.limit_at + 1), [DUE], {0: "keep", 500: "begin"}, id="the limit ends first"),
        pytest.param(lasting(running=False), [DUE, NEW], {}, id="taken down"),
        pytest.param(lasting(count=2), [DUE], {0: "keep", 500: "begin", 1: "keep"}, id="scaled up"),
        pytest.param(want(GROUP), [DUE], {0: "keep"}, id="no lifetime, no succession"),
    ],
)  # fmt: skip
def test_parts_follow_the_intent(wanted: Want, tasks: list[Task], expected: dict[int, str]) -> None:
    assert said(wanted, tasks) == expected


WAITED = replace(OLD, submitted_at=1000, started_at=3000, limit_at=3000 + 20_000)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([], LEAD, id="nothing is known"),
        pytest.param([WAITED], 1.5 * 2000 + LEAD / 2, id="half as long again as the wait, and the start"),
        pytest.param([replace(WAITED, started_at=1100)], LEAD, id="a short queue needs no more than usual"),
        pytest.param([replace(WAITED, phase=Phase.STOPPED)], LEAD, id="what is over is of another day"),
        pytest.param([replace(WAITED, phase=Phase.PENDING)], LEAD, id="what still waits has not waited"),
        pytest.param([replace(WAITED, limit_at=3000 + 4000)], 3000, id="never more than three quarters of its time"),
        pytest.param([replace(WAITED, limit_at=0)], LEAD, id="no limit"),
        pytest.param([replace(WAITED, submitted_at=0)], LEAD, id="taken over from an earlier version"),
        pytest.param([WAITED, replace(WAITED, key=key(1), started_at=4000)], 1.5 * 3000 + LEAD / 2, id="the longest"),
        pytest.param([replace(WAITED, key=replace(key(0), group="other"))], LEAD, id="another group's queue"),
    ],
)
def test_the_lead_follows_the_queue(tasks: list[Task], expected: float) -> None:
    follows = GROUP.model_copy(update={"succession": Succession(lead_s=LEAD, follows_queue=True)})
    assert lead_s(follows, by_key(*tasks)) == expected
    assert lead_s(GROUP, by_key(*tasks)) == LEAD, "it was said how long"


def test_decide_carries_the_parts_out() -> None:
    (begun,) = decide(WANT, by_key(DUE), NOW)
    assert isinstance(begun, Submit)
    assert begun.task.token == "w.replica.500.1.u1"
    assert begun.task.reason == "first attempt: to succeed replica/0, which its time limit ends in 10m"
    (yields,) = decide(WANT, by_key(DUE, NEW), NOW)
    assert isinstance(yields, Note)
    assert (yields.task.key, yields.task.yields_at) == (key(0), NOW)
    (ended,) = decide(WANT, by_key(replace(LEAVING, yields_at=NOW - DRAIN), NEW), NOW)
    assert isinstance(ended, Cancel)
    assert (ended.task.key, ended.task.reason) == (key(0), "replica/500 has taken over")
    (revived,) = decide(WANT, by_key(replace(OLD, phase=Phase.STOPPED), replace(NEW, limit_at=NOW + 1)), NOW)
    assert (revived.task.key, revived.task.phase) == (key(0), Phase.WAITING)
    (hung,) = decide(WANT, by_key(replace(LEAVING, ending=Cause.NODE), NEW), NOW)
    assert isinstance(hung, Cancel)
    assert hung.task.ending is Cause.NONE, "one that yields is not begun again"


def test_scaled_down_ends_both_of_a_slot() -> None:
    other = [replace(task, key=key(task.key.index + 1)) for task in (DUE, replace(NEW, phase=Phase.STARTING))]
    ended = decide(WANT, by_key(OLD, *other), NOW)
    assert {action.task.key.index for action in ended} == {1, 501}
    assert {action.task.reason for action in ended} == {"scaled down"}


@pytest.mark.parametrize(
    ("tasks", "at"),
    [
        pytest.param([OLD], OLD.limit_at - LEAD, id="a successor is due"),
        pytest.param([DUE, replace(NEW, ready_since=NOW - 1)], NOW - 1 + SETTLE_S, id="the successor is ready"),
        pytest.param([replace(LEAVING, yields_at=NOW), NEW], NOW + SETTLE_S, id="may be drained"),
        pytest.param([LEAVING, NEW], NOW - 60 + DRAIN, id="drained long enough"),
        pytest.param([replace(OLD, limit_at=0.0)], None, id="nothing"),
    ],
)
def test_the_loop_wakes_for_it(tasks: list[Task], at: float | None) -> None:
    assert next_change(WANT, by_key(*tasks), NOW) == at
    due = next_due(by_key(*tasks), NOW, WANT)
    assert due == (None if at is None else at - NOW)
    assert next_change(replace(WANT, paused=True), by_key(*tasks), NOW) is None


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        pytest.param(replace(LEAVING, metrics=IDLE, loaded_at=NOW), True, id="idle"),
        pytest.param(replace(LEAVING, metrics={"running": 0.0, "waiting": 2.0}, loaded_at=NOW), False, id="a queue"),
        pytest.param(replace(LEAVING, metrics={"generated_tokens": 3.0}, loaded_at=NOW), False, id="it does not tell"),
        pytest.param(replace(LEAVING, phase=Phase.STARTING), True, id="its server is new, and was never asked"),
    ],
)
def test_drained(task: Task, expected: bool) -> None:
    assert is_drained(task) is expected


def test_a_slot_counts_once() -> None:
    two = lasting(count=2)
    others = [replace(task, key=key(task.key.index + 1)) for task in (DUE, NEW)]
    summary = summarise(two, by_key(DUE, NEW, *others))
    assert (summary.phase, summary.ready, summary.wanted) == ("RUNNING", 2, 2)
    begins = replace(NEW, phase=Phase.PENDING)
    assert summarise(WANT, by_key(DUE, begins)).phase == "RUNNING"
    assert summarise(WANT, by_key(LEAVING, replace(NEW, phase=Phase.UNHEALTHY))).ready == 1, "the old one serves still"
    gone = replace(DUE, phase=Phase.STOPPED)
    assert summarise(WANT, by_key(gone, NEW)).phase == "RUNNING"
    assert set(current(WANT, by_key(gone, NEW))) == {NEW.key}, "a task that was succeeded is not shown"
    assert set(current(WANT, by_key(DUE, begins))) == {DUE.key, NEW.key}


def test_the_front_is_the_router_that_serves() -> None:
    router = group("router", 1, role=Role.ROUTER).model_copy(update={"succession": GROUP.succession})
    plain = want(GROUP, router, endpoint=Endpoint(router="router"))
    lasts = replace(plain, workload=plain.workload.model_copy(update={"lifetime_s": 1e6}))
    old = replace(DUE, key=key(0, "router"), phase=Phase.STOPPED)
    new = replace(NEW, key=key(SUCCESSOR, "router"))
    assert summarise(lasts, by_key(OLD, old, new)).phase == "RUNNING"
    assert summarise(lasts, by_key(OLD, old)).phase == "STARTING"


def test_a_slot_is_named_by_its_first_index() -> None:
    assert slot_of(WANT.workload, key(501)) == 1
    assert slot_of(want(GROUP).workload, key(501)) == 501
    assert slot_of(WANT.workload, key(501, "driver")) == 501


def test_explain_tells_who_yields_to_whom() -> None:
    text = "\n".join(explain(WANT, by_key(LEAVING, replace(NEW, reason="serves")), [], [], "", NOW))
    assert "replica/0: ready" in text
    assert "  yields to replica/500 for 1m: it is sent nothing new, and is ended in 1m at the latest" in text
    before = "\n".join(explain(WANT, by_key(OLD), [], [], "", NOW))
    assert "its successor is submitted in 1h 13m" in before
    last = "\n".join(explain(lasting(ends_at=NOW + 60), by_key(OLD), [], [], "", NOW))
    assert "its lifetime is over in 1m" in last


def test_every_part_is_said_somewhere_above() -> None:
    assert {part.value for part in Part} == {"keep", "begin", "yield", "return", "drain", "end", "hold", "again"}


def test_a_router_waits_for_the_replicas_that_finish() -> None:
    """What it passes on from a replica that left the membership, it does not count."""
    router = group("router", 1, role=Role.ROUTER).model_copy(update={"succession": GROUP.succession})
    plain = want(GROUP, router, endpoint=Endpoint(router="router"))
    lasts = replace(plain, workload=plain.workload.model_copy(update={"lifetime_s": 1e6}))
    old = replace(LEAVING, key=key(0, "router"), metrics=IDLE, loaded_at=NOW)
    new = replace(NEW, key=key(SUCCESSOR, "router"))
    for replica, expected in ((LEAVING, "drain"), (OLD, "end"), (replace(LEAVING, phase=Phase.STOPPING), "end")):
        tasks = by_key(old, new, replica)
        assert parts(lasts, router, tasks, NOW)[0].part.value == expected
