"""Lines that reporters send: reports and keys are read, everything else is counted as malformed and nothing raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.wire.report import MAX_GPUS, MAX_LINE_BYTES, Key, MalformedLine, Report, key_for, parse_line

REPORT = Report(
    token="t",
    attempt=1,
    seq=4,
    at=12.5,
    state="ready",
    pid=7,
    http_status=200,
    metrics={"running": 2.0},
    ports={"bootstrap": 8998},
)
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
        pytest.param(b'{"key": "k"}', id="a key for nothing"),
        pytest.param(b'{"key": 3, "token": "t"}', id="a key that is no text"),
        pytest.param(b'{"key": "\\ud800", "token": "t"}', id="a key that is no unicode"),
        pytest.param(b'{"key": "k", "token": ["t"]}', id="a token that is no text"),
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
        pytest.param(line(faults={"kind": "node"}), id="faults that are no list"),
        pytest.param(line(faults=[{"kind": "unheard of", "name": "x"}]), id="a fault of no kind"),
        pytest.param(line(faults=[{"kind": "node", "name": 3}]), id="a fault without a name"),
        pytest.param(line(gpus=[3]), id="a GPU that is a number"),
        pytest.param(line(gpus=[{"busy": [1]}]), id="a figure that is a list"),
        pytest.param(line(gpus=[{"index": 0, "uuid": "GPU-a", "busy": "12"}]), id="a figure that is text"),
        pytest.param(line(gpus=[{"index": 0, "uuid": 7}]), id="a name that is a number"),
        pytest.param(line(exit_code="0"), id="exit code as text"),
        pytest.param(line(ports={"bootstrap": "8998"}), id="port as text"),
        pytest.param(line(ports=[8998]), id="ports without names"),
    ],
)
def test_malformed_lines(raw: bytes) -> None:
    found = parse_line(raw)
    assert isinstance(found, MalformedLine)
    assert found.reason


def test_what_a_recorder_saw_travels_along_and_is_bounded() -> None:
    fault = {"kind": "node", "name": "xid-79", "line": "", "device": "0000:3b:00", "at": 1.0}
    gpu = {"index": 0, "uuid": "GPU-a", "busy": 99, "power": None}
    many = [{**fault, "name": f"xid-{number}"} for number in range(30)]
    found = parse_line(line(recording="recording", gpus=[gpu] * 100, faults=many))
    assert isinstance(found, Report)
    assert (found.recording, found.gpus, len(found.faults)) == ("recording", [gpu] * MAX_GPUS, 20)
    assert found.faults[-1]["name"] == "xid-29"
    assert (REPORT.recording, REPORT.gpus, REPORT.faults) == ("", [], [])


def test_oversized_lines_are_refused() -> None:
    assert isinstance(parse_line(line(reason="x" * MAX_LINE_BYTES)), MalformedLine)


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes) -> None:
    parse_line(raw)


@given(field=st.sampled_from(sorted(GOOD)), value=st.recursive(st.none() | st.booleans() | st.text(), st.lists))
def test_no_value_raises(field: str, value: object) -> None:
    parse_line(line(**{field: value}))


def test_a_key_is_good_for_its_own_allocation_only() -> None:
    mine, other = key_for("secret", "w.replica.0.1.u1"), key_for("secret", "w.replica.1.1.u1")
    assert mine != other
    assert parse_line(Key(mine, "w.replica.0.1.u1").to_json().encode()) == Key(mine, "w.replica.0.1.u1")
    assert Key(mine, "w.replica.0.1.u1").matches("secret")
    assert not Key(mine, "w.replica.1.1.u1").matches("secret")
    assert not Key(mine, "w.replica.0.1.u1").matches("another secret")
    assert not Key("secret", "w.replica.0.1.u1").matches("secret")
    assert not Key("ö", "w.replica.0.1.u1").matches("secret")


def test_nothing_empty_is_a_key() -> None:
    assert not Key(key_for("", "w"), "w").matches("")
    assert not Key(key_for("secret", ""), "").matches("secret")
    assert not Key("", "w").matches("secret")
