"""Joules of a point, by tokens, and when they do not count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from remuda.bench.judging.energy import Sampled, check, energy_of
from remuda.bench.judging.verdict import NOT_ASKED, OK
from remuda.client.bench.energy import _one
from remuda.profile.columns import Track, no_looks
from remuda.wire.recording import Gpu

METRICS = {"window_s": 30.0, "output_tok_s": 100.0, "total_tok_s": 400.0}
GOOD = Sampled(9000.0, 9100.0, 0.2)


def test_joules_by_tokens() -> None:
    energy = energy_of([GOOD, replace(GOOD, joules=3000.0, by_power=None)], 2, METRICS)
    assert energy is not None
    assert (energy["joules"], energy["watts"], energy["invalid"]) == (12000.0, 400.0, [])
    assert (energy["joules_per_output_token"], energy["joules_per_token"]) == (4.0, 1.0)
    assert check(energy).state == OK


def test_what_is_not_measured_is_not_0() -> None:
    assert energy_of([], 2, METRICS) is None
    assert energy_of([GOOD], 1, {}) is None
    assert check(None).text == "energy is not measured"
    energy = energy_of([GOOD], 1, {"window_s": 30.0})
    assert energy is not None
    assert energy["joules_per_output_token"] is None


@pytest.mark.parametrize(("change", "gpus", "said"), [
    ({"gap_s": 3.1}, 1, "no sample for 3.1 s"),
    ({}, 2, "1 of 2 GPUs were recorded"),
    ({"went_back": True}, 1, "a counter went back"),
    ({"by_power": 9500.0}, 1, "differ by 6%"),
    ({"joules": None, "by_power": None}, 1, "neither energy nor power"),
    ({"is_shared": True}, 1, "others were on the same GPUs"),
])  # fmt: skip
def test_rule_v20(change: dict[str, Any], gpus: int, said: str) -> None:
    found = check(energy_of([replace(GOOD, **change)], gpus, METRICS))
    assert (found.state, said in found.text) == (NOT_ASKED, True), "the times of the point count all the same"


def test_a_track_that_ends_within_a_period_of_the_edges_stands_for_the_whole_window() -> None:
    times = np.arange(50_000, 10_000_000, 100_000, dtype=np.int64)
    values = {"energy": 1000 + (times - times[0]) * 3 // 10, "power": np.full(len(times), 300_000.0)}
    track = Track(Gpu(0, "GPU-1"), "n1", "", "b1", 0.1, times, values, no_looks())
    one = _one(track, False, 0, 10_000_000)
    assert one.joules == pytest.approx(3000, rel=1e-3)
    assert one.by_power == pytest.approx(3000, rel=1e-3)
    assert (one.gap_s, one.went_back) == (0.1, False)
