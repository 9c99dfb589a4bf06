"""What becomes of a job: its states, the moves between them, and what follows from what is to be seen of it. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import Conflict
from remuda.base.text import short
from remuda.store.rows import JobRow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

WAITING, RUNNING, DONE, FAILED, STOPPED, LOST = "WAITING", "RUNNING", "DONE", "FAILED", "STOPPED", "LOST"
ENDED: Final = frozenset({DONE, FAILED, STOPPED, LOST})
_ALL: Final = ENDED | {WAITING, RUNNING}
MOVES: Final[Mapping[str, frozenset[str]]] = {
    WAITING: _ALL,
    RUNNING: _ALL,
    LOST: _ALL - {WAITING},
    FAILED: frozenset({FAILED, WAITING, RUNNING, DONE}),
    STOPPED: frozenset({STOPPED, WAITING, RUNNING, DONE}),
    DONE: frozenset({DONE, WAITING, RUNNING}),
}
"""What may come after each state. Who was lost may be heard again, what has ended may be restarted, and a driver that
says that it is done knows better than who gave it up or stopped it."""
_WORDS: Final = {
    "DONE": DONE, "FAILED": FAILED, "DOWN": STOPPED, "STOPPING": STOPPED, "STOPPED": STOPPED, "RUNNING": RUNNING,
}  # fmt: skip
LATE_S: Final = 30.0
"""What another machine has written may be seen so much later on a network file system."""
SILENT_S: Final = 600.0
"""A job of another machine's terminal that nobody keeps going is lost when it was silent for so long."""
_HEARD_AGAIN_S: Final = 3600.0
"""How long one that was lost is listened for."""
UNSEEN: Final = "driver exited; waiting for its result file"
"""Reason of a job whose last word may still come, for `LATE_S` at most."""
BY: Final = "by"
"""Key of a last word that its process did not live to write: the host did, for those who read folders."""
HERE, GONE, ELSEWHERE = "here", "gone", "elsewhere"
"""Where the process of a job is: it lives on this machine, it does not, or this machine cannot tell."""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """What a job's folder shows."""

    id: str
    meta: Mapping[str, Any]
    outcome: Mapping[str, Any]
    """Its last word; empty while there is none."""
    outcome_at: float
    progress: Mapping[str, Any]
    """How far it says it is."""
    heard_at: float
    """When it last wrote any of that, by the clock of its file system; 0 for never."""
    life: str = GONE
    pid: int = 0

    @property
    def is_detached(self) -> bool:
        """Whether the supervisor is to keep it going."""
        return bool(self.meta.get("detached"))


@dataclass(frozen=True, slots=True)
class JobTold:
    """What the supervisor says of a job that it keeps going."""

    phase: str
    reason: str = ""
    since: float = 0.0
    native: str = ""
    """The scheduler's own name of the driver; empty where there is no scheduler."""
    node: str = ""
    attempt: int = 0
    heard_at: float = 0.0
    """When the driver's task last reported."""

    @property
    def word(self) -> str:
        """The state that it means."""
        return _WORDS.get(self.phase, WAITING)


def moved(state: str, word: str) -> str:
    """The state after one in which a job is said to be `word`.

    Raises:
        Conflict: that cannot come after it.
    """
    if word not in MOVES.get(state, _ALL):
        raise Conflict(f"a job that is {state} cannot be {word}")
    return word


def due(rows: Mapping[str, JobRow], folders: Collection[str], news: Collection[str], now: float) -> list[str]:
    """Ids of the jobs that are to be looked at, in order.

    Args:
        rows: what is recorded.
        folders: names of all folders of jobs.
        news: jobs of which something was heard.
        now: seconds since the epoch.
    """

    def is_due(name: str) -> bool:
        row = rows.get(name)
        if row is None or name in news or row.state not in ENDED:
            return True
        return row.state == LOST and now - row.ended_at < _HEARD_AGAIN_S

    return sorted(filter(is_due, folders))


