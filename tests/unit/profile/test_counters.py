from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.profile.invented import track

from remuda.profile.counters import COUNTER, NOTHING, POWER, energy, limited_s, rate, rise, rises
from remuda.wire.recording import LIMITS_HEAT

WRAP = 1 << 32


@pytest.mark.parametrize(
    ("counter", "expected", "restarts"),
    [
        pytest.param([5, 7, 7, 20], [2, 0, 13], 0, id="it rises"),
        pytest.param([WRAP - 10, 5], [15], 1, id="it wrapped at 32 bits"),
        pytest.param([10**12, 40, 90], [40, 50], 1, id="it began anew at zero"),
        pytest.param([10**12, 10**12 - 5, 10**12], [0, 5], 1, id="it was set back to anything"),
    ],
)
def test_what_a_counter_rose_by(counter: list[int], expected: list[int], restarts: int) -> None:
    steps, back = rises(np.array(counter))
    assert steps.tolist() == expected
    assert back == restarts


@pytest.mark.parametrize(
    ("mj", "joules", "restarts"),
    [
        pytest.param([1000, 301_000, 601_000], 600.0, 0, id="300 W"),
        pytest.param([1000, None, 601_000], 600.0, 0, id="not told once"),
        pytest.param([WRAP - 100_000, 200_000, 500_000], 600.0, 1, id="a wrap"),
        pytest.param([9 * 10**12, 250_000, 550_000], 550.0, 1, id="the driver was loaded again"),
        pytest.param([4 * 10**9, 250_000, 550_000], 550.0, 1, id="too far from 32 bits for a wrap"),
    ],
)
def test_joules_by_the_counter(mj: list[int | None], joules: float, restarts: int) -> None:
    found = energy(track({"energy": mj, "power": [300_000] * 3}))
    assert found.joules[-1] == pytest.approx(joules)
    assert (found.source, found.restarts) == (COUNTER, restarts)


def test_joules_by_power_where_there_is_no_counter() -> None:
    found = energy(track({"energy": [None] * 3, "power": [100_000, 300_000, 100_000]}))
    assert found.source == POWER
    assert found.joules.tolist() == [0.0, 200.0, 400.0]


def test_power_adds_one_period_before_a_gap_and_nothing_in_it() -> None:
    found = energy(track({"power": [100_000, 100_000, 100_000]}, [0, 1, 500]))
    assert found.joules.tolist() == [0.0, 100.0, 200.0]


def test_nothing_known_is_nothing() -> None:
    found = energy(track({"busy": [1, 2]}))
    assert found.source == NOTHING
    assert found.joules.tolist() == [0.0, 0.0]


def used(at: float, begin: float, end: float, period: float) -> float:
    """Joules of 300 W for the first half of each period, between two times."""

    def whole(when: float) -> float:
        inside = min(max(when, begin), end) - begin
        full, rest = divmod(inside, period)
        return 300.0 * (full * period / 2 + min(rest, period / 2))

    return whole(at)


@settings(max_examples=40)
@given(
    period=st.floats(0.03, 7.0), begin=st.floats(0.02, 1.5), length=st.floats(5.0, 30.0), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_square_wave_is_counted_to_a_thousandth_wherever_it_begins(
    period: float, begin: float, length: float, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    end = begin + length
    times = np.arange(0.0, end + 1.0, 0.1) + chance.uniform(0, 0.02, len(np.arange(0.0, end + 1.0, 0.1)))
    counter = [10**9 + math.floor(1000 * used(at, begin, end, period)) for at in times]
    found = energy(track({"energy": counter}, times.tolist(), interval_s=0.1))
    assert found.joules[-1] == pytest.approx(used(end, begin, end, period), rel=1e-3)


def test_a_rate_is_up_to_the_next_sample_and_not_known_in_a_gap() -> None:
    found = rate(track({"pcie_sent": [0, 100, 300, 900, 1000]}, [0, 1, 2, 60, 61]), "pcie_sent")
    assert found is not None
    assert found.tolist()[:2] == [100.0, 200.0]
    assert [math.isnan(value) for value in found] == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        pytest.param({"heat_limited": [5 * 10**9, 6 * 10**9, 7 * 10**9]}, 2.0, id="the driver counts"),
        pytest.param({"limits": [0x20, 0, 0x40]}, 2.0, id="samples tell"),
        pytest.param({"limits": [0x4, 0, 0x4]}, 0.0, id="by something else"),
        pytest.param({"busy": [1, 2, 3]}, None, id="nobody tells"),
    ],
)
def test_time_with_lowered_clocks(values: dict[str, list[float | None]], seconds: float | None) -> None:
    assert limited_s(track(values), "heat_limited", LIMITS_HEAT) == seconds


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.integers(0, 19))
def test_a_counter_that_began_anew_keeps_what_it_counted_before_and_after(steps: list[int], at: int) -> None:
    counter = [0, *itertools.accumulate(steps)]
    at = min(at, len(counter) - 1)
    base = counter[at]
    restarted = [value + 10**13 for value in counter[: at + 1]] + [value - base for value in counter[at + 1 :]]
    assert rise(track({"energy": restarted}), "energy") == sum(steps)
