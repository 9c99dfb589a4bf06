"""Counters and what is made of them: they wrap, and begin anew when the driver is loaded. Pure.

Joules are differences of the energy counter, whatever happens between two samples. Only where a GPU has none, they are
the integral of its power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from remuda.profile.columns import MISSING, SECOND_US

if TYPE_CHECKING:
    from remuda.profile.columns import Floats, Ints, Track

_WRAP: Final = 1 << 32
#: No GPU uses more than that for long; it tells a wrap from a new beginning.
_MOST_W: Final = 2000.0
#: The driver renews its counter in steps of less than that.
_RENEWED_S: Final = 1.0

COUNTER, POWER, NOTHING = "counter", "power", ""
"""Where joules come from."""


class Energy(NamedTuple):
    """What a GPU used since its first sample.

    Attributes:
        joules: at each sample; all zero where nothing is known.
        source: `COUNTER`, `POWER` or `NOTHING`.
        restarts: how often the counter went back.
    """

    joules: Floats
    source: str
    restarts: int = 0


def rises(counter: Ints, most: Floats | None = None) -> tuple[Ints, int]:
    """What a counter without missing values rose by between two samples, and how often it went back.

    Where it went back it wrapped at 32 bits if that is not more than it can have risen by, else it began at zero.

    Args:
        counter: as the driver told it.
        most: for each step, what it can have risen by at most; None: nobody knows.

    Returns:
        A number a step, never negative.
    """
    steps = np.diff(counter)
    back = np.flatnonzero(steps < 0)
    for at in back:
        before, after = int(counter[at]), int(counter[at + 1])
        wrapped = _WRAP - before + after if before < _WRAP else -1
        limit = float(most[at]) if most is not None else _WRAP / 2
        # What a counter shows after it began anew can be no more than that either; else it was set to anything.
        steps[at] = wrapped if 0 <= wrapped <= limit else after if after <= limit else 0
    return steps, len(back)


def energy(track: Track) -> Energy:
    """Joules of a GPU up to each of its samples."""
    counter = track.counter("energy")
    if counter is not None and (known := np.flatnonzero(counter != MISSING)).size > 1:
        seconds = np.diff(track.times[known]) / SECOND_US
        most = 1000.0 * _most_watts(track) * (2 * seconds + _RENEWED_S)
        steps, restarts = rises(counter[known], most)
        total = np.concatenate([[0.0], np.cumsum(steps) / 1000.0])
        return Energy(np.interp(track.times, track.times[known], total), COUNTER, restarts)
    power = track.gauge("power")
    if power is None:
        return Energy(np.zeros(len(track.times)), NOTHING)
    return Energy(_integral(track, power / 1000.0), POWER)


def _most_watts(track: Track) -> float:
    seen = [track.gauge(name) for name in ("power", "power_limit")]
    return max([_MOST_W, *(float(np.nanmax(column)) / 1000.0 for column in seen if column is not None)])


def _integral(track: Track, watts: Floats) -> Floats:
    """Trapezoids from sample to sample; before a gap one period at the power of then; missing ones add nothing."""
    following = np.append(watts[1:], watts[-1:])
    step = np.append(np.diff(track.times) / SECOND_US, track.interval_s)
    is_gap = step > track.steps * 1.000001
    mean = np.where(is_gap | np.isnan(following), watts, (watts + following) / 2)
    used = np.nan_to_num(mean) * track.steps
    return np.concatenate([[0.0], np.cumsum(used[:-1])])


def rate(track: Track, name: str, factor: float = 1.0) -> Floats | None:
    """A counter as a rate a second: at each sample, up to the next one; NaN where it is not known, and in gaps.

    Args:
        track: of a GPU.
        name: of a counter.
        factor: what one of it is.
    """
    counter = track.counter(name)
    if counter is None or len(counter) < 2:
        return None
    steps, _ = rises(counter)
    seconds = np.diff(track.times) / SECOND_US
    known = (counter[1:] != MISSING) & (counter[:-1] != MISSING) & (seconds <= track.steps[:-1] * 1.000001)
    rates = np.full(len(counter), np.nan)
    rates[:-1][known] = steps[known] * factor / seconds[known]
    return rates


def rise(track: Track, name: str) -> int | None:
    """What a counter rose by from the first sample to the last; None where it is not known."""
    counter = track.counter(name)
    if counter is None:
        return None
    known = counter[counter != MISSING]
    return int(rises(known)[0].sum()) if len(known) > 1 else None


def limited_s(track: Track, name: str, bits: int) -> float | None:
    """Seconds with clocks lowered: by the driver's counter of ns, else by the bits that samples have."""
    counted = rise(track, name)
    if counted is not None:
        return counted / 1e9
    limits = track.counter("limits")
    if limits is None:
        return None
    return float(track.steps[(limits != MISSING) & (limits & bits != 0)].sum())
