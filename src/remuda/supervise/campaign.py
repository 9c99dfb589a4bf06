"""What comes next in a campaign: many workloads, at most N up at once, each with its job. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.units import show_counted, show_duration
from remuda.supervise.summary import UP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.store.rows import CampaignItemRow

WAITING, STARTING, WORKING, ENDING, OVER = "waiting", "starting", "working", "ending", "over"
"""States of a row: it waits for a place, comes up, works (its job, or all of it), is being taken down, or is over."""
DONE, IS_UP, FAILED = "done", "up", "failed"
"""Outcomes of a row: its job, or all of it, has ended well, it has no job and is up, or neither."""
CREATE, SUBMIT, TAKE_DOWN, FINISH = "create", "submit", "take down", "finish"
"""What can be done; SUBMIT is for its job, or says that all of it works; what is taken down is so with its job."""
SWEEP: Final = "sweep"
"""Kind of the campaigns of `apply --sweep`; the others are pools."""
GONE: Final = frozenset({"", "DOWN"})
DOWN_LIMIT_S: Final = 600.0
"""After so long, what does not end gives its place to the next."""


@dataclass(frozen=True, slots=True)
class RowSeen:
    """What is known of one now."""

    phase: str = ""
    """Of the workload; empty when there is none of that name."""
    reason: str = ""
    job: str = ""
    """State of the job; empty before it is sent."""
    job_reason: str = ""
    failed_rows: int = 0
    ends: bool = False
    """Its workload ends by itself."""
    is_held: bool = False
    """Another campaign does what it would do."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    name: str
    verb: str
    outcome: str = ""
    reason: str = ""


def due(rows: Sequence[CampaignItemRow], seen: Mapping[str, RowSeen], bound: int, now: float) -> tuple[Step, ...]:
    """Say what comes next for those under way, and create the first that wait, while places are free."""
    steps, free, nothing = [], bound, RowSeen()
    for row in rows:
        if row.state == WAITING:
            continue
        one = seen.get(row.name, nothing)
        free -= row.state != OVER or ((row.keeps or row.outcome == IS_UP) and one.phase not in GONE)
        if row.state in _NEXT and (step := _NEXT[row.state](row, one, now)) is not None:
            steps.append(step)
    waiting = (row.name for row in rows if row.state == WAITING and not seen.get(row.name, nothing).is_held)
    return (*steps, *(Step(name, CREATE) for _, name in zip(range(free), waiting, strict=False)))


def _starting(row: CampaignItemRow, seen: RowSeen, now: float) -> Step | None:
    if not row.uid:
        return Step(row.name, CREATE)  # the host that was to do it was killed
    if seen.phase in UP:
        return Step(row.name, SUBMIT) if row.points or seen.ends else Step(row.name, FINISH, IS_UP)
    if seen.ends and seen.phase in ("DONE", "STOPPING"):
        return _by_itself(row, seen)  # so soon that nobody has seen it work
    if seen.phase in GONE or seen.phase == "STOPPING":
        return Step(row.name, TAKE_DOWN, FAILED, "taken down by another command")
    if seen.phase in ("FAILED", "DONE", "STOPPED"):
        return Step(row.name, TAKE_DOWN, FAILED, f"it is {seen.phase}: {seen.reason}")
    said = ""
    if not row.started_at and row.queue_timeout_s and now - row.since > row.queue_timeout_s:
        said = f"nothing of it has started within {show_duration(row.queue_timeout_s)}"
    elif row.started_at and now - row.started_at > row.wait_s:
        said = f"it did not answer within {show_duration(row.wait_s)} of its start"
    return Step(row.name, TAKE_DOWN, FAILED, said + _why(seen.reason)) if said else None


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""


def _by_itself(row: CampaignItemRow, seen: RowSeen) -> Step | None:
    """The end of what ends by itself: done it stays as it is, else it may have left something that runs."""
    if seen.phase == "DONE":
        return Step(row.name, FINISH, DONE)
    if seen.phase in ("FAILED", "STOPPED"):
        return Step(row.name, TAKE_DOWN, FAILED, f"it is {seen.phase}{_why(seen.reason)}")
    return Step(row.name, TAKE_DOWN, FAILED, "taken down by another command") if seen.phase in GONE else None


def _working(row: CampaignItemRow, seen: RowSeen, _: float) -> Step | None:
    if not row.points:
        return _by_itself(row, seen)
    end = FINISH if row.keeps else TAKE_DOWN
    if seen.job == "DONE":
        said = f"{show_counted(seen.failed_rows, 'row', 'has', 'have')} an error" if seen.failed_rows else ""
        return Step(row.name, end, FAILED if said else DONE, said)
    if seen.job in ("FAILED", "STOPPED", "LOST"):
        return Step(row.name, end, FAILED, f"its job is {seen.job}{_why(seen.job_reason)}")
    if not seen.job and seen.phase in UP:
        return Step(row.name, SUBMIT)  # it was never sent
    if seen.phase in GONE or seen.phase in ("STOPPING", "FAILED", "DONE", "STOPPED"):
        said = f"it is {seen.phase or 'gone'} while its job runs{_why(seen.reason)}"
        return Step(row.name, TAKE_DOWN, FAILED, said)
    return None


def _ending(row: CampaignItemRow, seen: RowSeen, now: float) -> Step | None:
    if seen.phase in GONE or not row.is_ours:
        return Step(row.name, FINISH, row.outcome, row.reason)
    if seen.phase != "STOPPING":
        return Step(row.name, TAKE_DOWN, row.outcome, row.reason)
    if now - row.since > DOWN_LIMIT_S:
        left = f"it is not down after {show_duration(DOWN_LIMIT_S)}: {seen.reason}; remuda down {row.name}"
        return Step(row.name, FINISH, FAILED, f"{row.reason}; {left}" if row.reason else left)
    return None


_NEXT: Final = {STARTING: _starting, WORKING: _working, ENDING: _ending}
