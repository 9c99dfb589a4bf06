"""The largest load that still keeps an SLO: which one to try next. Pure: it asks for answers and measures nothing.

Loads are doubled until one misses, then the gap between the largest that met and the smallest that missed is halved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.bench.judging.verdict import INVALID

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from remuda.bench.load import Auto, Load
    from remuda.bench.point import Point

#: A rate is found when what misses is at most this much larger than what meets.
RESOLUTION: Final = 0.03
#: Digits that rates are rounded to: far finer than `RESOLUTION`, and short enough to be read.
_DIGITS: Final = 4


class LoadResult(StrEnum):
    """What a point says of its load."""

    MET = "met"
    MISSED = "missed"
    UNKNOWN = "unknown"
    """A percentile of the SLO has too few samples."""
    INVALID = "invalid"
    """The point does not count, so it says nothing."""


_SILENT: Final = frozenset({LoadResult.UNKNOWN, LoadResult.INVALID})


class SearchEnd(StrEnum):
    """How a search ended."""

    FOUND = "found"
    ALL_MET = "all met"
    NONE_MET = "none met"
    UNKNOWN = "unknown"
    INVALID = "invalid"


@dataclass(frozen=True)
class Bounds:
    """Between which loads the answer is looked for.

    Attributes:
        low: the first that is tried.
        high: none larger is tried.
        is_whole: loads are whole numbers (concurrency), else rates.
    """

    low: float = 1
    high: float = 4096
    is_whole: bool = True

    def check(self) -> None:
        """Refuse what cannot be searched.

        Raises:
            InputError: names the flag.
        """
        for flag, value in (("--min", self.low), ("--max", self.high)):
            if not math.isfinite(value) or value <= 0:
                raise InputError(f"must be a positive number, but is {value:g}", where=flag)
            if self.is_whole and value != int(value):
                raise InputError(f"must be a whole number of requests in flight, but is {value:g}", where=flag)
        if self.high < self.low:
            raise InputError(f"is {self.high:g}, less than --min {self.low:g}", where="--max")

    def doubled(self, load: float) -> float:
        """The next larger one to try."""
        return min(self.high, load * 2)

    def between(self, met: float, missed: float) -> float | None:
        """One in the middle; None where they are near enough."""
        if self.is_whole:
            return (met + missed) // 2 if missed - met > 1 else None
        if missed <= met * (1 + RESOLUTION):
            return None
        middle = math.sqrt(met * missed)
        return float(f"{middle:.{_DIGITS}g}")


@dataclass(frozen=True)
class Try:
    """The load to measure next.

    Attributes:
        load: concurrency, or rate.
        is_again: what came of it was no answer, or contradicts another one: a stored point will not do.
        wants_more: there were too few samples: measure more requests.
    """

    load: float
    is_again: bool = False
    wants_more: bool = False


@dataclass(frozen=True)
class Largest:
    """What came of a search.

    Attributes:
        end: how it ended.
        met: the largest load that met the SLO with none below it that missed; None where none did.
        missed: the smallest that missed; None where none did.
        at: the load without an answer, where that ended the search.
        contradictions: (smaller, larger): the smaller missed, also when it was measured once more, and the larger met.
    """

    end: SearchEnd
    met: float | None = None
    missed: float | None = None
    at: float | None = None
    contradictions: tuple[tuple[float, float], ...] = ()


class _Silent(Exception):
    """A load has no answer."""

    def __init__(self, load: float, answer: LoadResult) -> None:
        super().__init__(load, answer)
        self.load = load
        self.end = SearchEnd.INVALID if answer is LoadResult.INVALID else SearchEnd.UNKNOWN


class _Search:
    """One search: what is known, and which contradictions stayed."""

    def __init__(self, bounds: Bounds, known: Mapping[float, LoadResult]) -> None:
        self.bounds = bounds
        self.seen = dict(known)
        self.met: float | None = None
        self.missed: float | None = None
        self.contradictions: list[tuple[float, float]] = []

    def found(self, end: SearchEnd, at: float | None = None) -> Largest:
        return Largest(end, self.met, self.missed, at, tuple(self.contradictions))

    def next(self, last: float) -> float | None:
        """Which load is tried after that one; None at the end."""
        if self.missed is None:
            return self.bounds.doubled(last) if last < self.bounds.high else None
        return None if self.met is None else self.bounds.between(self.met, self.missed)

    def settle(self, load: float) -> Generator[Try, LoadResult, None]:
        """Try a load, and what contradicts it.

        Raises:
            _Silent: one of them has no answer.
        """
        answer = yield Try(load)
        if answer in _SILENT:
            answer = yield Try(load, is_again=True, wants_more=answer is LoadResult.UNKNOWN)
        self._note(load, answer)
        if answer is LoadResult.MISSED:
            larger = [other for other, said in self.seen.items() if other > load and said is LoadResult.MET]
            missed = not larger or (yield from self._missed_again(load, min(larger)))
            self.met, self.missed = (self.met, load) if missed else (load, self.missed)
            return
        smaller = sorted(
            other for other, said in self.seen.items()
            if (self.met or self.bounds.low) < other < load and said is LoadResult.MISSED
        )  # fmt: skip
        for other in smaller:
            if (yield from self._missed_again(other, load)):
                self.missed = other
                return
            self.met = other
        self.met = load

    def _missed_again(self, smaller: float, larger: float) -> Generator[Try, LoadResult, bool]:
        """Whether a load misses also the second time.

        More load cannot be easier, so one of the two answers is wrong: most likely the smaller one was disturbed.
        """
        answer = yield Try(smaller, is_again=True)
        self._note(smaller, answer)
        if answer is LoadResult.MISSED:
            self.contradictions.append((smaller, larger))
        return answer is LoadResult.MISSED

    def _note(self, load: float, answer: LoadResult) -> None:
        if answer in _SILENT:
            raise _Silent(load, answer)
        self.seen[load] = answer


def search(bounds: Bounds, known: Mapping[float, LoadResult] | None = None) -> Generator[Try, LoadResult, Largest]:
    """Yield loads to try, and take the answer of each.

    Args:
        bounds: see there.
        known: answers of loads that were measured before, under the same rules. They show contradictions; no load is
            left out because of them.

    Returns:
        What was found, after about log2(answer / low) + log2(answer) answers.
    """
    state = _Search(bounds, known or {})
    load: float | None = bounds.low
    try:
        while load is not None:
            yield from state.settle(load)
            load = state.next(load)
    except _Silent as silent:
        return state.found(silent.end, silent.load)
    if state.met is None:
        return state.found(SearchEnd.NONE_MET)
    return state.found(SearchEnd.ALL_MET if state.missed is None else SearchEnd.FOUND)


def drive(asking: Generator[Try, LoadResult, Largest], answer: Callable[[Try], LoadResult]) -> Largest:
    """Run a search to its end."""
    try:
        ask = next(asking)
        while True:
            ask = asking.send(answer(ask))
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def points_for(bounds: Bounds, answer: float) -> int:
    """How many points a search takes that has this answer."""
    count = 0

    def reply(ask: Try) -> LoadResult:
        nonlocal count
        count += 1
        return LoadResult.MET if ask.load <= answer else LoadResult.MISSED

    drive(search(bounds), reply)
    return count


def answer_of(point: Point) -> LoadResult:
    """What a point says of its load."""
    met = point.slo_met()
    if point.verdict == INVALID:
        # Arrivals that are faster than the answers never become steady: such a point is no number, but it is a miss.
        broken = {check.code for check in point.checks if check.state == INVALID}
        is_overload = point.load.is_open and broken == {"V11"} and met is False
        return LoadResult.MISSED if is_overload else LoadResult.INVALID
    return LoadResult.UNKNOWN if met is None else LoadResult.MET if met else LoadResult.MISSED


def longer(load: Load, auto: Auto) -> Load:
    """The same load with more requests, for a percentile that had too few samples."""
    if load.duration_s:
        return replace(load, duration_s=2 * load.duration_s)
    return replace(load, requests=2 * max(load.requests, auto.requests + load.concurrency))
