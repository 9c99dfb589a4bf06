"""Indices of arrays as sbatch has them: tables, round trips, and the sentence of each thing that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.base.hostlist import compress_numbers
from remuda.specs.arrays import HIGHEST, MOST, Array, parse_array
from remuda.specs.reading.load import build
from remuda.specs.reading.resolve import Override

HINT = "write 1-50, 1,3,7 or 0-30:3, with %4 behind it for four at a time"


@pytest.mark.parametrize(
    ("text", "indices", "at_most"),
    [
        ("7", [7], 0),
        ("1-4%2", [1, 2, 3, 4], 2),
        ("1,3,7", [1, 3, 7], 0),
        ("0-30:10", [0, 10, 20, 30], 0),
        ("9,0-5:3,6-7%1", [0, 3, 6, 7, 9], 1),
        (" 01-03%50 ", [1, 2, 3], 50),
        (f"{HIGHEST}", [HIGHEST], 0),
        ("3-3", [3], 0),
    ],
)
def test_what_is_meant(text: str, indices: list[int], at_most: int) -> None:
    assert parse_array(text) == Array(tuple(indices), at_most)


@given(st.sets(st.integers(0, HIGHEST), min_size=1, max_size=MOST), st.integers(0, 10**9 - 1))
def test_round_trip(indices: set[int], at_most: int) -> None:
    text = compress_numbers(indices) + (f"%{at_most}" if at_most else "")
    assert parse_array(text) == Array(tuple(sorted(indices)), at_most)


@given(st.text("0123456789-,:%a ", max_size=12))
def test_whatever_is_written_is_an_array_in_bounds_or_refused(text: str) -> None:
    try:
        array = parse_array(text)
    except InputError:
        return
    assert 0 < len(array.indices) <= MOST
    assert array.indices == tuple(sorted(set(array.indices)))
    assert array.indices[-1] <= HIGHEST


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("0-", "has '0-', which is neither an index nor a range", HINT),
        ("a", "has 'a', which is neither an index nor a range", HINT),
        ("%4", "has '', which is neither an index nor a range", HINT),
        ("1,,2", "has '', which is neither an index nor a range", HINT),
        ("-3", "has '-3', which is neither an index nor a range", HINT),
        ("1:2", "has '1:2', which is neither an index nor a range", HINT),
        ("5-1", "has '5-1', which ends before it begins", HINT),
        ("1-5:0", "has '1-5:0', which is neither an index nor a range", HINT),
        ("1-2000000", "names more than 1,000 tasks", "make several arrays of it"),
        ("0-600,700-1200", "names more than 1,000 tasks", "make several arrays of it"),
        ("4000001", "has index 4,000,001, and 4,000,000 is the highest", HINT),
        ("1,3,1-5", "names index 1 twice", HINT),
        ("1-4%0", "has '0' behind its %, which is not a number of tasks at a time", HINT),
        ("1-4%", "has '' behind its %, which is not a number of tasks at a time", HINT),
        ("1-4%2%2", "has '2%2' behind its %, which is not a number of tasks at a time", HINT),
    ],
)
def test_what_is_wrong(text: str, sentence: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_array(text)
    assert (refused.value.message, refused.value.hint) == (sentence, hint)
    with pytest.raises(InputError) as refused:
        build(None, [Override("script", "a.sh", "SCRIPT"), Override("array", text, "--array")], expect="run")
    assert refused.value.message == f"--array: `array` {sentence}"
