"""An end as a scheduler tells it, with the last word of the node program. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed
from remuda.wire.exit import STOPPED
from remuda.wire.fault import Fault

if TYPE_CHECKING:
    from remuda.wire.exit import ExitRecord


def with_record(seen: Observed, record: ExitRecord) -> Observed:
    """What a scheduler says of an end, with the node program's last word, which knows better how and why."""
    is_childs = record.child_exit_code == record.code
    # A script that ended well by itself did so, whatever befell its node or its allocation after that. One that gives
    # way saves its work and ends well, too: then steps are missing.
    ended_well = is_childs and record.code == 0 and not (seen.ending is Ending.PREEMPTED and is_unfinished(record))
    ending = Ending.NONE if ended_well else seen.ending
    reason = record.reason if ending is Ending.NONE else f"{told(seen)}; {record.reason}"
    return replace(
        seen,
        native_state=CHILD_ENDED if is_childs else seen.native_state or "ended",
        reason=reason,
        exit_code=record.code,
        signal=record.child_signal,
        ended_at=record.at,
        evidence=record.log_tail,
        ending=ending,
        befell=seen.ending if ended_well else Ending.NONE,
        faults=read_faults(record),
        ran_s=record.ran_s,
        metrics=record.metrics,
    )


def is_unfinished(record: ExitRecord) -> bool:
    """Whether the script told of fewer steps than it has to make."""
    return record.metrics.get("progress_step", 0.0) < record.metrics.get("progress_total", 0.0)


def told(seen: Observed) -> str:
    """How a scheduler says that it ended, with who did it."""
    return f"{seen.reason} by {seen.by}" if seen.by else seen.reason


def buried(native: str) -> Observed:
    """An allocation that was cancelled before it ran, and that can never run."""
    reason = "cancelled before it started"
    return Observed(Life.ENDED, native, "cancelled", exit_code=STOPPED, reason=reason)


def read_faults(record: ExitRecord) -> tuple[Fault, ...]:
    """The faults of a last word; one of a newer version that cannot be read is left out."""
    found = []
    for item in record.faults:
        try:
            found.append(Fault.from_dict(item))
        except ValueError:
            continue
    return tuple(found)
