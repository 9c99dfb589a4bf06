"""From rows to numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bench.samples import EACH, FIRST, LOAD, MS, OPEN, TOKENS, arriving, closed, row_of

from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.measures import (
    Window,
    delivered,
    e2e,
    gaps,
    in_flight,
    intervals,
    is_measured,
    measure,
    meets,
    rank,
    spread,
    tok_s_user,
    tpot,
    ttft,
    window_of,
)  # fmt: skip

LONG = EACH * (TOKENS - 1)


def test_one_request() -> None:
    row = row_of(0, 1000 * MS, late=3)
    assert ttft(row) == pytest.approx((FIRST + 3) / 1e3)
    assert tpot(row) == pytest.approx(EACH / 1e3)
    assert e2e(row) == pytest.approx((FIRST + 3 + LONG) / 1e3)
    assert tok_s_user(row) == pytest.approx(TOKENS * 1e3 / (FIRST + 3 + LONG))
    assert gaps(row) == pytest.approx([EACH / 1e3] * (TOKENS - 1))


def test_tokens_that_come_together_count_as_so_many() -> None:
    row = row_of(0, 1000 * MS, n_out=4)
    row.n_out = 16
    assert row.n_first == 4
    assert tpot(row) == pytest.approx(3 * EACH / 1e3 / 12)


@pytest.mark.parametrize(
    "row", [row_of(0, MS, n_out=1), row_of(0, MS, n_out=0), RequestRow(0, sched=1, sent=1, ended=9, n_out=3)]
)
def test_what_cannot_be_known_is_none(row: RequestRow) -> None:
    assert tpot(row) is None


def test_the_window_of_a_closed_loop_begins_when_as_many_as_are_in_flight_have_ended() -> None:
    rows = closed(40)
    window = window_of(rows, LOAD)
    assert window.start == sorted(row.ended for row in rows)[LOAD.concurrency - 1]
    assert window.end == max(row.sched for row in rows)
    assert in_flight(rows, window) == pytest.approx(LOAD.concurrency, rel=0.02)


def test_the_window_of_an_open_loop_begins_after_twice_the_median() -> None:
    rows = arriving(100)
    window = window_of(rows, OPEN)
    took = sorted(row.ended - row.sched for row in rows)[50]
    assert (window.start, window.end) == (rows[0].sched + 2 * took, rows[-1].sched)


def test_a_short_load_is_all_window() -> None:
    window = window_of(closed(4), LOAD)
    assert not window.is_steady
    assert window_of([], LOAD).seconds == 0


def test_goodput_counts_errors_as_missed() -> None:
    rows = closed(80)
    bad = [replace(row, error="HTTP 500: no") if n % 4 == 0 else row for n, row in enumerate(rows)]
    _, found = measure(bad, LOAD, {"ttft": 0.1})
    assert found["goodput_share"] == pytest.approx(0.75, abs=0.03)
    assert measure(rows, LOAD, {"ttft": 0.001})[1]["goodput_share"] == 0


def test_bounds() -> None:
    row = row_of(0, MS)
    assert meets(row, {"ttft": 0.051, "tpot": 0.0051, "e2e": 1.0})
    assert not meets(row, {"tpot": 0.0049})
    assert meets(row_of(0, MS, n_out=1), {"tpot": 0.001})
    assert not meets(replace(row, error="no"), {})


def test_percentiles_need_samples() -> None:
    assert spread([1.0] * 9)["p50"] is None
    found = spread([float(n) for n in range(1, 301)])
    assert (found["p50"], found["p99"], found["max"]) == (150, 297, 300)
    assert rank([1.0, 2.0, 3.0], 0.99) == 3.0


def test_intervals_hold_the_mean() -> None:
    samples = [(n * MS, float(n % 10)) for n in range(400)]
    low, high = intervals(samples, 10 * MS)["mean"]
    assert low <= 4.5 <= high
    assert intervals(samples[:3], 10 * MS) == {}


ROWS = st.lists(
    st.builds(
        row_of, st.integers(0, 9), st.integers(0, 2000).map(lambda ms: 1000 * MS + ms * MS),
        first=st.integers(1, 500), late=st.integers(0, 50), n_out=st.integers(0, 20),
    ),
    max_size=12,
)  # fmt: skip
MOMENTS = st.integers(0, 4000).map(lambda ms: 900 * MS + ms * MS + MS // 3)


@given(ROWS, st.lists(MOMENTS, min_size=3, max_size=3).map(sorted))
def test_two_windows_hold_what_one_holds(rows: list[RequestRow], at: list[int]) -> None:
    start, middle, end = at
    both, left, right = Window(start, end), Window(start, middle), Window(middle, end)
    assert delivered(rows, left) + delivered(rows, right) == pytest.approx(delivered(rows, both))
    busy = sum(in_flight(rows, part) * part.seconds for part in (left, right))
    assert busy == pytest.approx(in_flight(rows, both) * both.seconds, abs=1e-6)
    assert 0 <= in_flight(rows, both) <= len(rows)


@given(ROWS)
def test_all_time_holds_all(rows: list[RequestRow]) -> None:
    always = Window(0, 1 << 60)
    assert delivered(rows, always) == sum(row.n_out for row in rows)
    assert all(is_measured(row, always) for row in rows)


@given(ROWS, st.sampled_from([LOAD, OPEN]))
def test_a_window_lies_within_its_load(rows: list[RequestRow], load: object) -> None:
    window = window_of(rows, load)  # type: ignore[arg-type]
    if rows:
        assert min(row.sched for row in rows) <= window.start <= window.end <= max(row.ended for row in rows)
        assert not window.is_steady or sum(is_measured(row, window) for row in rows) >= 2


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=400), st.floats(0.01, 1))
def test_a_percentile_is_a_sample_with_that_share_below(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = rank(ordered, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
