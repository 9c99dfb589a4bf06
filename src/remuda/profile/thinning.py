"""Long series made short enough to be drawn: means over equal spans of time; gaps stay gaps. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from remuda.profile.columns import SECOND_US

if TYPE_CHECKING:
    from remuda.profile.columns import Floats, Ints, Track


def means(track: Track, values: Floats, begin_us: int, width_us: int, count: int) -> Floats:
    """Means over time of so many equal spans; NaN where nothing is known.

    Args:
        track: whose times and steps the values have.
        values: NaN where missing.
        begin_us: of the first span.
        width_us: of each.
        count: how many.
    """
    place = (track.times - begin_us) // width_us
    known = np.isfinite(values) & (place >= 0) & (place < count)
    steps = track.steps
    weights = np.bincount(place[known], steps[known], count)
    sums = np.bincount(place[known], values[known] * steps[known], count)
    found: Floats = np.divide(sums, weights, out=np.full(count, np.nan), where=weights > 0)
    if not len(track.times):
        return found
    empty = np.flatnonzero(weights == 0)  # A sample before it may still hold.
    starts = begin_us + empty * width_us
    at = np.searchsorted(track.times, starts, "right") - 1
    holds = (at >= 0) & (starts < track.times[np.maximum(at, 0)] + steps[np.maximum(at, 0)] * SECOND_US)
    found[empty[holds]] = values[at[holds]]
    return found


def thin(track: Track, values: Floats, most: int) -> tuple[Ints, Floats]:
    """All samples of a series where they are no more than `most`, else as many means; times in µs since the epoch."""
    times = track.times
    if len(times) <= most:
        return times, values
    begin = int(times[0])
    width = -(-(int(times[-1]) - begin + 1) // most)
    return begin + np.arange(most) * width, means(track, values, begin, width, most)
