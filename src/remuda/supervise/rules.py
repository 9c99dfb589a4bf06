"""Rules between the groups of one workload: which begins after which, and with whose end all of it ends. Pure.

`Group.after` is a gate before a task's first attempt. What had one goes on, whatever becomes of the others: a frontend
that is restarted never waits for a worker. At the end the order is reversed. `Workload.ends_with` names the group whose
end ends the workload. `decide` asks, and knows nothing else of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.backends.base import TaskKey
from remuda.plan.model import Role
from remuda.supervise import succession
from remuda.supervise.model import FINAL, LIVE, Phase, Task, Want
from remuda.supervise.succession import HEIR, Cast, Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.plan.model import Group, Workload

_WORST_FIRST: Final = (Phase.FAILED, Phase.STOPPED, Phase.DONE)
_UP: Final = frozenset({Phase.READY, Phase.DONE})
"""Phases of a task that nobody has to wait for; of a gate, which looks and ends, only the second is one."""


def parts(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> dict[str, dict[int, Cast]]:
    """Casts by group and index: none once the workload is over, else those of `succession`, some of them on hold."""
    if ender(want, tasks) is not None:
        return {}
    casts = {group.name: succession.parts(want, group, tasks, now) for group in want.workload.groups}
    for name, why in held(want, tasks).items():
        group, hold = want.workload.group(name), Cast(Part.HOLD, why)
        casts[name] |= {index: hold for index in casts[name] if not _was_begun(want, group, index, tasks)}
    return casts


# --- after: the beginning --------------------------------------------------------------------------------------------


def held(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[str, str]:
    """Groups whose gate is closed, and why. It is closed until every group that they come after is ready as a whole."""
    awaited = {name for group in want.workload.groups for name in group.after} if want.running else set()
    missing = {name for name in awaited if _missing(want, name, tasks)}
    return {
        group.name: f"held by `after` until these groups are ready: {', '.join(names)}"
        for group in want.workload.groups
        if (names := [name for name in group.after if name in missing])
    }


def is_held(want: Want, key: TaskKey, tasks: Mapping[TaskKey, Task], gates: Mapping[str, str]) -> bool:
    """Whether one of these gates is all that a task waits for."""
    return key.group in gates and not _was_begun(want, want.workload.group(key.group), key.index, tasks)


def _is_fresh(task: Task) -> bool:
    """Whether it waits for its first attempt since it was wanted: what had one is told when it may have the next."""
    return task.phase is Phase.WAITING and not task.not_before


def revived_at(group: Group, task: Task, now: float) -> float:
    """`not_before` of a finished task that is wanted again: what was stopped is in order anew, nothing else waits."""
    return now if group.after and task.phase is not Phase.STOPPED else 0.0


def _missing(want: Want, name: str, tasks: Mapping[TaskKey, Task]) -> int:
    """How many members of a group nobody can count on yet, of those that are needed."""
    group = want.workload.group(name)
    phases = {Phase.DONE} if group.role is Role.GATE else _UP
    count, up = (
        want.planned(name),
        {key.index for key, one in tasks.items() if one.phase in phases and key.group == name},
    )
    if succession.takes_turns(want.workload, group):
        up = {index % HEIR for index in up}
    return max(0, _needed(want, group) - sum(slot < count for slot in up))


def _needed(want: Want, group: Group) -> int:
    """How many members of a group have to be there; of servers one may do, see `Endpoint.ready`."""
    count, endpoint = want.planned(group.name), want.workload.endpoint
    return min(1, count) if endpoint is not None and endpoint.ready == "first" and group.role.serves else count


def _was_begun(want: Want, group: Group, index: int, tasks: Mapping[TaskKey, Task]) -> bool:
    """Whether a member had its first attempt since it was wanted, be it one of its successors."""
    slot = succession.slot_of(want.workload, TaskKey(want.workload.name, group.name, index))
    return any(
        not _is_fresh(task) and not (task.phase is Phase.STOPPED and task.generation < want.generation)
        for task in succession.members(want.workload, group, slot, tasks)
    )


# --- after: the end --------------------------------------------------------------------------------------------------


def outlasting(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[str, list[str]]:
    """At the end: groups that go on as long as something is left of others, which come after them."""
    if not any(group.after for group in want.workload.groups) or (want.running and ender(want, tasks) is None):
        return {}
    living = {key.group for key, task in tasks.items() if task.phase in LIVE}
    left = {group.name: sorted(_followers(want.workload, group.name) & living) for group in want.workload.groups}
    return {name: names for name, names in left.items() if names}


def _followers(workload: Workload, name: str) -> set[str]:
    """Groups that come after one, and after those."""
    direct = {group.name for group in workload.groups if name in group.after}
    return direct.union(*(_followers(workload, each) for each in direct))


# --- ends_with -------------------------------------------------------------------------------------------------------


def ender(want: Want, tasks: Mapping[TaskKey, Task]) -> Task | None:
    """The task whose end is the end of the workload, the worst of several; None: it goes on, or is wanted again."""
    name = want.workload.ends_with
    if name is None or not want.running:
        return None
    mine = [tasks.get(TaskKey(want.workload.name, name, index)) for index in range(want.planned(name))]
    ended = [one for one in mine if one is not None and one.phase in FINAL and one.generation >= want.generation]
    return min(ended, key=lambda one: _WORST_FIRST.index(one.phase)) if mine and len(ended) == len(mine) else None


def over(want: Want, tasks: Mapping[TaskKey, Task]) -> str:
    """Why a workload is over although it is wanted; empty: it is not."""
    task = ender(want, tasks)
    if task is None:
        return ""
    code = "" if task.exit_code is None else f" with code {task.exit_code}"
    return f"ended by `ends_with`: {task.key.group}/{task.key.index} has ended{code}"


def tell(want: Want, task: Task, tasks: Mapping[TaskKey, Task]) -> list[str]:
    """Sentences about what a rule does to a task now, beyond its reason."""
    group = want.workload.group(task.key.group)
    if is_held(want, task.key, tasks, held(want, tasks)):
        return [_shortage(want, name, left) for name in group.after if (left := _missing(want, name, tasks))]
    names = outlasting(want, tasks).get(group.name)
    return [f"kept by `after` until nothing is left of {', '.join(names)}"] if names and task.phase in LIVE else []


def _shortage(want: Want, name: str, left: int) -> str:
    """What a group lacks that others wait for."""
    count = want.planned(name)
    if _needed(want, want.workload.group(name)) < count:
        return f"none of {count} of {name} ready yet, and one is enough"
    return f"{left} of {count} of {name} not ready yet"
