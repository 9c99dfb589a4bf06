"""How much of the time a process was there for. Pure; Python 3.9, standard library only.

A process that was stopped, whose machine slept or was paused, or whose disk froze under it, finds much time gone
between two of its turns. In that time it heard nobody and nobody need have been able to speak, so the time is no part
of what it *lived*: durations after which somebody is taken for hung, or is killed, are measured in lived time. What it
waits for begins anew after such a gap, because the others may need a moment longer to come back; but not for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LATE_S = 1.0
"""A turn that comes later than this is a gap; a busy machine alone makes none."""
PATIENT = 3.0
"""Where gaps come again and again, silence is silence after so many times its usual length of lived time."""


@dataclass(frozen=True)
class Presence:
    """What one process has lived until its last turn. Seconds."""

    at: float = 0.0
    """Of the last turn, on the clock that `turned` is told."""
    lived: float = 0.0
    resumed: float = 0.0
    """`lived` when the last gap ended."""
    missed: float = 0.0
    """Length of all gaps."""


def turned(presence: Presence, at: float, within_s: float = 0.0) -> Presence:
    """The presence after another turn.

    Args:
        presence: as of the turn before.
        at: seconds on a clock that is never set.
        within_s: how long after the turn before this one was to come at the latest.
    """
    passed = max(0.0, at - presence.at)
    if passed <= within_s + LATE_S:
        return replace(presence, at=max(at, presence.at), lived=presence.lived + passed)
    lived = presence.lived + within_s
    return Presence(at, lived, lived, presence.missed + passed - within_s)


def silence_s(presence: Presence, heard: float) -> float:
    """How long somebody was silent who was last heard when `presence.lived` was `heard`."""
    since = max(0.0, presence.lived - max(heard, presence.resumed))
    return max(since, (presence.lived - heard) / PATIENT)
