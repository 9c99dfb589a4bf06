"""What becomes of the times in a task when the clock is set, and what is believed of those that were recorded. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from remuda.supervise.model import Phase, Task, Want

TIMES: Final = (
    "since", "submitted_at", "not_before", "ready_since", "kill_at", "last_seen", "started_at", "pool_left_at",
    "yields_at", "loaded_at",
)  # fmt: skip
"""Fields of a task that the host's own clock has filled. `limit_at` is the scheduler's, which tells it again."""
_PAST: Final = tuple(name for name in TIMES if name not in ("not_before", "kill_at"))


def shifted(task: Task, by: float) -> Task:
    """The task with every time that was noted moved by so many seconds."""
    changes: dict[str, Any] = {name: at + by for name in TIMES if (at := getattr(task, name)) > 0}
    return replace(task, **changes)


def believed(task: Task, now: float) -> Task:
    """A recorded task as far as its times can be true: nothing has happened later than now.

    A clock that was set back while no host ran is taken back in the task, too: what it waits for lasts no longer than
    it was to last.
    """
    latest = max(getattr(task, name) for name in _PAST)
    return shifted(task, now - latest) if latest > now else task


def believed_want(want: Want, now: float) -> Want:
    """A recorded intent that lasts no longer, from now on, than its lifetime."""
    latest = now + want.workload.lifetime_s
    return replace(want, ends_at=latest) if want.workload.lifetime_s and want.ends_at > latest else want


def kept_waiting(task: Task, gap_s: float) -> Task:
    """The task after a gap: what was asked to end, or to finish what it does, has as long for that as it had before."""
    if task.phase is Phase.STOPPING:
        return replace(task, kill_at=task.kill_at + gap_s)
    return replace(task, yields_at=task.yields_at + gap_s) if task.yields_at else task
