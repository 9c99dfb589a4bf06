"""What to do next with the swarms of a pool. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.base.units import show_counted, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UP = frozenset({"RUNNING", "DEGRADED"})
GONE = frozenset({"", "DOWN"})
DOWN_LIMIT_S = 600.0
"""After so long, what does not end gives its place to the next."""


class Step(StrEnum):
    """How far one swarm of the pool is."""

    WAITING = "waiting"
    """For a place."""
    STARTING = "starting"
    WORKING = "working"
    """Its job runs."""
    ENDING = "ending"
    """Being taken down."""
    OVER = "over"


class Outcome(StrEnum):
    """What came of one."""

    NONE = ""
    DONE = "done"
    """Its job has ended well."""
    UP = "up"
    """It has no job, and is up."""
    FAILED = "failed"


class Verb(StrEnum):
    """What can be done."""

    BRING_UP = "bring up"
    SUBMIT = "submit its job"
    TAKE_DOWN = "take down"
    """With its job, if that still runs."""
    FINISH = "finish"


@dataclass(frozen=True)
class Entry:
    """One swarm of the pool, as recorded."""

    name: str
    step: Step = Step.WAITING
    has_job: bool = True
    keeps: bool = False
    is_sent: bool = False
    """The host has been told of it."""
    is_ours: bool = True
    """Brought up by this pool; others are not taken down."""
    queue_timeout_s: float = 0.0
    wait_s: float = 600.0
    """From its first start to the endpoint's answer."""
    since: float = 0.0
    """When the step began."""
    started_at: float = 0.0
    """When something of it was first seen running; 0 before."""
    outcome: Outcome = Outcome.NONE
    reason: str = ""


@dataclass(frozen=True)
class Seen:
    """What is known of one now."""

    phase: str = ""
    """Of the swarm; empty when there is none of that name."""
    reason: str = ""
    job: str = ""
    """State of the job; empty before it is sent."""
    job_reason: str = ""
    failed_rows: int = 0


@dataclass(frozen=True)
class Action:
    """One thing to do."""

    name: str
    verb: Verb
    outcome: Outcome = Outcome.NONE
    reason: str = ""


def plan(entries: Sequence[Entry], seen: Mapping[str, Seen], bound: int, now: float) -> tuple[Action, ...]:
    """Say what is due: what comes next for those under way, and a place for the first that wait, while one is free."""
    actions = [
        action for entry in entries if (action := _next(entry, seen.get(entry.name, Seen()), now)) is not None
    ]  # fmt: skip
    free = bound - sum(_holds_place(entry, seen.get(entry.name, Seen())) for entry in entries)
    waiting = [entry for entry in entries if entry.step is Step.WAITING]
    actions += [Action(entry.name, Verb.BRING_UP) for entry in waiting[: max(0, free)]]
    return tuple(actions)


def moved(entry: Entry, by: float) -> Entry:
    """The same with its times moved: the clock was set, or nobody was there to look."""
    if not by:
        return entry
    return replace(
        entry,
        since=entry.since + by if entry.since else 0.0,
        started_at=entry.started_at + by if entry.started_at else 0.0,
    )


def is_over(entries: Sequence[Entry]) -> bool:
    """Whether nothing more is to be done."""
    return all(entry.step is Step.OVER for entry in entries)


def _holds_place(entry: Entry, seen: Seen) -> bool:
    if entry.step is Step.OVER:
        return (entry.keeps or entry.outcome is Outcome.UP) and seen.phase not in GONE
    return entry.step is not Step.WAITING


def _next(entry: Entry, seen: Seen, now: float) -> Action | None:
    match entry.step:
        case Step.STARTING:
            return _starting(entry, seen, now)
        case Step.WORKING:
            return _working(entry, seen)
        case Step.ENDING:
            return _ending(entry, seen, now)
        case Step.WAITING | Step.OVER:
            return None


def _starting(entry: Entry, seen: Seen, now: float) -> Action | None:
    if not entry.is_sent and not seen.phase:
        return Action(entry.name, Verb.BRING_UP)  # whoever was to do it was killed, or was not heard
    if seen.phase in UP:
        return Action(entry.name, Verb.SUBMIT) if entry.has_job else Action(entry.name, Verb.FINISH, Outcome.UP)
    if seen.phase in GONE or seen.phase == "STOPPING":
        return Action(entry.name, Verb.TAKE_DOWN, Outcome.FAILED, "taken down by another command")
    if seen.phase in ("FAILED", "DONE", "STOPPED"):
        return Action(entry.name, Verb.TAKE_DOWN, Outcome.FAILED, f"it is {seen.phase}: {seen.reason}")
    if not entry.started_at and entry.queue_timeout_s and now - entry.since > entry.queue_timeout_s:
        said = f"nothing of it has started within {show_duration(entry.queue_timeout_s)}"
        return Action(entry.name, Verb.TAKE_DOWN, Outcome.FAILED, said + (f": {seen.reason}" if seen.reason else ""))
    if entry.started_at and now - entry.started_at > entry.wait_s:
        said = f"it did not answer within {show_duration(entry.wait_s)} of its start"
        return Action(entry.name, Verb.TAKE_DOWN, Outcome.FAILED, said + (f": {seen.reason}" if seen.reason else ""))
    return None


def _working(entry: Entry, seen: Seen) -> Action | None:
    if seen.job == "DONE":
        outcome = Outcome.FAILED if seen.failed_rows else Outcome.DONE
        rows = show_counted(seen.failed_rows, "row", "has", "have")
        reason = f"{rows} an error" if seen.failed_rows else ""
        return Action(entry.name, Verb.FINISH if entry.keeps else Verb.TAKE_DOWN, outcome, reason)
    if seen.job in ("FAILED", "STOPPED", "LOST"):
        said = f"its job is {seen.job}" + (f": {seen.job_reason}" if seen.job_reason else "")
        return Action(entry.name, Verb.FINISH if entry.keeps else Verb.TAKE_DOWN, Outcome.FAILED, said)
    if not seen.job and seen.phase in UP:
        return Action(entry.name, Verb.SUBMIT)  # it was never sent
    if seen.phase in GONE or seen.phase in ("STOPPING", "FAILED", "DONE", "STOPPED"):
        said = f"it is {seen.phase or 'gone'} while its job runs" + (f": {seen.reason}" if seen.reason else "")
        return Action(entry.name, Verb.TAKE_DOWN, Outcome.FAILED, said)
    return None


def _ending(entry: Entry, seen: Seen, now: float) -> Action | None:
    if seen.phase in GONE or not entry.is_ours:
        return Action(entry.name, Verb.FINISH, entry.outcome, entry.reason)
    if seen.phase != "STOPPING":
        return Action(entry.name, Verb.TAKE_DOWN, entry.outcome, entry.reason)
    if now - entry.since > DOWN_LIMIT_S:
        left = f"it is not down after {show_duration(DOWN_LIMIT_S)}: {seen.reason}; remuda down {entry.name}"
        return Action(entry.name, Verb.FINISH, Outcome.FAILED, f"{entry.reason}; {left}" if entry.reason else left)
    return None
