"""Mean and percentiles of values that each stand for some time. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from remuda.profile.columns import Floats, Ints

_SHARES: Final = (0.5, 0.95)


class Stat(NamedTuple):
    """What became of a value over time; percentiles are values that were seen."""

    mean: float
    p50: float
    p95: float
    max: float


def counts(steps: Floats) -> Ints:
    """How often each sample counts in a percentile: steps in units of the usual one, at least once."""
    usual = float(np.median(steps)) if len(steps) else 1.0
    return np.maximum(1, np.rint(steps / (usual or 1.0))).astype(np.int64)


def describe(values: Floats, steps: Floats, often: Ints) -> Stat | None:
    """Statistics over time.

    Args:
        values: NaN where missing.
        steps: seconds that each stands for.
        often: `counts` of the steps.

    Returns:
        None where nothing is known.
    """
    known = ~np.isnan(values)
    if not known.all():
        values, steps, often = values[known], steps[known], often[known]
    total = float(steps.sum())
    if not len(values) or total <= 0:
        return None
    seen = np.repeat(values, often) if often.max() > 1 else values
    places = [max(0, math.ceil(share * len(seen)) - 1) for share in _SHARES]
    parted = np.partition(seen, places)
    p50, p95 = (float(parted[place]) for place in places)
    return Stat(float((values * steps).sum()) / total, p50, p95, float(values.max()))