def last_word(row: JobRow, seen: JobSeen) -> dict[str, Any] | None:
    """What is to be written into the folder of a job that has ended; None where nothing is, or its driver will."""
    if row.state not in (FAILED, STOPPED) and (row.state != DONE or row.kind == "batch"):
        return None
    word = {"state": row.state, "reason": row.reason, BY: "host"}
    return None if word == seen.outcome or (seen.outcome and BY not in seen.outcome) else word


def taken_in(row: JobRow | None, seen: JobSeen, told: JobTold | None, quiet_s: float, now: float) -> JobRow:
    """The row of a job after a look; the one that there was where nothing follows.

    Args:
        row: as it is; None: there is none yet.
        seen: its folder.
        told: by the supervisor; None where none keeps it going.
        quiet_s: for how long it has written nothing.
        now: seconds since the epoch.
    """
    created_at = _number(seen.meta.get("created_at")) or 0.0
    if row is None or (seen.meta and row.created_at != created_at):  # the folder of another one
        names = ("what", "kind", "swarm", "input", "output", "backend")
        known: dict[str, Any] = {name: str(seen.meta[name]) for name in names if name in seen.meta}
        row = JobRow(seen.id, state=WAITING, detached=seen.is_detached, created_at=created_at, **known)
        row.started_at = 0.0 if seen.is_detached else created_at
    word, reason = _said(seen, told, quiet_s, now)
    try:
        state = moved(row.state, word)
    except Conflict:
        return row
    summary = seen.outcome.get("summary")
    summary = summary if isinstance(summary, dict) else {}
    numbers = seen.progress or summary
    rate = _number(seen.progress.get("rows_per_s")) if state == RUNNING else _mean(summary)
    told = told or JobTold("", heard_at=seen.heard_at)
    ended_at = seen.outcome_at or told.since or seen.heard_at or created_at or now
    return replace(
        row, state=state, reason=reason, done=_count(numbers.get("done")), failed=_count(numbers.get("failed")),
        total=_count(numbers.get("total") or numbers.get("rows")), rate=float(rate or 0.0), pid=seen.pid,
        native=told.native, node=told.node, attempt=told.attempt,
        told=json.dumps(seen.progress), outcome=json.dumps({**seen.outcome, "summary": summary}),
        started_at=row.started_at or (told.since if state == RUNNING else 0.0), heartbeat_at=told.heard_at,
        ended_at=0.0 if state not in ENDED else row.ended_at if state == row.state else ended_at,
    )  # fmt: skip


def _said(seen: JobSeen, told: JobTold | None, quiet_s: float, now: float) -> tuple[str, str]:
    """State and reason: what its process wrote at its end, else that it lives, else what the supervisor says."""
    if seen.outcome.get("state") and not (BY in seen.outcome and told is not None):
        word, reason = str(seen.outcome["state"]), str(seen.outcome.get("reason", ""))
        return (
            (word, reason) if word in _ALL else (WAITING, f"its folder says {short(word, 40)!r}, which is not a state")
        )
    told = told if seen.is_detached else None
    if told and told.word == DONE and seen.meta.get("kind", "batch") == "batch" and 0 <= now - told.since < LATE_S:
        return RUNNING, UNSEEN
    if seen.life == HERE and (told is None or told.word not in ENDED):
        return RUNNING, ""
    if told is not None:
        return told.word, told.reason
    if seen.is_detached and seen.heard_at and abs(quiet_s) < LATE_S:
        return RUNNING, "no host runs: the job keeps running, and would not be restarted"
    if seen.is_detached:
        return WAITING, "the host is not running, so the job cannot resume"
    if seen.life == ELSEWHERE and quiet_s < SILENT_S:
        return RUNNING, ""
    return LOST, "its process was killed; type the same command again to resume"


def _number(value: object) -> float | None:
    """A count or a rate; None for anything else."""
    return value if isinstance(value, (int, float)) and abs(value) < 1e18 and not isinstance(value, bool) else None


def _count(value: object) -> int | None:
    return None if (number := _number(value)) is None else int(number)


def _mean(summary: Mapping[str, Any]) -> float | None:
    """Rows per second of a job that is over."""
    done, seconds = _number(summary.get("done")), _number(summary.get("seconds"))
    return done / seconds if done and seconds else None
