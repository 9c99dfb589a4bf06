"""What to do next: a function of what is wanted, what is known, and the time. Pure.

No clock, no I/O, no randomness; the reason is in the action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from remuda.backends.base import TaskKey, make_token
from remuda.supervise.model import LIVE, RUNNING, Event, Phase, Task, Want, move

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KILL_AGAIN_S = 5.0
"""Between two attempts to kill what does not end."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Make the allocation of `task`, which carries its new attempt and token."""

    task: Task
    again: bool = False
    """The intent was recorded before; find it first, the backend may have it."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask the allocation of `task` to end."""

    task: Task
    force: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Only the task changes; nothing is to be done outside."""

    task: Task


Action = Submit | Cancel | Note


def decide(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> tuple[Action, ...]:
    """Say which steps move `tasks` towards `want`.

    Args:
        want: the recorded intent of one workload.
        tasks: all known tasks of that workload.
        now: seconds, on the clock of `Task.since`.

    Returns:
        At most one action for a task, surplus ones first. Empty when nothing is due.
    """
    counts = {group.name: want.count(group.name) for group in want.workload.groups}
    surplus = [
        action
        for key in sorted(tasks)
        if key.index >= counts.get(key.group, 0)
        for action in _remove(want, tasks[key], now)
    ]
    due = [
        action
        for group in want.workload.groups
        for index in range(counts[group.name])
        for action in _keep(want, group.name, index, tasks, now)
    ]
    return (*surplus, *due)


def _keep(want: Want, group: str, index: int, tasks: Mapping[TaskKey, Task], now: float) -> Sequence[Action]:
    key = TaskKey(want.workload.name, group, index)
    task = tasks.get(key)
    if task is None:
        fresh = Task(key, want.workload.backend, generation=want.generation, since=now)
        return (_submit(want, fresh, now, "first attempt"),)
    if task.phase in RUNNING or task.phase is Phase.PENDING:
        return (Note(replace(task, generation=want.generation)),) if task.generation < want.generation else ()
    return _keep_idle(want, task, now)


def _keep_idle(want: Want, task: Task, now: float) -> Sequence[Action]:
    match task.phase:
        case Phase.WAITING:
            if now < task.not_before:
                return ()
            return (_submit(want, task, now, f"attempt {task.attempt + 1}: {task.reason}"),)
        case Phase.SUBMITTING:
            return (Submit(task, again=True),) if now >= task.not_before else ()
        case Phase.STOPPING:
            return _insist(task, now)
        case Phase.STOPPED:
            return (Note(_revive(want, task, now, "wanted again")),)
        case Phase.FAILED | Phase.DONE:
            return (Note(_revive(want, task, now, "asked for again")),) if task.generation < want.generation else ()
        case Phase.PENDING | Phase.STARTING | Phase.READY | Phase.UNHEALTHY:
            return ()
        case _:
            assert_never(task.phase)


def _submit(want: Want, task: Task, now: float, reason: str) -> Submit:
    attempt = task.attempt + 1
    intended = replace(
        task,
        attempt=attempt,
        token=make_token(task.key, attempt, want.workload.uid),
        submitted_at=now,
        native="",
        seq=-1,
        not_before=now,
        node="",
        exit_code=None,
        generation=want.generation,
    )
    return Submit(move(intended, Event.SUBMIT, now, reason))


def _revive(want: Want, task: Task, now: float, reason: str) -> Task:
    return replace(
        move(task, Event.REVIVE, now, reason), failures=0, not_before=0.0, generation=want.generation, ready_since=0.0
    )


def _remove(want: Want, task: Task, now: float) -> Sequence[Action]:
    if task.phase is Phase.STOPPING:
        return _insist(task, now)
    reason = "scaled down" if want.running else "taken down"
    if task.phase in LIVE:
        grace = want.workload.group(task.key.group).kill_grace_s
        stopping = replace(move(task, Event.STOP, now, reason), kill_at=now + grace + KILL_AGAIN_S, ready_since=0.0)
        return (Cancel(stopping),)
    # A task that has ended is kept although it is surplus: its attempts go on counting when it is wanted again.
    if task.phase is Phase.WAITING:
        return (Note(move(task, Event.STOP, now, reason)),)
    return ()


def _insist(task: Task, now: float) -> Sequence[Action]:
    if now < task.kill_at:
        return ()
    return (Cancel(replace(task, kill_at=now + KILL_AGAIN_S), force=True),)


def next_due(tasks: Mapping[TaskKey, Task], now: float) -> float | None:
    """Seconds until the clock alone can make `decide` say something new; None: only a fact can."""
    times = [
        task.kill_at if task.phase is Phase.STOPPING else task.not_before
        for task in tasks.values()
        if task.phase in (Phase.STOPPING, Phase.WAITING, Phase.SUBMITTING)
    ]
    return max(0.0, min(times) - now) if times else None
