from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.backends.slurm.hostlist import compress, compress_numbers, expand

NAMES = st.from_regex(r"[a-z]{1,4}-?[0-9]{0,4}[a-z]{0,2}", fullmatch=True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("(null)", []),
        ("None assigned", []),
        ("a", ["a"]),
        ("a1,b2", ["a1", "b2"]),
        ("a[1-3,5]", ["a1", "a2", "a3", "a5"]),
        ("a[08-11]", ["a08", "a09", "a10", "a11"]),
        ("r[1-2]n[01-02],x", ["r1n01", "r1n02", "r2n01", "r2n02", "x"]),
        ("gpu-a100-[1-2]-ib", ["gpu-a100-1-ib", "gpu-a100-2-ib"]),
    ],
)
def test_expand(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a[1-2", "'a[1-2' is not a list of nodes: its brackets do not match"),
        ("a1-2]", "'a1-2]' is not a list of nodes: its brackets do not match"),
        ("a[[1]]", "'a[[1]]' is not a list of nodes: its brackets do not match"),
        ("a[x-2]", "'a[x-2]' is not a list of nodes: 'x-2' is no range"),
        ("a[3-1]", "'a[3-1]' is not a list of nodes: '3-1' is no range"),
        ("a[1-999999999]", "'a[1-999999999]' names more than 200000 nodes"),
        ("a[1-500]b[1-500]", "'a[1-500]b[1-500]' names more than 200000 nodes"),
        ("a[1-199999]b[1-199999]c[1-199999]", "'b[1-199999]c[1-199999]' names more than 200000 nodes"),
    ],
)
def test_what_is_no_list(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="nodes") as caught:
        expand(text)
    assert str(caught.value) == message


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


@given(st.sets(NAMES, max_size=40))
@settings(deadline=None)
def test_what_is_compressed_can_be_expanded(names: set[str]) -> None:
    expanded = expand(compress(names))
    assert sorted(expanded) == sorted(names)


@given(st.text(alphabet="ab1239-,[]", max_size=30))
@settings(deadline=None)
def test_expand_gives_names_or_says_no(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert all(names)
    assert sorted(expand(compress(names))) == sorted(set(names))


@given(st.sets(st.integers(0, 10**6), min_size=1, max_size=50))
@settings(deadline=None)
def test_array_indices(numbers: set[int]) -> None:
    text = compress_numbers(numbers)
    assert {int(name) for name in expand(f"[{text}]")} == numbers
