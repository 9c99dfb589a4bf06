"""Which load is tried next: tables, and what holds whatever the server answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.bench.judging.verdict import NAMES, Check
from remuda.bench.load import Auto, Load
from remuda.bench.point import Point
from remuda.bench.search import (
    RESOLUTION,
    Bounds,
    Largest,
    LoadResult,
    SearchEnd,
    Try,
    answer_of,
    drive,
    longer,
    points_for,
    search,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MET, MISSED, UNKNOWN, INVALID = LoadResult.MET, LoadResult.MISSED, LoadResult.UNKNOWN, LoadResult.INVALID
WHOLE = Bounds(1, 4096)


def run(
    bounds: Bounds, answer: Callable[[Try], LoadResult], known: Mapping[float, LoadResult] | None = None
) -> tuple[Largest, list[Try]]:
    tried: list[Try] = []

    def reply(ask: Try) -> LoadResult:
        tried.append(ask)
        assert len(tried) < 100
        return answer(ask)

    return drive(search(bounds, known), reply), tried


def knee(at: float) -> Callable[[Try], LoadResult]:
    return lambda ask: MET if ask.load <= at else MISSED


def test_a_knee_is_found_by_doubling_and_halving() -> None:
    found, tried = run(WHOLE, knee(37))
    assert [ask.load for ask in tried] == [1, 2, 4, 8, 16, 32, 64, 48, 40, 36, 38, 37]
    assert found == Largest(SearchEnd.FOUND, met=37, missed=38)
    assert points_for(WHOLE, 37) == len(tried) <= 14


@given(at=st.integers(1, 4095), low=st.integers(1, 64), high=st.integers(64, 4096))
def test_whole_loads_are_found_exactly(at: int, low: int, high: int) -> None:
    found, tried = run(Bounds(low, high), knee(at))
    if at < low:
        assert found == Largest(SearchEnd.NONE_MET, missed=low)
    elif at >= high:
        assert found == Largest(SearchEnd.ALL_MET, met=high)
    else:
        assert found == Largest(SearchEnd.FOUND, met=at, missed=at + 1)
    assert len(tried) <= math.log2(high / low) + math.log2(high) + 2
    assert len({ask.load for ask in tried}) == len(tried)
    assert all(low <= ask.load <= high for ask in tried)


@given(at=st.floats(0.5, 1000.0), low=st.floats(0.1, 0.5))
def test_rates_are_found_within_the_resolution(at: float, low: float) -> None:
    found, tried = run(Bounds(low, 2000.0, is_whole=False), knee(at))
    assert found.met is not None
    assert found.missed is not None
    assert found.met <= at < found.missed <= found.met * (1 + RESOLUTION)
    assert len(tried) <= math.log2(at / low) + 9


def answers_of(*said: LoadResult) -> Callable[[Try], LoadResult]:
    left = iter(said)
    return lambda _: next(left)


@pytest.mark.parametrize(
    ("said", "asked", "found"),
    [
        pytest.param((MISSED,), [Try(1)], Largest(SearchEnd.NONE_MET, missed=1), id="not even the smallest"),
        pytest.param((MET, MET, MET), [Try(1), Try(2), Try(4)], Largest(SearchEnd.ALL_MET, met=4), id="all"),
        pytest.param(
            (MET, UNKNOWN, MET, MISSED, MISSED),
            [Try(1), Try(2), Try(2, is_again=True, wants_more=True), Try(4), Try(3)],
            Largest(SearchEnd.FOUND, met=2, missed=3), id="too few samples once",
        ),
        pytest.param(
            (MET, UNKNOWN, UNKNOWN), [Try(1), Try(2), Try(2, is_again=True, wants_more=True)],
            Largest(SearchEnd.UNKNOWN, met=1, at=2), id="too few samples twice",
        ),
        pytest.param(
            (MET, INVALID, MISSED), [Try(1), Try(2), Try(2, is_again=True)],
            Largest(SearchEnd.FOUND, met=1, missed=2), id="invalid once",
        ),
        pytest.param(
            (MET, INVALID, INVALID), [Try(1), Try(2), Try(2, is_again=True)],
            Largest(SearchEnd.INVALID, met=1, at=2), id="invalid twice",
        ),
        pytest.param(
            (INVALID, UNKNOWN), [Try(1), Try(1, is_again=True)], Largest(SearchEnd.UNKNOWN, at=1), id="then too few",
        ),
    ],
)  # fmt: skip
def test_answers(said: Sequence[LoadResult], asked: list[Try], found: Largest) -> None:
    assert run(Bounds(1, 4), answers_of(*said)) == (found, asked)


@pytest.mark.parametrize(
    ("known", "said", "asked", "found"),
    [
        pytest.param(
            {8: MET}, (MET, MISSED, MET, MET), [Try(1), Try(2), Try(2, is_again=True), Try(4)],
            Largest(SearchEnd.ALL_MET, met=4), id="the smaller one was disturbed",
        ),
        pytest.param(
            {8: MET}, (MET, MISSED, MISSED), [Try(1), Try(2), Try(2, is_again=True)],
            Largest(SearchEnd.FOUND, met=1, missed=2, contradictions=((2, 8),)), id="the smaller one misses again",
        ),
        pytest.param(
            {8: MET}, (MET, MISSED, INVALID), [Try(1), Try(2), Try(2, is_again=True)],
            Largest(SearchEnd.INVALID, met=1, at=2), id="the smaller one has no answer the second time",
        ),
        pytest.param(
            {3: MISSED}, (MET, MET, MET, MET), [Try(1), Try(2), Try(4), Try(3, is_again=True)],
            Largest(SearchEnd.ALL_MET, met=4), id="one that was passed over was disturbed",
        ),
        pytest.param(
            {3: MISSED}, (MET, MET, MET, MISSED), [Try(1), Try(2), Try(4), Try(3, is_again=True)],
            Largest(SearchEnd.FOUND, met=2, missed=3, contradictions=((3, 4),)), id="one passed over misses again",
        ),
        pytest.param(
            {0.5: MISSED, 9: MISSED}, (MET, MET, MET), [Try(1), Try(2), Try(4)],
            Largest(SearchEnd.ALL_MET, met=4), id="no contradiction between the bounds",
        ),
    ],
)  # fmt: skip
def test_contradictions(
    known: dict[float, LoadResult], said: Sequence[LoadResult], asked: list[Try], found: Largest
) -> None:  # fmt: skip
    assert run(Bounds(1, 4), answers_of(*said), known) == (found, asked)


@given(
    data=st.data(),
    is_whole=st.booleans(),
    known=st.dictionaries(st.integers(1, 300), st.sampled_from([MET, MISSED]), max_size=8),
)
def test_whatever_is_answered_it_ends_and_the_answer_was_measured(
    data: st.DataObject, is_whole: bool, known: dict[float, LoadResult]
) -> None:
    last: dict[float, LoadResult] = dict(known)
    count: dict[float, int] = {}

    def reply(ask: Try) -> LoadResult:
        assert 1 <= ask.load <= 256
        count[ask.load] = count.get(ask.load, 0) + 1
        last[ask.load] = data.draw(st.sampled_from([MET, MISSED, MET, MISSED, UNKNOWN, INVALID]))
        return last[ask.load]

    found, _ = run(Bounds(1, 256, is_whole=is_whole), reply, known)
    assert max(count.values()) <= 3
    assert found.met is None or last[found.met] is MET
    assert found.missed is None or last[found.missed] is MISSED
    assert found.met is None or found.missed is None or found.met < found.missed
    if found.end in (SearchEnd.UNKNOWN, SearchEnd.INVALID):
        assert found.at is not None
        assert last[found.at] in (UNKNOWN, INVALID)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(0, 8), "--min: must be a positive number, but is 0"),
        (Bounds(8, 4), "--max: is 4, less than --min 8"),
        (Bounds(1.5, 8), "--min: must be a whole number of requests in flight, but is 1.5"),
        (Bounds(1, math.inf, is_whole=False), "--max: must be a positive number, but is inf"),
    ],
)
def test_bounds_that_cannot_be_searched(bounds: Bounds, words: str) -> None:
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        bounds.check()


def point(load: Load, p99: float | None, *broken: str) -> Point:
    return Point(
        id="0" * 64, repeat=1, source="remuda", endpoint="", model="m", engine="", load=load,
        checks=tuple(Check(code, "invalid" if code in broken else "ok") for code in NAMES),
        verdict="invalid" if broken else "valid", slo={"ttft_p99": 0.5}, metrics={"ttft": {"p99": p99}},
    )  # fmt: skip


CLOSED, OPEN = Load(concurrency=8), Load(rate=4.0, concurrency=0)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (point(CLOSED, 0.4), MET),
        (point(CLOSED, 0.6), MISSED),
        (point(CLOSED, None), UNKNOWN),
        (point(CLOSED, 0.6, "V6"), INVALID),
        # Arrivals that outrun the answers: no steady state, and a miss all the same.
        (point(OPEN, 0.6, "V11"), MISSED),
        (point(OPEN, 0.4, "V11"), INVALID),
        (point(OPEN, 0.6, "V8", "V11"), INVALID),
        (point(CLOSED, 0.6, "V11"), INVALID),
    ],
)
def test_what_a_point_answers(seen: Point, expected: LoadResult) -> None:
    assert answer_of(seen) is expected


@pytest.mark.parametrize(
    ("load", "requests", "duration_s"),
    [
        (CLOSED, 2 * 308, 0.0),
        (Load(concurrency=8, requests=100), 2 * 308, 0.0),
        (Load(concurrency=8, requests=1000), 2000, 0.0),
        (Load(concurrency=8, duration_s=5.0), 0, 10.0),
    ],
)
def test_the_second_try_has_more_requests(load: Load, requests: int, duration_s: float) -> None:
    more = longer(load, Auto())
    assert (more.requests, more.duration_s) == (requests, duration_s)
