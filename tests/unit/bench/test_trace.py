"""Recorded arrivals: what is read, and what is no trace."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from remuda.base.errors import InputError
from remuda.bench.generator.trace import Trace, read_trace
from remuda.client.bench.benchmarks import located
from remuda.specs.benchmark import BenchmarkSpec

WHOLE = Trace((0.0, 0.5, 1.5), (8, 16, 24), (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        pytest.param(
            '{"timestamp": 1000, "input_length": 8, "output_length": 1, "hash_ids": [1]}\n\n'
            '{"timestamp": 1500, "input_length": 16, "output_length": 2}\n'
            '{"timestamp": 2500, "input_length": 24, "output_length": 3}\n',
            "ms", WHOLE, id="Mooncake",
        ),
        pytest.param("timestamp,input_length,output_length\n0,8,1\n0.5,16,2\n1.5,24,3\n", "s", WHOLE, id="CSV"),
        pytest.param("0,8,1\n500000,16,2\n1500000,24,3\n", "us", WHOLE, id="CSV without names"),
        pytest.param(
            "output_length, timestamp\n1,0\n2,500\n3,1500", "ms", Trace(WHOLE.times, (), (1, 2, 3)), id="order"
        ),
        pytest.param("timestamp\n7\n", "s", Trace((0.0,)), id="one"),
        pytest.param('{"timestamp": 0}\n{"timestamp": 0}', "s", Trace((0.0, 0.0)), id="at once"),
    ],
)  # fmt: skip
def test_a_trace_is_read(text: str, unit: str, expected: Trace) -> None:
    found = read_trace(text, "t", unit)
    assert found == expected
    assert Trace(*map(tuple, orjson.loads(orjson.dumps(found)).values())) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "t.jsonl: holds no request"),
        ('{"timestamp": 0}\n{"timestamp"', "t.jsonl:2: is not JSON: "),
        ('{"timestamp": 0}\n[1]', "t.jsonl:2: is not a JSON object"),
        ('{"at": 0}', "t.jsonl:1: `timestamp` is missing"),
        ('{"timestamp": true}', "t.jsonl:1: `timestamp` must be a number, not 'True'"),
        ('{"timestamp": "noon"}', "t.jsonl:1: `timestamp` must be a number, not 'noon'"),
        ('{"timestamp": 5}\n\n{"timestamp": 4}', "t.jsonl:3: `timestamp` 4 is before that of the line above"),
        ('{"timestamp": 5, "input_length": 0}', "t.jsonl:1: `input_length` must be a whole number of tokens, at least"),
        ("0,8\n1,x", "t.jsonl:2: `input_length` must be a number, not 'x'"),
        ("0,8\n1", "t.jsonl:2: `input_length` is missing, and other lines have it"),
        ("0\n1,8", "t.jsonl:2: `input_length` is not in the lines above"),
        ("time,tokens\n0,8", "t.jsonl:1: `timestamp` must be a number, not 'time'"),
        ("nan,8", "t.jsonl:1: `timestamp` must be a number, not 'nan'"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_one_sentence(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(text, "t.jsonl")
    assert str(caught.value).startswith(words)


def test_a_driver_elsewhere_finds_the_files() -> None:
    spec = BenchmarkSpec(endpoint=("http://h:1",), trace="t.csv", ca_file="/etc/ca.pem")
    found = located(spec)
    assert (found.trace, found.ca_file, found.prices) == (str(Path.cwd() / "t.csv"), "/etc/ca.pem", "")


def test_its_rate_its_beginning_and_its_name() -> None:
    assert WHOLE.rate == pytest.approx(2 / 1.5)
    assert math.isinf(Trace((0.0, 0.0)).rate)
    assert WHOLE.head(0, 0) == WHOLE
    assert WHOLE.head(2, 0) == WHOLE.head(0, 1.5) == Trace((0.0, 0.5), (8, 16), (1, 2))
    assert len({WHOLE.digest, WHOLE.head(2, 0).digest, Trace(WHOLE.times).digest}) == 3
