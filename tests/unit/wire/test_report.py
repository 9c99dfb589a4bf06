"""Lines that reporters send: reports and keys are read, everything else is counted as malformed and nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.report import MAX_LINE_BYTES, Key, Malformed, Report, parse_line

REPORT = Report(token="t", attempt=1, seq=4, at=12.5, state="ready", pid=7, http_status=200, metrics={"running": 2.0})
GOOD: dict[str, Any] = json.loads(REPORT.to_json())


def line(**change: Any) -> bytes:
    return json.dumps({**GOOD, **change}).encode() + b"\n"


def test_a_report_survives_the_wire() -> None:
    assert parse_line(line()) == REPORT
    assert parse_line(line(colour="of a newer version")) == REPORT


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"hello", id="no JSON"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[1,2]", id="no object"),
        pytest.param(b"[" * 60000, id="nested"),
        pytest.param(b'{"key": 3}', id="a key that is no text"),
        pytest.param(b'{"key": "\\ud800"}', id="a key that is no unicode"),
        pytest.param(line(state="happy"), id="unknown state"),
        pytest.param(line(state=["ready"]), id="state of another type"),
        pytest.param(line(seq="4"), id="number as text"),
        pytest.param(line(seq=True), id="truth for a number"),
        pytest.param(line(pid=2**70), id="a number that no database takes"),
        pytest.param(line(at=float("nan")), id="no time"),
        pytest.param(line(token=""), id="no token"),
        pytest.param(line(reason="\ud800"), id="half a character"),
        pytest.param(line(metrics=[1]), id="metrics that are no mapping"),
        pytest.param(line(metrics={"running": "2"}), id="metric as text"),
        pytest.param(line(metrics={"running": float("inf")}), id="infinite metric"),
        pytest.param(line(exit_code="0"), id="exit code as text"),
    ],
)
def test_malformed_lines(raw: bytes) -> None:
    found = parse_line(raw)
    assert isinstance(found, Malformed)
    assert found.reason


def test_oversized_lines_are_refused() -> None:
    assert isinstance(parse_line(line(reason="x" * MAX_LINE_BYTES)), Malformed)


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes) -> None:
    parse_line(raw)


@given(field=st.sampled_from(sorted(GOOD)), value=st.recursive(st.none() | st.booleans() | st.text(), st.lists))
def test_no_value_raises(field: str, value: object) -> None:
    parse_line(line(**{field: value}))


def test_the_key_is_compared_and_never_empty() -> None:
    key = parse_line(b'{"key": "secret"}\n')
    assert key == Key("secret")
    assert key.matches("secret")
    assert not key.matches("Secret")
    assert not Key("").matches("")
    assert not Key("ö").matches("o")
    assert parse_line(Key("a\nb").to_json().encode()) == Key("a\nb")
