"""Which tasks of a group are wanted when they take turns, because time limits end them and the workload goes on. Pure.

A member of such a group is a *slot* of two tasks: the index `i` and its successor `i + SUCCESSOR`. One of them serves.
Before its time limit ends it the other one is started, and when that has been ready for a moment the older one
*yields*: it is sent nothing new, finishes its requests, and is ended. Next time it is the other's successor.

All that is remembered is in the tasks: when each was submitted, when its limit comes, and since when it yields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from remuda.backends.base import TaskKey
from remuda.base.units import show_duration
from remuda.supervise.model import FINAL, RUNNING, Cause, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.plan.model import Group, Workload

SUCCESSOR: Final = 500
"""Between the indices of a slot's two tasks. Slurm's arrays end at 1,000 where a site has not changed that."""
SETTLE_S: Final = 5.0
"""A task has been ready for so long before another one leaves for it, and has yielded for so long before it is believed
that nothing is under way to it any more: whoever sends requests must have heard of it."""
WAITS: Final = 1.5
"""A successor is submitted this many longest waits before it is needed, and half of the usual lead for its start."""
LEAD_SHARE_MAX: Final = 0.75
"""Of the time that an allocation has: one that would have to be asked for earlier is not, because its slot's other task
must have ended."""

Slot = tuple[Task | None, Task | None]
"""The two tasks of a slot; None: it was never started."""


class Part(Enum):
    """What is to be done with one task of a group."""

    KEEP = "keep"
    """It is wanted, like any task."""
    BEGIN = "begin"
    """It is wanted although it may have ended: another one needs a successor."""
    YIELD = "yield"
    """It leaves the membership now."""
    RETURN = "return"
    """It yielded, and the one that it yielded to does not serve: it goes on."""
    DRAIN = "drain"
    """It yields, and finishes what it has begun."""
    END = "end"
    """It is not wanted."""
    AGAIN = "again"
    """It ends, to begin again with others that share its fate; what has ended waits like them."""
    HOLD = "hold"
    """It must not begin yet, see `rules`."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A task's part, and why, in one sentence; empty where there is nothing to tell."""

    part: Part
    why: str = ""
    until: float = 0.0
    """Of what begins again: not before, in seconds."""


KEPT: Final = Cast(Part.KEEP)


@dataclass(frozen=True, slots=True)
class _Turns:
    """A group whose members take turns, and how early a successor is asked for."""

    want: Want
    group: Group
    lead_s: float

    @classmethod
    def of(cls, want: Want, group: Group, tasks: Mapping[TaskKey, Task]) -> _Turns:
        return cls(want, group, lead_s(group, tasks))


def takes_turns(workload: Workload, group: Group) -> bool:
    """Whether the members of the group are slots of two tasks."""
    return workload.lifetime_s > 0 and group.succession is not None


def slot_of(workload: Workload, key: TaskKey) -> int:
    """Number of the member that a task stands for."""
    is_slot = any(group.name == key.group and takes_turns(workload, group) for group in workload.groups)
    return key.index % SUCCESSOR if is_slot else key.index


def holder(workload: Workload, group: Group, slot: int, tasks: Mapping[TaskKey, Task]) -> Task | None:
    """The task that stands for a member: its only one, or the one of its slot that serves; None: none was begun yet."""
    first, second = _pair(workload.name, group, slot, tasks)
    return _ordered(first, second)[0] if takes_turns(workload, group) else first


def members(workload: Workload, group: Group, slot: int, tasks: Mapping[TaskKey, Task]) -> list[Task]:
    """All tasks of a member that were begun, the one that stands for it first."""
    first, second = _pair(workload.name, group, slot, tasks)
    slots = _ordered(first, second) if takes_turns(workload, group) else (first,)
    return [task for task in slots if task is not None]


def parts(want: Want, group: Group, tasks: Mapping[TaskKey, Task], now: float) -> dict[int, Cast]:
    """Say what is to be done with each task of a group that is wanted, or on its way out of its slot.

    Args:
        want: the intent. While it is paused nobody is begun, yields or is ended.
        group: one of its groups.
        tasks: all tasks of the workload.
        now: seconds.

    Returns:
        Casts by index, by slot, the one that serves first. A task that is not in it is surplus.
    """
    count = want.count(group.name)
    if not takes_turns(want.workload, group):
        return dict.fromkeys(group.slots(count) if want.running else (), KEPT)
    cast: dict[int, Cast] = {}
    turns = _Turns.of(want, group, tasks)
    for slot in range(count):
        cast |= _turn(turns, slot, tasks, now)
    return cast


