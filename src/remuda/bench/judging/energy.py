"""What a point used: joules of the GPUs that were recorded beside its replicas, by tokens; and rule V20. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.bench.judging.verdict import NOT_ASKED, OK, Check

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GAP_S: Final = 3.0
APART: Final = 0.05
"""Largest gap without a sample, and largest share by which power that was added up may differ from the counter."""


@dataclass(frozen=True)
class Sampled:
    """One GPU in the window of a load.

    Attributes:
        joules: by its counter, else by power; None where it tells neither.
        by_power: the same by power alone; None where it tells none.
        gap_s: longest time without a sample, edges of the window included.
        went_back: its counter did.
        is_shared: somebody else was on it.
    """

    joules: float | None
    by_power: float | None
    gap_s: float
    went_back: bool = False
    is_shared: bool = False


def energy_of(seen: Sequence[Sampled], gpus: int, metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """`energy` of a point; None where nothing is recorded.

    Args:
        seen: the GPUs of its replicas, as recorded in the window.
        gpus: allocated to them.
        metrics: of the point.
    """
    seconds = metrics.get("window_s") or 0.0
    if not seen or seconds <= 0:
        return None
    joules = sum(one.joules or 0.0 for one in seen)
    return {
        "gpus": len(seen), "allocated": gpus, "window_s": seconds, "joules": joules, "watts": joules / seconds,
        "joules_per_output_token": _each(joules, metrics.get("output_tok_s"), seconds),
        "joules_per_token": _each(joules, metrics.get("total_tok_s"), seconds), "invalid": problems(seen, gpus),
    }  # fmt: skip


def _each(joules: float, rate: float | None, seconds: float) -> float | None:
    return joules / (rate * seconds) if rate else None


def problems(seen: Sequence[Sampled], gpus: int) -> list[str]:
    """Why the joules do not count; empty where they do."""
    apart = max((_apart(one) for one in seen), default=0.0)
    gap = max((one.gap_s for one in seen), default=0.0)
    found = {
        f"{len(seen)} of {gpus} GPUs were recorded": len(seen) < gpus,
        "a GPU tells neither energy nor power": any(one.joules is None for one in seen),
        f"there was no sample for {gap:.1f} s": gap > GAP_S,
        "a counter went back": any(one.went_back for one in seen),
        f"power that was added up and the counter differ by {apart:.0%}": apart > APART,
        "others were on the same GPUs": any(one.is_shared for one in seen),
    }
    return [sentence for sentence, is_so in found.items() if is_so]


def _apart(one: Sampled) -> float:
    return abs(one.by_power - one.joules) / one.joules if one.joules and one.by_power is not None else 0.0


def check(energy: Mapping[str, Any] | None) -> Check:
    """Rule V20. It speaks of the joules alone: the times that were measured are not worse for it."""
    if energy is None:
        return Check("V20", NOT_ASKED, "energy is not measured")
    if energy["invalid"]:
        return Check("V20", NOT_ASKED, f"the joules do not count: {'; '.join(energy['invalid'])}")
    return Check("V20", OK)
