"""What servers send, made into what can be stored: as tables and properties."""

from __future__ import annotations

import json
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.batch.pipeline.lenient import MOST_TOKENS, clean, count, excerpt, numbers, parse, settled, word

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", "a\udfffb"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(ANY)
def test_whatever_python_writes_is_read_and_can_be_stored(value: Any) -> None:
    orjson.dumps(parse(json.dumps(value).encode()))


@given(st.binary())
def test_bytes_of_any_kind_are_a_value_or_no_json(body: bytes) -> None:
    try:
        value = parse(body)
    except ValueError:
        return
    orjson.dumps(value)


@given(st.text(), st.binary(min_size=1, max_size=3))
def test_text_that_is_no_utf8_keeps_what_is(text: str, noise: bytes) -> None:
    body = b'{"a": ' + orjson.dumps(text) + b', "b": "' + noise.replace(b'"', b"").replace(b"\\", b"") + b'"}'
    assert parse(body)["a"] == text


@pytest.mark.parametrize("depth", [201, 1000, 1025, 100_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_what_nests_deeply_is_null_and_the_rest_is_kept(depth: int, pair: str) -> None:
    begin = "[" if pair == "[]" else '{"a[": '
    deep = begin * depth + "1" + pair[1] * depth
    found = parse(f'{{"before": "[[", "deep": {deep}, "bad": NaN, "after": [1, 2]}}'.encode())
    assert (found["before"], found["bad"], found["after"]) == ("[[", None, [1, 2])


@pytest.mark.parametrize("body", [b"", b"<html>", b"{", b'{"a": }', b"[" * 100_000])
def test_no_json_at_all(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of either parser
        parse(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"choices":[{"message":{"content":"' + rb"\"" * 30_000, id="cut off between quotes"),
        pytest.param(b'{"a":"' + rb"\\" * 30_000 + b"\\", id="cut off behind a backslash"),
        pytest.param(b'"' * 60_001, id="quotes only"),
        pytest.param(b'{"a": NaN, "b": "' + rb"\"" * 30_000 + b'"}', id="closed"),
    ],
)
def test_reading_takes_no_longer_than_the_body_is_long(body: bytes) -> None:
    began = time.process_time()
    with suppress(ValueError):
        parse(body)
    assert time.process_time() - began < 1


def test_a_long_text_in_a_flawed_body_costs_no_more_than_its_copies() -> None:
    body = b'{"bad": NaN, "text": "' + b"a" * (1 << 20) + b'"}'
    tracemalloc.start()
    try:
        assert len(parse(body)["text"]) == 1 << 20
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@given(ANY)
def test_counts_fit_into_sums_of_all_rows(value: Any) -> None:
    assert 0 <= count(value) <= MOST_TOKENS
    assert type(count(value)) is int
    assert isinstance(word(value), str)
    assert isinstance(excerpt(value), str)


@given(st.text(alphabet=st.characters()))
def test_text_that_can_be_stored_is_left_alone(text: str) -> None:
    assert clean({text: [text, (text,)]}) == {text: [text, [text]]}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ([0.5, -1.0], [0.5, -1.0]),
        ([1, None, 2.5], [1.0, None, 2.5]),
        ([[1, 2], [3.0]], [[1.0, 2.0], [3.0]]),
        ([], None),
        ([True], None),
        (["0.5"], None),
        ([[]], None),
        ({"0": 1}, None),
        (None, None),
    ],
)
def test_vectors(value: Any, kept: Any) -> None:
    assert numbers(value) == kept


def test_a_record_is_settled() -> None:
    assert settled([["x"], None, 5.5, "7", None]) == [["x"], None, None, 7, ""]
    assert settled([["x"], None, 2**63, -1, {"why": 7}]) == [["x"], None, None, None, '{"why":7}']
    assert settled([["x"], None, 0, 7, "stop"]) == [["x"], None, 0, 7, "stop"]
