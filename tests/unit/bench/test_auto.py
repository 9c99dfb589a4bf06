"""How much a point measures whose load says nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.bench.generator.load_workers import LoadProgress
from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.verdict import read_thresholds
from remuda.bench.load import Auto, Load, arrivals
from remuda.bench.perform import JudgingTerms, _enough, auto_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.mark.parametrize(
    ("said", "slo", "expected"),
    [
        pytest.param({}, {}, Auto(30.0, 10.0, 300), id="as rule V12 has it"),
        pytest.param({"V12.window": "2s", "V12.requests": 20, "V12.e2e": 3}, {}, Auto(2.0, 3.0, 20), id="loosened"),
        pytest.param({"V12.requests": 20}, {"ttft_p90": 1.0}, Auto(30.0, 10.0, 30), id="a p90 needs thirty"),
        pytest.param({"V12.requests": 1000}, {"ttft_p99": 1.0}, Auto(30.0, 10.0, 1000), id="stricter"),
        pytest.param({"V12.requests": 0}, {"ttft_mean": 1.0}, Auto(30.0, 10.0, 2), id="a mean needs two"),
    ],
)
def test_a_point_measures_what_its_terms_need(
    said: Mapping[str, object], slo: Mapping[str, float], expected: Auto
) -> None:  # fmt: skip
    assert auto_of(JudgingTerms(read_thresholds(said), slo)) == expected


def test_arrivals_of_an_open_loop_last_as_long_as_that_takes() -> None:
    load = Load(rate=8.0, arrival="constant")
    assert len(arrivals(load)) == 360
    assert len(arrivals(load, Auto(2.0, 10.0, 20))) == 24
    assert len(arrivals(load, Auto(2.0, 10.0, 100))) == 120
    assert len(arrivals(Load(rate=0.1, arrival="constant"))) == 30, "five minutes, whatever was measured"
    assert len(arrivals(Load(rate=float("inf")), Auto(requests=7))) == 7
    assert len(arrivals(Load(rate=10.0, requests=5), Auto(2.0, 10.0, 100))) == 5


def test_a_load_whose_ramp_has_not_ended_is_not_enough() -> None:
    """As many as are in flight end together: there is no window yet, and all of the load stands in for one."""
    load, second = Load(concurrency=16), 10**9
    rows = [RequestRow(n, sched=1 + n // 16 * 10 * second, ended=(1 + n // 16) * 10 * second) for n in range(32)]
    enough = _enough(load, Auto(5.0, 1.0, 30))
    assert not enough(LoadProgress(seconds=20.0, rows=rows))
    rows += [RequestRow(n, sched=1 + n // 16 * 10 * second, ended=(1 + n // 16) * 10 * second) for n in range(32, 96)]
    assert enough(LoadProgress(seconds=60.0, rows=rows))
