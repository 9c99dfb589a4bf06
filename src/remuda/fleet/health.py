"""What is wrong with a node of a fleet, a sentence each. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.units import show_duration, show_size
from remuda.fleet.admission import CLOCK_S
from remuda.fleet.conf import gpus_of

if TYPE_CHECKING:
    from remuda.fleet.roll import FleetNode
    from remuda.wire.fleet import Beat

QUIET_S: Final = 10.0
"""Of five beats none came."""
LEAST_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class Heard:
    """The last word of a node."""

    at: float
    """Monotonic seconds."""
    beat: Beat
    clock_s: float = 0.0
    """By how much its clock was ahead of the head's."""


def faults(node: FleetNode, last: Heard | None, silent_s: float, remuda: str, slurm: str = "") -> list[str]:
    """What is wrong; nothing on a node that is well.

    Args:
        node: as it joined.
        last: what it said last; None: nothing since this host began.
        silent_s: for how long nothing was heard.
        remuda: the head's version.
        slurm: why Slurm gives it no work; empty where it does.
    """
    if silent_s > QUIET_S:
        return [f"silent for {show_duration(silent_s)}: no client runs there, or the network is down"]
    if last is None:
        return []
    beat, found = last.beat, list(last.beat.problems)
    if slurm and not node.leaving:
        found.append(f"Slurm gives it no work: {slurm}")
    if lost := _lost(node.gpus, beat.gpus):
        found.append(lost)
    if beat.at and beat.free_bytes < LEAST_BYTES:
        found.append(f"disk almost full: {show_size(beat.free_bytes)} left for its state directory")
    if abs(last.clock_s) > CLOCK_S:
        way = "ahead of" if last.clock_s > 0 else "behind"
        found.append(f"clock {show_duration(abs(last.clock_s))} {way} the head's")
    if beat.remuda and beat.remuda != remuda:
        found.append(f"remuda {beat.remuda} there, {remuda} on the head")
    return found


def _lost(had: str, has: str) -> str:
    _, before = gpus_of(had)
    _, now = gpus_of(has)
    return f"GPU lost: {now} of {before} {'answers' if now == 1 else 'answer'}" if now < before else ""
