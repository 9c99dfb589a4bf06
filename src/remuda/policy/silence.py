"""What the silence of one says while others are heard. Pure; Python 3.9, standard library only.

Silence is counted only as far as somebody else was heard: when nobody is, the trouble is the listener's, and nothing is
concluded. A time in which nobody was heard is left out of everybody's silence, so that the first one who is heard
again is no witness against those who need a moment longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PACES = 3.0
MARGIN_S = 2.0


@dataclass(frozen=True)
class Ear:
    """One listener. Times in seconds on its own clock."""

    newest: float = 0.0
    """When anybody was heard last, 0 for never."""
    deaf_until: float = 0.0
    """End of the last time in which nobody was heard although somebody should have been."""


def patience_s(pace_s: float) -> float:
    """How long one that speaks every `pace_s` may be silent before it is missed."""
    return PACES * pace_s + MARGIN_S


def hear(ear: Ear, heard: Iterable[tuple[float, float]]) -> Ear:
    """The ear after another moment.

    Args:
        ear: as it was.
        heard: of each that should speak: when it was heard last, and the longest pause that is usual for it.
    """
    all_heard = list(heard)
    newest = max((at for at, _ in all_heard), default=0.0)
    if newest <= ear.newest:
        return ear
    usual = patience_s(max(pace for _, pace in all_heard))
    if newest - ear.newest > usual:
        return Ear(newest, newest)
    return replace(ear, newest=newest)


def silence_s(ear: Ear, heard_at: float) -> float:
    """How long one that was heard last at `heard_at` was silent while others were heard."""
    return max(0.0, ear.newest - max(heard_at, ear.deaf_until))


def is_missed(silent_s: float, pace_s: float) -> bool:
    """Whether one of that pace should have been heard meanwhile."""
    return silent_s > patience_s(pace_s)


def is_lost(silent_s: float, pace_s: float, limit_s: float) -> bool:
    """Whether it is to be replaced: silent for longer than `limit_s` (0: never), and surely missed."""
    return limit_s > 0 and silent_s > max(limit_s, 2 * patience_s(pace_s))
