"""What can go wrong in a round, beside what every room knows.

    TimedOut
    └── RankMissing    ranks did not come to a round in time; says which, and when each was last seen
    RemudaError
    └── Damaged        an object is shorter than it should be, or its checksum is another
    Conflict
    └── AnotherRun     the store holds a run of another layout, codec or format, or another process has this rank

The rest is of `remuda.base.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.errors import Conflict, RemudaError, TimedOut

if TYPE_CHECKING:
    from collections.abc import Mapping


class RankMissing(TimedOut):
    """Ranks did not come to a round in time.

    Args:
        message: one sentence.
        last_seen: by missing rank, when the store last took something from it (ISO 8601), or None for never.
        hint: what to do.
    """

    def __init__(self, message: str, last_seen: Mapping[int, str | None], *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.last_seen = dict(last_seen)


class Damaged(RemudaError):
    """An object of the store is not what was written: too short, too long, or its checksum differs."""


class AnotherRun(Conflict):
    """The store holds another run under this name, or another process has this rank."""
