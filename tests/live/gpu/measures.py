"""Numbers of two kinds of samples held against each other. Pure."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import comb
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Samples = list[tuple[float, float]]
"""(seconds on the monotonic clock, value), in the order of time."""


def at(samples: Samples, when: float) -> float:
    """The value at a time, between the samples before and after it; beyond the ends, the last one there."""
    place = bisect_right(samples, (when, float("inf")))
    if place in (0, len(samples)):
        return samples[min(place, len(samples) - 1)][1]
    (before, low), (after, high) = samples[place - 1], samples[place]
    return low + (high - low) * (when - before) / (after - before)


def mean(samples: Samples, begin: float, end: float) -> float:
    """The mean over time of what lies between the samples, by trapezoids."""
    inner = [(begin, at(samples, begin)), *(one for one in samples if begin < one[0] < end), (end, at(samples, end))]
    area = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(inner))
    return area / (end - begin)


def mean_of(samples: Samples, spans: Sequence[tuple[float, float]]) -> float:
    """The mean over several spans of time."""
    total = sum(end - begin for begin, end in spans)
    return sum(mean(samples, begin, end) * (end - begin) for begin, end in spans) / total


def off(found: float, wanted: float) -> float:
    """By how much one number differs from another, in % of that."""
    return 100 * (found - wanted) / wanted if wanted else 0.0


def spans(begin: float, half: float, count: int, lead: float) -> tuple[list[tuple[float, float]], ...]:
    """The high and the low halves of a square wave of `count` periods, without the first `lead` seconds of each."""
    both: tuple[list[tuple[float, float]], ...] = ([], [])
    for number in range(2 * count):
        start = begin + number * half
        both[number % 2].append((start + lead, start + half))
    return both


def median_interval(values: Sequence[float], sure: float = 0.95) -> tuple[float, float, float]:
    """The median, and the two values between which the true one lies at least so surely (by order statistics)."""
    ordered = sorted(values)
    count, inner = len(ordered), 0
    while inner + 1 < count / 2 and 1 - 2 * _below(count, inner + 1) >= sure:
        inner += 1
    return median(ordered), ordered[inner], ordered[count - 1 - inner]


def _below(count: int, place: int) -> float:
    """How likely at most `place` of so many values are below their true median."""
    return sum(comb(count, number) for number in range(place + 1)) / float(2**count)
