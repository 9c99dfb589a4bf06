"""Rules between the groups of one workload: which begins after which, and with whose end all of it ends. Pure.

`Group.after` is a gate before a task's first attempt. What had one goes on, whatever becomes of the others: a frontend
that is restarted never waits for a worker. At the end the order is reversed. `Workload.ends_with` names the group whose
end ends the workload. `Group.at_most` is the number of its places: a task takes one when it begins, the lowest
index first, and gives it back when it is done or has failed for good. Which tasks share one fate: `together`, and
which give back what they hold: `assemble`. `decide` asks, and knows nothing else of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.backends.base import TaskKey
from remuda.plan.model import Role
from remuda.supervise.groups import assemble, handover, together
from remuda.supervise.groups.handover import SUCCESSOR, Cast, Part
from remuda.supervise.model import FINAL, LIVE, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.model import Group, Workload

_WORST_FIRST: Final = (Phase.FAILED, Phase.STOPPED, Phase.DONE)
_UP: Final = frozenset({Phase.READY, Phase.DONE})
"""Phases of a task that nobody has to wait for; of a gate, which looks and ends, only the second is one."""


def parts(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> dict[str, dict[int, Cast]]:
    """Casts by group and index: none once the workload is over, else those of `handover`, some of them on hold."""
    if ender(want, tasks) is not None:
        return {}
    casts = {group.name: handover.parts(want, group, tasks, now) for group in want.workload.groups}
    for key, why in held(want, tasks).items():
        if key.index in casts[key.group]:
            casts[key.group][key.index] = Cast(Part.HOLD, why)
    for key, cast in (together.parts(want, tasks) | assemble.parts(want, tasks, now)).items():
        casts[key.group][key.index] = cast
    return casts


# --- the beginning: after, at_most -----------------------------------------------------------------------------------


def held(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[TaskKey, str]:
    """Tasks that must not have their first attempt yet, and why, which is all that they wait for.

    The gate of a group is closed until every group that it comes after is ready as a whole.
    """
    if not want.running:
        return {}
    found: dict[TaskKey, str] = {}
    awaited = {name for group in want.workload.groups for name in group.after}
    missing = {name for name in awaited if _missing(want, name, tasks)}
    for group in want.workload.groups:
        names = [name for name in group.after if name in missing]
        if not names and not group.at_most:
            continue
        fresh = [slot for slot in want.slots(group.name) if not _was_begun(want, group, slot, tasks)]
        why = f"waiting for these groups to be ready (`after`): {', '.join(names)}"
        if not names:
            fresh = _without_place(want, group, fresh, tasks)
            why = f"its turn has not come: {group.at_most} at a time"
        turns = (0, SUCCESSOR) if handover.takes_turns(want.workload, group) else (0,)
        found |= {TaskKey(want.workload.name, group.name, slot + more): why for slot in fresh for more in turns}
    return found


def _without_place(want: Want, group: Group, fresh: Sequence[int], tasks: Mapping[TaskKey, Task]) -> list[int]:
    """Of tasks that have not begun, those that no place is free for. GPUs of this machine belong to a place each."""
    mine = {key.index for key, one in tasks.items() if key.group == group.name and one.phase not in FINAL}
    taken = mine.difference(fresh)
    if not (want.workload.is_here and group.resources.gpus):
        return list(fresh[max(0, group.at_most - len(taken)) :])
    places = {group.place_of(index) for index in taken}
    late = []
    for index in fresh:
        place = group.place_of(index)
        late += [index] if place in places else []
        places.add(place)
    return late


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
    if handover.takes_turns(want.workload, group):
        up = {index % SUCCESSOR for index in up}
    return max(0, _needed(want, group) - sum(slot < count for slot in up))


def _needed(want: Want, group: Group) -> int:
    """How many members of a group have to be there; of servers one may do, see `Endpoint.ready`."""
    count, endpoint = want.planned(group.name), want.workload.endpoint
    return min(1, count) if endpoint is not None and endpoint.ready == "first" and group.role.serves else count


def _was_begun(want: Want, group: Group, index: int, tasks: Mapping[TaskKey, Task]) -> bool:
    """Whether a member had its first attempt since it was wanted, be it one of its successors.

    What waits and had one is told when it may have the next.
    """
    slot = handover.slot_of(want.workload, TaskKey(want.workload.name, group.name, index))
    return any(
        not (task.phase is Phase.WAITING and not task.not_before)
        and not (task.phase is Phase.STOPPED and task.generation < want.generation)
        for task in handover.members(want.workload, group, slot, tasks)
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
    mine = [tasks.get(TaskKey(want.workload.name, name, index)) for index in want.slots(name)]
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
    if group.after and task.key in held(want, tasks):
        return [_shortage(want, name, left) for name in group.after if (left := _missing(want, name, tasks))]
    names = outlasting(want, tasks).get(group.name)
    return [f"waiting for {', '.join(names)} to end (`after`)"] if names and task.phase in LIVE else []


def _shortage(want: Want, name: str, left: int) -> str:
    """What a group lacks that others wait for."""
    count = want.planned(name)
    if _needed(want, want.workload.group(name)) < count:
        return f"none of {count} of {name} ready yet, and one is enough"
    return f"{left} of {count} of {name} not ready yet"
