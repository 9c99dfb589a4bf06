"""What a load is: lengths, arrivals, and what cannot be asked."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from remuda.base.errors import InputError
from remuda.bench.generator.trace import Trace
from remuda.bench.load import AUTO_LIMIT_S, Cache, Load, arrivals, check, of_trace
from remuda.specs.benchmark import BenchmarkSpec


@pytest.mark.parametrize(
    ("text", "kind", "share"), [("cold", "cold", 0.0), ("warm", "warm", 1.0), ("shared:0.3", "shared", 0.3)]
)
def test_a_cache_is_read_and_written(text: str, kind: str, share: float) -> None:
    assert Cache.parse(text) == Cache(kind, share)
    assert str(Cache.parse(text)) == text


@pytest.mark.parametrize("text", ["", "hot", "shared", "shared:", "shared:0", "shared:1", "shared:x", "cold:0.5"])
def test_what_is_no_cache(text: str) -> None:
    with pytest.raises(InputError, match="is not a cache state"):
        Cache.parse(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"timeout_s": 0.0}, "--timeout: must be positive, but is 0"),
        ({"arrival": "burst"}, "--arrival: 'burst' is not an arrival process"),
        ({"arrival": "poisson:3"}, "--arrival: 'poisson:3' is not an arrival process"),
        ({"burstiness": 2.0}, "--burstiness: is of poisson arrivals at a rate"),
        ({"burstiness": 2.0, "rate": 4.0, "arrival": "constant"}, "--burstiness: is of poisson arrivals at a rate"),
        ({"cache": "luke"}, "--cache: 'luke' is not a cache state"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        check(replace(Load(), **change))
    assert str(caught.value) == words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"isl": 0}, "greater than or equal to 1"),
        ({"osl": -1}, "greater than or equal to 1"),
        ({"range_ratio": 0.0}, "greater than 0"),
        ({"rate": math.nan}, "greater than 0"),
        ({"concurrency": 0}, "greater than or equal to 1"),
        ({"api": "embeddings"}, "'chat' or 'completions'"),
        ({"requests": 3, "duration": 2.0}, "said_at"),
        ({"requests": -1}, "greater than or equal to 0"),
        ({"burstiness": 0.0}, "greater than 0"),
    ],
)
def test_what_the_fields_of_a_benchmark_refuse(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        BenchmarkSpec.model_validate({"endpoint": ["http://h:1"], **said})


@given(
    rate=st.floats(0.5, 200), requests=st.integers(1, 300), arrival=st.sampled_from(["poisson", "constant", "burst:4"])
)
def test_arrivals_are_drawn_before_the_start(rate: float, requests: int, arrival: str) -> None:
    load = Load(rate=rate, requests=requests, arrival=arrival, concurrency=0, seed=7)
    times = arrivals(load)
    assert len(times) == requests
    assert times == sorted(times) == arrivals(load)
    assert times[0] == 0.0


@given(rate=st.floats(5, 500))
def test_a_rate_is_kept_in_the_mean(rate: float) -> None:
    for arrival in ("poisson", "constant", "burst:5"):
        times = arrivals(Load(rate=rate, requests=4000, arrival=arrival, concurrency=0))
        assert times[-1] == pytest.approx(4000 / rate, rel=0.15)


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_burstiness_is_the_shape_of_gaps(shape: float) -> None:
    """Of a gamma distribution, the squared variation of gaps is 1 / shape."""
    times = arrivals(Load(rate=10.0, requests=20_000, concurrency=0, burstiness=shape))
    gaps = [after - before for before, after in itertools.pairwise(times)]
    mean = statistics.fmean(gaps)
    assert mean == pytest.approx(0.1, rel=0.05)
    assert statistics.variance(gaps, mean) / mean**2 == pytest.approx(1 / shape, rel=0.1)


def test_a_trace_says_when_and_how_long() -> None:
    trace = Trace((0.0, 1.0, 4.0), (10, 20, 60), ())
    load = of_trace(Load(osl=5, duration_s=9.0), trace)
    check(load)
    assert (load.isl, load.osl, load.requests, load.duration_s, load.rate) == (30, 5, 3, 0.0, 0.5)
    assert load.arrival == f"trace:{trace.digest}"
    assert load.label == "trace 0.5/s c≤1"
    assert arrivals(load, trace=trace) == [0.0, 1.0, 4.0]
    assert [load.lengths(index, trace) for index in range(-1, 3)] == [(30, 5), (10, 5), (20, 5), (60, 5)]
    assert load.digest != of_trace(Load(osl=5), Trace((0.0, 1.0, 4.0), (10, 21, 59))).digest


def test_a_duration_bounds_arrivals_and_inf_is_all_at_once() -> None:
    assert max(arrivals(Load(rate=20, duration_s=3.0))) < 3.0
    assert set(arrivals(Load(rate=math.inf, requests=7))) == {0.0}
    assert max(arrivals(Load(rate=0.01))) <= AUTO_LIMIT_S


@given(ratio=st.floats(0.01, 1.0), index=st.integers(-50, 1000))
def test_lengths_stay_within_the_ratio(ratio: float, index: int) -> None:
    load = Load(isl=100, osl=40, range_ratio=ratio)
    isl, osl = load.lengths(index)
    assert math.ceil(100 * ratio) <= isl <= 100
    assert math.ceil(40 * ratio) <= osl <= 40
    assert (isl, osl) == load.lengths(index)


@pytest.mark.parametrize("load", [Load(), Load(rate=math.inf, concurrency=3, extra_body='{"a":1}'), Load(rate=2.5)])
def test_json_gives_the_same_load_back(load: Load) -> None:
    assert Load.from_json(orjson.loads(orjson.dumps(load.to_json()))) == load


@pytest.mark.parametrize(
    ("load", "label"),
    [(Load(concurrency=8), "c=8"), (Load(rate=2.5, concurrency=0), "2.5/s"),
     (Load(rate=math.inf, concurrency=4), "inf c≤4")],
)  # fmt: skip
def test_labels(load: Load, label: str) -> None:
    assert load.label == label
