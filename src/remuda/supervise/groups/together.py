"""Tasks that share one fate, as the ranks of a rigid gang do: they begin, fail and begin again together. Pure.

Those of all groups with `Group.together` are the *members*. None begins unless all are due in that step, and then all
get one attempt number. One that is lost ends the others, which counts nothing; those that were done begin again. What
speaks against one speaks against all of them, but once: however many of them end, it is one failure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.backends.base import TaskKey
from remuda.supervise.groups.handover import Cast, Part
from remuda.supervise.model import LIVE, PAUSED, RUNNING, Cause, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.plan.model import Workload

_WAIT: Final = frozenset({Phase.WAITING, Phase.DONE})
_CAN_END: Final = LIVE - {Phase.STOPPING}
_STANDING: Final = ("pool", "pool_refusals", "pool_failures", "pool_nevers", "pool_left_at", "may_avoid")


def parts(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[TaskKey, Cast]:
    """What members do because of others; who is not in it does what any task does."""
    if _are_calm(want, tasks):
        return {}
    members = _members(want, tasks)
    gone = {key: task for key, task in members.items() if _is_gone(want, task)}
    phases = {task and task.phase for task in members.values()}
    if not gone or phases in ({None}, {Phase.WAITING}):
        return {}
    why, can_begin = _why(gone.values()), all(task is None or task.phase in _WAIT for task in members.values())
    found: dict[TaskKey, Cast] = {}
    for key, task in members.items():
        if task is None or task.phase is Phase.WAITING:
            found[key] = Cast(Part.HOLD, task.reason.removeprefix(PAUSED) if task is not None else why)
        elif want.paused or key in gone:
            continue
        elif task.phase in _CAN_END:
            found[key] = Cast(Part.AGAIN, why)
        elif can_begin:
            found[key] = Cast(Part.BEGIN, why)
    return found


def held(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[TaskKey, str]:
    """Members that wait until others have ended, and why."""
    return {key: cast.why for key, cast in parts(want, tasks).items() if cast.part is Part.HOLD}


def levelled(want: Want, tasks: Mapping[TaskKey, Task]) -> Mapping[TaskKey, Task]:
    """The same with one history for all members that wait: that of the one with which it went worst.

    All are due when the last of them is, or at once where the user wants one restarted.
    """
    shares = any(group.together for group in want.workload.groups)
    if not (shares and any(task.phase is Phase.WAITING for task in tasks.values())):
        return tasks
    members = {key: task for key, task in _members(want, tasks).items() if task is not None}
    waiting = [task for task in members.values() if task.phase is Phase.WAITING]
    if not waiting:
        return tasks
    known, worst = members.values(), max(members.values(), key=_standing)
    is_asked = any(task.restart_mark < want.mark(task.key) for task in waiting)
    shared = {
        "attempt": max(task.attempt for task in known),
        "failures": max(task.failures for task in known),
        "quick_failures": max(task.quick_failures for task in known),
        "progress": max(task.progress for task in known),
        "not_before": 0.0 if is_asked else max(task.not_before for task in waiting),
        **{name: getattr(worst, name) for name in _STANDING},
    }
    other = [task for task in waiting if any(getattr(task, name) != value for name, value in shared.items())]
    return {**tasks, **{task.key: replace(task, **shared) for task in other}} if other else tasks


def _standing(task: Task) -> tuple[float, ...]:
    return (task.pool_nevers, task.pool_failures, task.pool_refusals, -task.may_avoid, task.pool_left_at)


def healed(workload: Workload, before: Task, after: Task, tasks: Iterable[Task]) -> list[Task]:
    """Members that get their failures back because one has: it got farther than ever, or was well for long enough.

    What answers by itself, as servers do, is well for itself alone: another one may never be.
    """
    is_healed = _counted(before) and not _counted(after) and after.phase in RUNNING
    names = {group.name for group in workload.groups if group.together and group.probe is None} if is_healed else set()
    return [
        replace(task, failures=0, quick_failures=0, pool_failures=0)
        for task in tasks
        if after.key.group in names and task.key.group in names and task.phase in RUNNING and _counted(task)
    ]


def _counted(task: Task) -> bool:
    return bool(task.failures or task.quick_failures or task.pool_failures)


def _are_calm(want: Want, tasks: Mapping[TaskKey, Task]) -> bool:
    """Whether there are no members, or all have begun and none is about to end, which is so at nearly every look."""
    planned = {group.name: want.planned(group.name) for group in want.workload.groups if group.together}
    if planned and (want.group_marks or not want.running):
        return False
    count = 0
    for key, task in tasks.items() if planned else ():
        if key.index < planned.get(key.group, 0):
            if task.ending is not Cause.NONE or task.restart_mark < want.restart_mark or task.phase not in _CAN_END:
                return False
            count += 1
    return count == sum(planned.values())


def _members(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[TaskKey, Task | None]:
    """All of them while they are wanted; None: it never began."""
    groups = [group.name for group in want.workload.groups if group.together] if want.running else []
    keys = [TaskKey(want.workload.name, name, index) for name in groups for index in want.slots(name)]
    return {key: tasks.get(key) for key in keys}


def _is_gone(want: Want, task: Task | None) -> bool:
    """Whether the others have lost it: it has not begun, has ended without its goal, or is about to end."""
    if task is None or task.phase not in _CAN_END:
        return task is None or task.phase is not Phase.DONE
    return not want.paused and (task.ending is not Cause.NONE or task.restart_mark < want.mark(task.key))


def _why(gone: Iterable[Task | None]) -> str:
    """One sentence: with whom the others end, which is who went first."""
    known = [task for task in gone if task is not None]
    if not known:
        return "begins with the others"
    first = min(known, key=lambda task: (_is_echo(task), task.since))
    if _is_echo(first):
        return first.reason
    is_asked = first.phase in _CAN_END and first.ending is Cause.NONE
    what = "the user wants it restarted" if is_asked else first.reason.removeprefix(PAUSED)
    return f"ended with {first.key.group}/{first.key.index}: {what}"


def _is_echo(task: Task) -> bool:
    """Whether it ends, or has ended, because another one did."""
    return (task.ending if task.phase in LIVE else task.cause) is Cause.GROUP
