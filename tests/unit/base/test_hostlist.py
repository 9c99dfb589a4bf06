from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.base.hostlist import compress, compress_numbers, expand

NAMES = st.from_regex(r"[a-z]{1,4}-?[0-9]{0,4}[a-z]{0,2}", fullmatch=True)
HINT = "write names and ranges: node001, node[001-003,7],gpu5"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node001", ["node001"]),
        ("a, b ,a", ["a", "b"]),
        ("node[001-003,7],gpu5", ["node001", "node002", "node003", "node7", "gpu5"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("rack[1-2]-node[1-2].site", ["rack1-node1.site", "rack1-node2.site", "rack2-node1.site", "rack2-node2.site"]),
        ("n[1, 3]", ["n1", "n3"]),
        ("a,", ["a"]),
        ("r[1-2]n[01-02],x", ["r1n01", "r1n02", "r2n01", "r2n02", "x"]),
        ("gpu-a100-[1-2]-ib", ["gpu-a100-1-ib", "gpu-a100-2-ib"]),
    ],
)
def test_a_list_is_taken_apart(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[a-b]", "n[]", "n[3-1]", "n[[1]]", "a b", "n;reboot", "n$(id)", "n[--1]"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text)
    assert str(caught.value) == f"{text!r} is not a list of nodes"
    assert caught.value.hint == HINT


@pytest.mark.parametrize("text", ["", " , ,"])
def test_an_empty_list_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^the list of nodes is empty$"):
        expand(text)


@pytest.mark.parametrize("text", ["n[0-99999999999]", "a[1-1000]b[1-1000]", "n[0-99999],m"])
def test_a_slip_of_the_pen_does_not_fill_the_memory(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text)
    assert str(caught.value) == f"{text!r} names more than 100,000 nodes"


@settings(deadline=None)
@given(st.lists(st.integers(0, 9999), min_size=1, max_size=50, unique=True), st.integers(1, 6))
def test_numbers_in_brackets_are_the_numbers_one_by_one(numbers: list[int], width: int) -> None:
    words = [str(number).zfill(width) for number in numbers]
    assert expand(f"n[{','.join(words)}]") == tuple(f"n{word}" for word in words)
    assert expand(",".join(f"n{word}" for word in words)) == tuple(f"n{word}" for word in words)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_a_list_or_a_clear_sentence(text: str) -> None:
    names: tuple[str, ...] = ()
    with suppress(InputError):
        names = expand(text)
        assert names
    assert len(set(names)) == len(names)
    assert sorted(expand(compress(names))) == sorted(names) if names else compress(names) == ""


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["b", "a"], "a,b"),
        (["n1", "n2", "n3", "n7", "n3"], "n[1-3,7]"),
        (["n08", "n09", "n10", "n11"], "n[08-09],n[10-11]"),
        (["n9", "n10"], "n[9-10]"),
        (["cpu-1"], "cpu-1"),
    ],
)
def test_compress(names: list[str], text: str) -> None:
    assert compress(names) == text


@given(st.sets(NAMES, min_size=1, max_size=40))
@settings(deadline=None)
def test_what_is_compressed_can_be_expanded(names: set[str]) -> None:
    expanded = expand(compress(names))
    assert sorted(expanded) == sorted(names)


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=50))
@settings(deadline=None)
def test_array_indices(numbers: set[int]) -> None:
    text = compress_numbers(numbers)
    assert {int(name) for name in expand(f"[{text}]")} == numbers