def lead_s(group: Group, tasks: Mapping[TaskKey, Task]) -> float:
    """Seconds before a limit at which the successor is submitted, from the waits of the group's tasks in the queue.

    Only what runs counts: the queue of today, not that of the day on which the workload was brought up.
    """
    succession = group.succession
    if succession is None:
        return 0.0
    if not succession.follows_queue:
        return succession.lead_s
    mine = (task for key, task in tasks.items() if key.group == group.name and task.phase in RUNNING)
    running = [task for task in mine if 0 < task.submitted_at <= task.started_at < task.limit_at]
    if not running:
        return succession.lead_s
    wait_s = max(task.started_at - task.submitted_at for task in running)
    has_s = min(task.limit_at - task.started_at for task in running)
    return max(succession.lead_s, min(WAITS * wait_s + succession.lead_s / 2, LEAD_SHARE_MAX * has_s))


def next_change(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> float | None:
    """When the clock alone changes what `parts` says, in seconds; None: only a fact can."""
    if want.paused or not want.running:
        return None
    times = [
        at
        for group in want.workload.groups
        if takes_turns(want.workload, group)
        for turns in (_Turns.of(want, group, tasks),)
        for slot in range(want.count(group.name))
        for at in _times(turns, *_ordered(*_pair(want.workload.name, group, slot, tasks)))
    ]
    return min((at for at in times if at > now), default=None)


def tell(want: Want, task: Task, tasks: Mapping[TaskKey, Task], now: float) -> list[str]:
    """Sentences about a task's turn: who takes over, and when."""
    group = want.workload.group(task.key.group)
    if not takes_turns(want.workload, group):
        return []
    first, second = _ordered(*_pair(want.workload.name, group, task.key.index % SUCCESSOR, tasks))
    turns = _Turns.of(want, group, tasks)
    if first is not None and second is not None and task.yields_at and task.key == second.key:
        left = show_duration(max(0.0, _drain_until(turns, first, second) - now))
        since = show_duration(max(0.0, now - task.yields_at))
        return [f"yields to {_name(first)} for {since}: it is sent nothing new, and is ended in {left} at the latest"]
    due = _due_at(turns, task)
    if first is None or task.key != first.key or due is None or now >= due:
        return []
    return [f"its successor is submitted in {show_duration(due - now)}"]


def is_drained(task: Task) -> bool:
    """Whether nothing can be under way to a task that yields."""
    if task.phase is Phase.STARTING:
        return True
    is_known = "running" in task.metrics and task.loaded_at >= task.yields_at + SETTLE_S
    return is_known and not task.metrics["running"] and not task.metrics.get("waiting")


def _pair(workload: str, group: Group, slot: int, tasks: Mapping[TaskKey, Task]) -> Slot:
    return tasks.get(TaskKey(workload, group.name, slot)), tasks.get(TaskKey(workload, group.name, slot + SUCCESSOR))


def _ordered(first: Task | None, second: Task | None) -> Slot:
    """The task that stands for the slot, and the other."""
    if first is None or second is None:
        return first or second, None
    if (first.yields_at > 0) is not (second.yields_at > 0):
        return (second, first) if first.yields_at else (first, second)
    return (first, second) if _weight(first) >= _weight(second) else (second, first)


_ENDS = (Phase.STOPPED, Phase.DONE, Phase.FAILED)


def _weight(task: Task) -> tuple[int, float]:
    """What runs weighs more than what is about to, and that more than what has ended.

    Of two that live the older one weighs more, of two that do not the newer one.
    """
    if task.phase in RUNNING:
        return (6, -task.submitted_at)
    if task.phase in (Phase.PENDING, Phase.SUBMITTING):
        return (5, -task.submitted_at)
    if task.phase is Phase.WAITING or (task.phase is Phase.STOPPING and task.ending is not Cause.NONE):
        return (4, task.submitted_at)
    return (_ENDS.index(task.phase) + 1 if task.phase in FINAL else 0, task.since)


def _turn(turns: _Turns, slot: int, tasks: Mapping[TaskKey, Task], now: float) -> dict[int, Cast]:
    """The casts of one slot: one or two."""
    first, second = _ordered(*_pair(turns.want.workload.name, turns.group, slot, tasks))
    if first is None:
        return {slot: KEPT}
    index = first.key.index
    other = slot + SUCCESSOR if index == slot else slot
    if second is None or second.phase is Phase.WAITING or second.phase in FINAL:
        successor = _successor(turns, first, second, now)
        return {index: KEPT} | ({other: successor} if successor is not None else {})
    if second.phase is Phase.STOPPING and second.ending is Cause.NONE:
        return {index: KEPT, other: Cast(Part.END)}
    if second.yields_at:
        others = [task for key, task in tasks.items() if key.group != turns.group.name and task.yields_at]
        passes_on = any(task.phase in RUNNING for task in others)
        return {index: KEPT, other: _leaving(turns, first, second, now, passes_on=passes_on)}
    is_settled = second.phase is Phase.READY and second.ready_since > 0 and now >= second.ready_since + SETTLE_S
    if is_settled and not turns.want.paused:
        return {index: Cast(Part.YIELD, f"{_name(second)} takes over; requests under way are finished"), other: KEPT}
    if first.phase in RUNNING or turns.want.paused:
        return {index: KEPT, other: KEPT}
    return {index: KEPT, other: Cast(Part.END, f"{_name(first)} is there")}


def _successor(turns: _Turns, first: Task, second: Task | None, now: float) -> Cast | None:
    """What becomes of a successor that has no allocation; None: there is none, and none is needed."""
    if turns.want.paused:
        return None if second is None else KEPT
    due = _due_at(turns, first)
    if due is None or now < due:
        is_over = second is None or second.phase in FINAL
        return None if is_over else Cast(Part.END, f"{_name(first)} has taken over")
    if second is not None and second.phase is not Phase.STOPPED:
        # One that was given up in this hand-over stays so; one that was in an earlier one is asked again.
        is_old = second.phase in FINAL and second.since < max(due, first.submitted_at)
        if not is_old:
            return KEPT
    left = show_duration(max(0.0, first.limit_at - now))
    return Cast(Part.BEGIN, f"to succeed {_name(first)}, which its time limit ends in {left}")


def _leaving(turns: _Turns, first: Task, second: Task, now: float, *, passes_on: bool) -> Cast:
    """What becomes of a task that yields, `first` being the one that it yielded to.

    A router may still pass on what a replica answers that it does not count any more: `passes_on`, and it waits.
    """
    if first.phase is not Phase.READY:
        return Cast(Part.RETURN, f"keeps serving, because {_name(first)} does not serve")
    if turns.want.paused:
        return Cast(Part.DRAIN)
    if now >= second.yields_at + SETTLE_S and is_drained(second) and not (passes_on and turns.group.role.routes):
        return Cast(Part.END, f"{_name(first)} has taken over, and nothing is left to be answered")
    if now >= _drain_until(turns, first, second):
        return Cast(Part.END, f"{_name(first)} has taken over")
    return Cast(Part.DRAIN)


def _due_at(turns: _Turns, first: Task) -> float | None:
    """When a successor of a task is to be begun; None: it needs none."""
    if turns.group.succession is None or first.phase not in RUNNING or not first.limit_at or first.yields_at:
        return None
    if turns.want.ends_at and turns.want.ends_at <= first.limit_at:
        return None
    return first.limit_at - turns.lead_s


def _drain_until(turns: _Turns, first: Task, second: Task) -> float:
    """When a task that yields is ended, whatever it still does: its index is needed when `first` needs a successor."""
    succession = turns.group.succession
    drain_s = succession.drain_s if succession is not None else 0.0
    due = _due_at(turns, first)
    until = second.yields_at + drain_s
    return max(second.yields_at + SETTLE_S, until if due is None else min(until, due))


def _times(turns: _Turns, first: Task | None, second: Task | None) -> Iterable[float]:
    if first is None:
        return
    due = _due_at(turns, first)
    if due is not None:
        yield due
    if second is None:
        return
    if second.yields_at:
        yield second.yields_at + SETTLE_S
        yield _drain_until(turns, first, second)
    elif second.ready_since:
        yield second.ready_since + SETTLE_S


def _name(task: Task) -> str:
    return f"{task.key.group}/{task.key.index}"
