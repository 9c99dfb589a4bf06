"""What `decide` says, as a table of situations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, want

from remuda.supervise.decide import Cancel, Note, Submit, decide, next_due
from remuda.supervise.model import Phase, Task

if TYPE_CHECKING:
    from remuda.backends.base import TaskKey

NOW = 1000.0
BASE = Task(key(), "fake", attempt=1, generation=1, token="w.replica.0.1.u1", since=900.0)


def only(task: Task) -> dict[TaskKey, Task]:
    return {task.key: task}


ONE = want(group(count=1))
NONE = want(group(count=1), running=False)
SCALED = want(group(count=0))
LATER = want(group(count=1), generation=2)


@pytest.mark.parametrize(
    ("wanted", "task", "expected"),
    [
        pytest.param(ONE, replace(BASE, phase=Phase.WAITING, not_before=1001), [], id="backoff not over"),
        pytest.param(ONE, replace(BASE, phase=Phase.WAITING, not_before=1000), [("submit", 2)], id="backoff over"),
        pytest.param(ONE, replace(BASE, phase=Phase.SUBMITTING), [("again", 1)], id="crashed while submitting"),
        pytest.param(ONE, replace(BASE, phase=Phase.SUBMITTING, not_before=1005), [], id="asked a moment ago"),
        pytest.param(ONE, replace(BASE, phase=Phase.READY), [], id="all is well"),
        pytest.param(ONE, replace(BASE, phase=Phase.PENDING), [], id="the scheduler decides"),
        pytest.param(LATER, replace(BASE, phase=Phase.READY), ["note"], id="a new intent reaches what runs"),
        pytest.param(ONE, replace(BASE, phase=Phase.FAILED), [], id="given up stays so"),
        pytest.param(LATER, replace(BASE, phase=Phase.FAILED), [Phase.WAITING], id="asked for again"),
        pytest.param(LATER, replace(BASE, phase=Phase.DONE), [Phase.WAITING], id="done and asked for again"),
        pytest.param(ONE, replace(BASE, phase=Phase.STOPPED), [], id="ended by a person stays so"),
        pytest.param(LATER, replace(BASE, phase=Phase.STOPPED), [Phase.WAITING], id="stopped and wanted again"),
        pytest.param(ONE, replace(BASE, phase=Phase.STOPPING, kill_at=1001), [], id="within its grace"),
        pytest.param(ONE, replace(BASE, phase=Phase.STOPPING, kill_at=999), ["kill"], id="grace is over"),
        pytest.param(NONE, replace(BASE, phase=Phase.READY), ["cancel"], id="taken down"),
        pytest.param(NONE, replace(BASE, phase=Phase.SUBMITTING), ["cancel"], id="taken down while submitting"),
        pytest.param(NONE, replace(BASE, phase=Phase.WAITING), [Phase.STOPPED], id="taken down while waiting"),
        pytest.param(NONE, replace(BASE, phase=Phase.STOPPED), [], id="down is quiet"),
        pytest.param(NONE, replace(BASE, phase=Phase.FAILED), [], id="a failed task shows why after down"),
        pytest.param(SCALED, replace(BASE, phase=Phase.UNHEALTHY), ["cancel"], id="surplus"),
        pytest.param(SCALED, replace(BASE, phase=Phase.STOPPED), [], id="surplus and ended"),
        pytest.param(SCALED, replace(BASE, phase=Phase.WAITING), [Phase.STOPPED], id="surplus and waiting"),
    ],
)
def test_one_task(wanted: object, task: Task, expected: list[object]) -> None:
    assert [_word(action) for action in decide(wanted, only(task), NOW)] == expected  # type: ignore[arg-type]


def _word(action: object) -> object:
    match action:
        case Submit(task, again):
            return ("again" if again else "submit", task.attempt)
        case Cancel(_, force):
            return "kill" if force else "cancel"
        case Note(task):
            return task.phase if task.phase in (Phase.WAITING, Phase.STOPPED) else "note"
    raise AssertionError(action)


def test_missing_tasks_are_made_with_their_own_tokens() -> None:
    actions = decide(want(group(count=3)), {}, NOW)
    tokens = [action.task.token for action in actions if isinstance(action, Submit)]
    assert tokens == ["w.replica.0.1.u1", "w.replica.1.1.u1", "w.replica.2.1.u1"]


def test_a_new_attempt_forgets_the_old_one() -> None:
    old = replace(BASE, phase=Phase.WAITING, native="77", seq=40, exit_code=3, node="n9")
    (action,) = decide(ONE, only(old), NOW)
    assert isinstance(action, Submit)
    task = action.task
    assert (task.native, task.seq, task.exit_code, task.node, task.submitted_at) == ("", -1, None, "", NOW)


def test_grace_gives_time_before_the_kill() -> None:
    (action,) = decide(NONE, only(replace(BASE, phase=Phase.READY)), NOW)
    assert isinstance(action, Cancel)
    assert action.task.kill_at == NOW + NONE.workload.groups[0].kill_grace_s + 5


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (replace(BASE, phase=Phase.WAITING, not_before=1003), 3.0),
        (replace(BASE, phase=Phase.WAITING, not_before=990), 0.0),
        (replace(BASE, phase=Phase.STOPPING, kill_at=1007), 7.0),
        (replace(BASE, phase=Phase.SUBMITTING, not_before=1002), 2.0),
        (replace(BASE, phase=Phase.READY), None),
        (replace(BASE, phase=Phase.PENDING), None),
    ],
)
def test_next_due(task: Task, expected: float | None) -> None:
    assert next_due(only(task), NOW) == expected
