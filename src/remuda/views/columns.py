"""The states of workloads and tasks as people see them, and which cells of a row are news. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBERS: Final = frozenset({"gpus", "rate"})
"""Cells that change all the time while something runs; they are told once a second, all others at once."""


class ShownState(NamedTuple):
    """A state in words."""

    word: str
    tone: str
    """`bad`, `warn`, `wait`, `good` or `over`."""
    rank: int
    """Order of trouble: 0 ill, 1 not whole, 3 waits, 4 starts, 5 runs, 6 has ended."""


_TONES: Final = {0: "bad", 1: "warn", 3: "wait", 4: "wait", 5: "good", 6: "over"}
_RANKS: Final = {
    "failed": 0, "unhealthy": 0, "degraded": 1, "restarting": 1, "waiting": 1, "submitting": 3, "pending": 3,
    "paused": 3, "starting": 4, "ready": 5, "running": 5, "stopping": 5, "done": 6, "stopped": 6, "down": 6,
}  # fmt: skip


def state(phase: str, *, is_new: bool = False, is_never: bool = False, yields: bool = False) -> ShownState:
    """A phase of a workload or task in words.

    Args:
        phase: as views have it.
        is_new: it waits for its first attempt: not after a failure.
        is_never: its scheduler says that it will never start it as it is.
        yields: it only finishes what it has begun.
    """
    word = phase.lower()
    rank = 0 if is_never else 3 if is_new and word == "waiting" else _RANKS.get(word, 5)
    return ShownState("yields" if yields and word == "ready" else word, _TONES[rank], rank)


def is_news(cells: Mapping[str, object] | None) -> bool:
    """Whether more of a row has changed than its numbers; None: it is gone."""
    return cells is None or not NUMBERS.issuperset(cells)
