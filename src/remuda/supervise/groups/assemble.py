"""Ranks that a scheduler starts one by one and that are of use together only: none waits for others for ever. Pure.

Two gangs that each hold a part of what both need would wait for good. So where fewer than the quorum run for
`Group.assemble_s` because others are in the queue, all end, which counts nothing, and give back what they hold. All
ask again at one time, after a wait that is another for each gang and longer each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.base.units import show_duration
from remuda.policy.backoff import backoff_s
from remuda.supervise.groups.handover import Cast, Part
from remuda.supervise.model import FINAL, RUNNING, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.backends.base import TaskKey
    from remuda.plan.model import Group

_LONGEST: Final = 8.0
"""The longest wait, in times of `assemble_s`; a wait is a quarter of its bound at least."""
_JITTER: Final = 0.75


def parts(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> dict[TaskKey, Cast]:
    """Members that are put back, and until when they wait; no others are in it."""
    found: dict[TaskKey, Cast] = {}
    for group, members, due in _short(want, tasks):
        if due > now or 0 < group.replace.until <= now:
            continue
        queued = sum(task.phase is Phase.PENDING for task in members)
        why = (
            f"all ranks are put back: {queued} of {group.count} in the queue for {show_duration(group.assemble_s)} "
            f"(`assemble`), and {group.quorum or group.count} are needed"
        )
        # Only when all were begun again does this number rise, however often one of them was.
        times = min(task.attempt for task in members if task.phase not in FINAL)
        name = f"{want.workload.name}.{want.workload.uid}"
        wait = backoff_s(max(1, times), group.assemble_s, _LONGEST * group.assemble_s, key=name, jitter=_JITTER)
        put_back = Cast(Part.AGAIN, why, now + wait)
        found |= {task.key: put_back for task in members if task.phase not in FINAL | {Phase.STOPPING}}
    return found


def next_change(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> float | None:
    """When the clock alone changes what `parts` says, in seconds; None: only a fact can."""
    return min((due for _, _, due in _short(want, tasks) if due > now), default=None)


def _short(want: Want, tasks: Mapping[TaskKey, Task]) -> Iterator[tuple[Group, list[Task], float]]:
    """Groups of which some run and too many are in the queue, with all that were begun, and when they are put back."""
    if not want.running or want.paused:
        return
    for group in want.workload.groups:
        if not group.assemble_s:
            continue
        slots = want.slots(group.name)
        spare = len(slots) - (group.quorum or len(slots))
        if sum(task.phase is Phase.PENDING for task in tasks.values()) <= spare:
            continue  # as nearly always: nothing more is looked at
        members = [task for key, task in tasks.items() if key.group == group.name and key.index in slots]
        queued = sorted(task.since for task in members if task.phase is Phase.PENDING)
        running = [task.started_at or task.since for task in members if task.phase in RUNNING]
        if running and len(queued) > spare:
            yield group, members, max(min(running), queued[spare]) + group.assemble_s
