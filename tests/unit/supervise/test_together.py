"""Tasks that share one fate: tables of single decisions, then lives of a gang in which anything ends at any time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.supervise.build import group, key, report, want

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed, TaskKey
from remuda.plan.model import Group, HealthProbe, Replace, Role
from remuda.supervise import facts
from remuda.supervise.decide import Action, Cancel, Note, Submit, decide, next_due
from remuda.supervise.groups import together
from remuda.supervise.model import LIVE, Cause, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable

NOW = 1000.0
RULE = Replace(policy="on-failure", max_failures=3, backoff_initial_s=10, backoff_max_s=60, heal_after_s=600, quick_s=5)
GANG = group("rank", 3, role=Role.RANK, replace=RULE).model_copy(
    update={"probe": None, "listen": None, "together": True}
)
WANT = want(GANG)


def rank(index: int, phase: Phase, **changes: object) -> Task:
    known: dict[str, object] = {"attempt": 1, "generation": 1, "token": f"w.rank.{index}.1.u1", "reason": "runs"}
    return Task(key(index, "rank"), "fake", phase, **{**known, **changes})  # type: ignore[arg-type]


def failed(index: int, **changes: object) -> Task:
    """One that has ended, and waits for its next attempt."""
    known: dict[str, object] = {"cause": Cause.APPLICATION, "reason": "exit code 3", "failures": 1, "since": NOW - 1}
    return rank(index, Phase.WAITING, **{**known, **changes})


def by_key(*tasks: Task) -> dict[TaskKey, Task]:
    return {task.key: task for task in tasks}


def said(actions: Iterable[Action]) -> dict[int, str]:
    """Actions in short: `submit 2`, `end`, `wake` (what was done waits again), `kill`, or what is told."""
    words = {}
    for action in actions:
        task = action.task
        if isinstance(action, Submit):
            words[task.key.index] = f"submit {task.attempt}"
        elif isinstance(action, Cancel):
            words[task.key.index] = "kill" if action.force else f"end {task.ending}: {task.reason}"
        else:
            words[task.key.index] = f"note {task.phase}: {task.reason}"
    return words


ENDS = "end group: ended with rank/1: exit code 3"
RUNS, READY, DONE = Phase.STARTING, Phase.READY, Phase.DONE


@pytest.mark.parametrize(
    ("tasks", "then"),
    [
        pytest.param((), {0: "submit 1", 1: "submit 1", 2: "submit 1"}, id="at the start"),
        pytest.param((rank(0, READY), rank(1, READY), rank(2, DONE)), {}, id="all is well"),
        pytest.param((rank(0, READY), failed(1), rank(2, RUNS)), {0: ENDS, 2: ENDS}, id="one has failed"),
        pytest.param((rank(0, Phase.SUBMITTING), failed(1), rank(2, Phase.PENDING)), {0: ENDS, 2: ENDS}, id="early"),
        pytest.param((rank(0, DONE), failed(1), rank(2, READY)), {2: ENDS}, id="one is done, and stays so meanwhile"),
        pytest.param(
            (rank(0, DONE), failed(1), failed(2, cause=Cause.GROUP, reason="ended with rank/1: exit code 3")),
            {0: "note waiting: ended with rank/1: exit code 3"}, id="all have ended: what was done waits, too",
        ),
        pytest.param(
            (rank(0, DONE), failed(1), rank(2, Phase.STOPPING, ending=Cause.GROUP, kill_at=NOW + 9)), {},
            id="one is still ending",
        ),
        pytest.param((rank(0, READY), rank(1, Phase.FAILED, reason="exit code 3"), rank(2, DONE)), {0: ENDS},
                     id="given up: what was done stays so"),
        pytest.param(
            (rank(0, READY), rank(1, READY, ending=Cause.NODE, reason="no sign of life for 2 m"), rank(2, READY)),
            {0: "end group: ended with rank/1: no sign of life for 2 m", 1: "end node: no sign of life for 2 m",
             2: "end group: ended with rank/1: no sign of life for 2 m"}, id="one is silent",
        ),
        pytest.param((failed(0), failed(1, attempt=4), failed(2)), {0: "submit 5", 1: "submit 5", 2: "submit 5"},
                     id="one number"),
        pytest.param((failed(0), failed(1, not_before=NOW + 1), failed(2)), {}, id="one is not due"),
        pytest.param((failed(0), failed(1)), {2: "note waiting: ended with rank/0: exit code 3"}, id="one is new"),
    ],
)  # fmt: skip
def test_what_is_done(tasks: tuple[Task, ...], then: dict[int, str]) -> None:
    assert said(decide(WANT, by_key(*tasks), NOW)) == then


def test_they_have_the_history_of_the_one_that_has_most() -> None:
    tasks = by_key(
        failed(0, failures=1, progress=7.0),
        failed(1, failures=2, pool="b", pool_failures=3),
        failed(2, quick_failures=2),
    )
    begun = [action.task for action in decide(WANT, tasks, NOW)]
    assert [(one.failures, one.quick_failures, one.progress) for one in begun] == [(2, 2, 7.0)] * 3
    assert {one.pool_failures for one in begun} == {3}


def test_a_user_restarts_one_and_all_begin_again_at_once() -> None:
    marked = replace(WANT, group_marks={"rank/1": 1})
    tasks = by_key(rank(0, READY), rank(1, READY), rank(2, DONE))
    words = "the user wants it restarted"
    ends = {0: f"end group: ended with rank/1: {words}", 1: f"end user: {words}"}
    assert said(decide(marked, tasks, NOW)) == ends
    waits = by_key(failed(0, not_before=NOW + 60), failed(1, not_before=NOW + 60), failed(2))
    assert said(decide(marked, waits, NOW)) == dict.fromkeys(range(3), "submit 2")
    assert next_due(waits, NOW, WANT) == 60


def test_while_it_is_paused_nobody_is_ended_or_begun() -> None:
    paused = replace(WANT, paused=True)
    tasks = by_key(rank(0, READY), failed(1), rank(2, DONE))
    told = decide(paused, tasks, NOW)
    assert said(told) == {1: "note waiting: paused; exit code 3"}
    assert not decide(paused, {**tasks, **by_key(*(one.task for one in told))}, NOW)
    told = decide(WANT, {**tasks, **by_key(*(one.task for one in told))}, NOW)
    assert said(told)[0] == ENDS


def test_progress_of_one_heals_all_that_run() -> None:
    before = rank(0, READY, failures=2)
    others = (rank(1, READY, failures=2, pool_failures=1), rank(2, DONE, failures=2))
    after = facts.reported(before, replace(report(before.token, "ready", 1), metrics={"progress_step": 3.0}), NOW)
    healed = together.healed(WANT.workload, before, after, (after, *others))
    assert [(one.key.index, one.failures, one.pool_failures) for one in healed] == [(1, 0, 0)]
    assert not together.healed(WANT.workload, before, replace(before, reason="other"), others)
    servers = want(GANG.model_copy(update={"probe": HealthProbe()})).workload
    assert not together.healed(servers, before, after, (after, *others)), "one that answers says nothing of the others"
    alone = want(GANG.model_copy(update={"together": False})).workload
    assert not together.healed(alone, before, after, (after, *others))


def test_who_ends_because_of_others_uses_up_nothing() -> None:
    ending = rank(0, Phase.STOPPING, ending=Cause.GROUP, reason="ended with rank/1: exit code 3", failures=1)
    after = facts.observed(ending, GANG, Observed(Life.ENDED, exit_code=143), NOW)
    assert (after.phase, after.failures, after.cause, after.not_before) == (Phase.WAITING, 1, Cause.GROUP, NOW)
    assert after.reason == "ended with rank/1: exit code 3"
    well = facts.observed(ending, GANG, Observed(Life.ENDED, native_state=CHILD_ENDED, exit_code=0), NOW)
    assert well.phase is Phase.DONE


HAPPENS = {
    "well": Observed(Life.ENDED, native_state=CHILD_ENDED, exit_code=0),
    "badly": Observed(Life.ENDED, native_state=CHILD_ENDED, exit_code=3),
    "preempted": Observed(Life.ENDED, ending=Ending.PREEMPTED),
    "gone": Observed(Life.GONE),
    "runs": Observed(Life.RUNNING),
}


class Gang:
    """Three tasks on a backend that does what it is told within a second, unless it is late."""

    def __init__(self) -> None:
        self.want: Want = WANT
        self.group: Group = GANG
        self.tasks: dict[TaskKey, Task] = {}
        self.now = NOW
        self.begun = 0
        """Attempts."""
        self.lost = 0
        """Attempts that were lost to something that counts."""

    def step(self, *, is_late: bool = False) -> None:
        actions = decide(self.want, self.tasks, self.now)
        assert len({action.task.key for action in actions}) == len(actions)
        begun = [action.task for action in actions if isinstance(action, Submit)]
        if begun:
            assert [task.key.index for task in begun] == [0, 1, 2], "none begins alone"
            assert not any(task.phase in LIVE for task in self.tasks.values()), "nothing of an earlier attempt is left"
            assert len({(task.attempt, task.failures, task.quick_failures) for task in begun}) == 1
            assert begun[0].attempt > max((task.attempt for task in self.tasks.values()), default=0)
            self.begun += 1
            assert begun[0].failures == self.lost, "however many end, it is one failure"
        due = next_due(self.tasks, self.now, self.want)
        assert due != 0.0 or actions or not self.tasks, "the clock never makes it busy"
        for action in actions:
            task = action.task
            if isinstance(action, Submit):
                task = facts.accepted(task, task.token, self.now)
            elif isinstance(action, Cancel) and not is_late:
                task = facts.observed(task, self.group, Observed(Life.ENDED, exit_code=143), self.now)
            else:
                assert isinstance(action, Note | Cancel)
            self.tasks[task.key] = task

    def happens(self, events: dict[int, str]) -> None:
        """Several may end before the supervisor takes its next step."""
        known = {index: task for index in events if (task := self.tasks.get(key(index, "rank"))) and task.phase in LIVE}
        counts = False
        for index, task in known.items():
            self.tasks[task.key] = facts.observed(task, self.group, HAPPENS[events[index]], self.now)
            counts = counts or self.tasks[task.key].failures > task.failures
        self.lost += counts


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.dictionaries(st.integers(0, 2), st.sampled_from(sorted(HAPPENS))), st.booleans()), max_size=25
    )
)
def test_whatever_ends_they_begin_together_and_count_once(story: list[tuple[dict[int, str], bool]]) -> None:
    gang = Gang()
    gang.group = GANG.model_copy(update={"replace": RULE.model_copy(update={"max_failures": 99, "quick_s": 0.0})})
    gang.want = want(gang.group)
    for events, is_late in story:
        gang.step(is_late=is_late)
        gang.happens(events)
        gang.now += 7
    for _ in range(30):  # from wherever it is: they are all done in the end
        gang.step()
        gang.happens(dict.fromkeys(range(3), "well"))
        gang.now += 70
    assert {task.phase for task in gang.tasks.values()} == {Phase.DONE}


@given(
    st.lists(
        st.dictionaries(st.integers(0, 2), st.sampled_from(["badly", "gone", "well"]), min_size=1),
        min_size=40,
        max_size=40,
    )
)
def test_failures_in_a_row_end_it_after_as_many_as_it_may_have(story: list[dict[int, str]]) -> None:
    gang = Gang()
    for events in story:
        gang.step()
        gang.happens(events)
        gang.now += 70
    assert gang.begun <= RULE.max_failures
