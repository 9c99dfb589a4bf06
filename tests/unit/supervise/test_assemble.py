"""Ranks that begin one by one: when all are put back, as a table; then gangs that fight for GPUs in invented time."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.supervise.build import group, key, want

from remuda.backends.base import CHILD_ENDED, Life, Observed, TaskKey
from remuda.plan.model import Replace, Role
from remuda.supervise import facts
from remuda.supervise.decide import Cancel, Note, Submit, decide, next_due
from remuda.supervise.groups import assemble
from remuda.supervise.model import LIVE, RUNNING, Cause, Phase, Task, Want

if TYPE_CHECKING:
    from remuda.plan.model import Group

NOW, ASSEMBLE = 1000.0, 60.0
RULE = Replace(policy="on-failure", max_failures=1, backoff_initial_s=10, backoff_max_s=60, heal_after_s=600, quick_s=5)
GANG = group("rank", 3, role=Role.RANK, replace=RULE).model_copy(
    update={"probe": None, "listen": None, "assemble_s": ASSEMBLE}
)


def wanted(**changes: object) -> Want:
    return want(GANG.model_copy(update=changes))


def runs(index: int, for_s: float, **changes: object) -> Task:
    known: dict[str, object] = {
        "attempt": 1,
        "generation": 1,
        "token": f"w.rank.{index}.1.u1",
        "started_at": NOW - for_s,
    }
    return Task(key(index, "rank"), "fake", Phase.READY, **{**known, **changes})  # type: ignore[arg-type]


def waits(index: int, for_s: float, phase: Phase = Phase.PENDING, **changes: object) -> Task:
    return replace(runs(index, 0.0, started_at=0.0, since=NOW - for_s, **changes), phase=phase)


def by_key(*tasks: Task) -> dict[TaskKey, Task]:
    return {task.key: task for task in tasks}


WHY = "all ranks are put back: {} of 3 in the queue for 1m (`assemble`), and {} are needed"
DONE = Phase.DONE


@pytest.mark.parametrize(
    ("tasks", "changes", "put_back", "due"),
    [
        pytest.param((runs(0, 90), runs(1, 90), waits(2, 61)), {}, [0, 1, 2], None, id="one waits for too long"),
        pytest.param((runs(0, 90), runs(1, 90), waits(2, 50)), {}, [], 10, id="not yet"),
        pytest.param((runs(0, 55), runs(1, 20), waits(2, 900)), {}, [], 5, id="since the first has begun"),
        pytest.param((waits(0, 90), waits(1, 90), waits(2, 90)), {}, [], None, id="nobody holds anything"),
        pytest.param((runs(0, 90), runs(1, 90), runs(2, 90)), {}, [], None, id="all run"),
        pytest.param((runs(0, 90), runs(1, 90), waits(2, 90)), {"quorum": 2}, [], None, id="a quorum runs"),
        pytest.param((runs(0, 90), waits(1, 30), waits(2, 90)), {"quorum": 2}, [], 30, id="below it for 30 s"),
        pytest.param((runs(0, 90), waits(1, 70), waits(2, 90)), {"quorum": 2}, [0, 1, 2], None, id="below the quorum"),
        pytest.param((runs(0, 90), replace(runs(1, 90), phase=DONE), waits(2, 70)), {}, [0, 2], None, id="one is done"),
        pytest.param((runs(0, 90), waits(1, 9, Phase.WAITING), waits(2, 70)), {}, [0, 1, 2], None, id="one is due"),
        pytest.param((runs(0, 90), waits(1, 9, Phase.STOPPING, kill_at=NOW + 9), waits(2, 70)), {}, [0, 2], 9,
                     id="one ends already"),
        pytest.param((runs(0, 90), waits(1, 900, Phase.WAITING, not_before=NOW + 5)), {}, [], 5,
                     id="not in the queue"),
        pytest.param((runs(0, 90), runs(1, 90), waits(2, 900)), {"assemble_s": 0.0}, [], None, id="never"),
    ],
)  # fmt: skip
def test_who_is_put_back(
    tasks: tuple[Task, ...], changes: dict[str, object], put_back: list[int], due: float | None
) -> None:
    intent = wanted(**changes)
    actions = [one for one in decide(intent, by_key(*tasks), NOW) if not isinstance(one, Submit)]
    assert sorted(action.task.key.index for action in actions) == put_back
    assert next_due(by_key(*tasks), NOW, intent) == due if due is not None or not put_back else True
    queued = sum(task.phase is Phase.PENDING for task in tasks)
    assert {action.task.reason for action in actions} <= {WHY.format(queued, changes.get("quorum", 3))}
    assert {type(action) for action in actions if action.task.phase is Phase.STOPPING} <= {Cancel}
    assert len({action.task.not_before for action in actions}) <= 1, "all begin at one time"
    assert all(NOW + ASSEMBLE / 4 <= action.task.not_before <= NOW + ASSEMBLE for action in actions)


def test_what_is_paused_or_has_no_time_left_is_left_alone() -> None:
    tasks = by_key(runs(0, 90), runs(1, 90), waits(2, 70))
    assert not assemble.parts(replace(wanted(), paused=True), tasks, NOW)
    assert not assemble.parts(replace(wanted(), running=False), tasks, NOW)
    assert not assemble.parts(wanted(replace=RULE.model_copy(update={"until": NOW - 1})), tasks, NOW)


def test_waits_grow_and_have_a_bound() -> None:
    def wait(attempt: int, uid: str) -> float:
        intent = wanted()
        intent = replace(intent, workload=intent.workload.model_copy(update={"uid": uid}))
        tasks = by_key(*(replace(task, attempt=attempt) for task in (runs(0, 90), runs(1, 90), waits(2, 70))))
        return assemble.parts(intent, tasks, NOW)[key(0, "rank")].until - NOW

    for attempt, most in ((1, 1), (2, 2), (3, 4), (4, 8), (9, 8), (99, 8)):
        found = [wait(attempt, f"u{number}") for number in range(200)]
        assert most / 4 * ASSEMBLE <= min(found) <= max(found) <= most * ASSEMBLE
        assert max(found) - min(found) > most * ASSEMBLE / 2, "they differ from gang to gang"
    one_restarted = by_key(runs(0, 90, attempt=7), runs(1, 90), waits(2, 70))
    assert assemble.parts(wanted(), one_restarted, NOW)[key(1, "rank")].until <= NOW + ASSEMBLE


def test_who_is_put_back_uses_up_nothing_and_is_not_done() -> None:
    tasks = by_key(runs(0, 90, failures=0), runs(1, 90), waits(2, 70))
    ending = next(one.task for one in decide(wanted(), tasks, NOW) if one.task.key.index == 0)
    assert (ending.phase, ending.ending) == (Phase.STOPPING, Cause.GROUP)
    for code in (143, 0, 1):
        ended = Observed(Life.ENDED, native_state=CHILD_ENDED, exit_code=code)
        after = facts.observed(ending, GANG, ended, NOW + 2)
        assert (after.phase, after.failures, after.cause) == (Phase.WAITING, 0, Cause.GROUP)
        assert (after.not_before, after.reason) == (ending.not_before, ending.reason)
    late = facts.observed(ending, GANG, Observed(Life.GONE), NOW + 900)
    assert late.not_before == NOW + 900
    marked = replace(wanted(), group_marks={"rank": 1})
    begun = decide(marked, by_key(after), NOW + 3)
    assert isinstance(begun[0], Submit), "a user need not wait"


class Cluster:
    """GPUs for one job each. Who of those that wait gets a free one is chance; jobs end within a step."""

    def __init__(self, gpus: int, seed: int, sizes: tuple[int, ...]) -> None:
        self.gpus, self.chance, self.now = gpus, random.Random(seed), NOW
        self.groups: list[Group] = [GANG.model_copy(update={"count": size}) for size in sizes]
        self.wants = [want(each) for each in self.groups]
        self.wants = [
            replace(one, workload=one.workload.model_copy(update={"name": f"g{number}", "uid": f"u{seed}"}))
            for number, one in enumerate(self.wants)
        ]
        self.tasks: list[dict[TaskKey, Task]] = [{} for _ in sizes]
        self.queue: list[str] = []
        self.running: set[str] = set()
        self.whole_since: dict[int, float] = {}

    def step(self) -> None:
        numbers = list(range(len(self.wants)))
        self.chance.shuffle(numbers)
        for number in numbers:
            self._decide(number)
        while self.queue and len(self.running) < self.gpus:
            self.running.add(self.queue.pop(self.chance.randrange(len(self.queue))))
        for number in numbers:
            self._look(number)

    def _decide(self, number: int) -> None:
        for action in decide(self.wants[number], self.tasks[number], self.now):
            task = action.task
            if isinstance(action, Submit):
                self.queue.append(task.token)
                task = facts.accepted(task, "1", self.now)
            elif isinstance(action, Cancel):
                self._leave(task.token)
                task = facts.observed(task, self.groups[number], Observed(Life.ENDED, exit_code=143), self.now)
            else:
                assert isinstance(action, Note)
            self.tasks[number][task.key] = task

    def _leave(self, token: str) -> None:
        self.running.discard(token)
        if token in self.queue:
            self.queue.remove(token)

    def _look(self, number: int) -> None:
        mine, group_ = self.tasks[number], self.groups[number]
        for task in [one for one in mine.values() if one.phase in LIVE]:
            life = Life.RUNNING if task.token in self.running else Life.PENDING
            mine[task.key] = facts.observed(task, group_, Observed(life, "1"), self.now)
        if sum(task.phase in RUNNING for task in mine.values()) < group_.count:
            self.whole_since.pop(number, None)
        elif self.now - self.whole_since.setdefault(number, self.now) >= 2 * ASSEMBLE:
            well = Observed(Life.ENDED, native_state=CHILD_ENDED, exit_code=0)
            for task in list(mine.values()):
                self._leave(task.token)
                mine[task.key] = facts.observed(task, group_, well, self.now)

    def is_over(self) -> bool:
        return all(task.phase is Phase.DONE for tasks in self.tasks for task in tasks.values())


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.sampled_from([(3, 3), (3, 3, 3), (4, 2, 3), (4, 4)]))
def test_gangs_that_want_more_than_there_is_are_all_done(seed: int, sizes: tuple[int, ...]) -> None:
    cluster = Cluster(4, seed, sizes)
    for _ in range(6000):
        cluster.step()
        if cluster.is_over():
            break
        cluster.now += 5.0
    assert cluster.is_over(), [[task.reason for task in tasks.values()] for tasks in cluster.tasks]
    assert not any(task.failures for tasks in cluster.tasks for task in tasks.values())


def test_without_it_they_wait_for_ever() -> None:
    cluster = Cluster(4, 0, (3, 3))
    cluster.groups = [one.model_copy(update={"assemble_s": 0.0}) for one in cluster.groups]
    for number, one in enumerate(cluster.wants):
        workload = one.workload.model_copy(update={"groups": (cluster.groups[number],)})
        cluster.wants[number] = replace(one, workload=workload)
    found = set()
    for seed in range(20):
        other = Cluster(4, seed, (3, 3))
        other.groups, other.wants = cluster.groups, cluster.wants
        for _ in range(200):
            other.step()
            other.now += 5.0
        found.add(other.is_over())
    assert False in found, "the cluster of these tests is one in which gangs can stop each other"
