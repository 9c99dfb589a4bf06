"""Input patterns: ranges, order, mistakes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.batch.input.expand import expand_input, expand_ranges, format_of, natural_key, would_find

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("plain.parquet", ["plain.parquet"]),
        ("in_{0008..0011}.pq", ["in_0008.pq", "in_0009.pq", "in_0010.pq", "in_0011.pq"]),
        ("in_{8-11}.pq", ["in_8.pq", "in_9.pq", "in_10.pq", "in_11.pq"]),
        ("in_{3..1}.pq", ["in_3.pq", "in_2.pq", "in_1.pq"]),
        ("{1..2}/{08-09}.pq", ["1/08.pq", "1/09.pq", "2/08.pq", "2/09.pq"]),
        ("{a,b}.pq", ["{a,b}.pq"]),
        ("x{5..5}", ["x5"]),
    ],
)
def test_ranges(pattern: str, expected: list[str]) -> None:
    assert expand_ranges(pattern) == expected


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 6), st.sampled_from(["..", "-"]))
def test_every_number_once_padded_as_written(first: int, last: int, width: int, between: str) -> None:
    made = expand_ranges(f"a{{{first:0{width}d}{between}{last:0{width}d}}}b")
    numbers = [int(text[1:-1]) for text in made]
    step = 1 if last >= first else -1
    assert numbers == list(range(first, last + step, step))
    if width > 3:
        assert all(len(text) == width + 2 for text in made)


@given(st.lists(st.integers(0, 10**6), unique=True))
def test_natural_order_is_numeric(numbers: list[int]) -> None:
    names = [f"part-{number}.parquet" for number in numbers]
    assert sorted(names, key=natural_key) == [f"part-{number}.parquet" for number in sorted(numbers)]


def test_directory_skips_hidden_files_and_sorts(tmp_path: Path) -> None:
    for name in ("b10.parquet", "b9.parquet", ".hidden.parquet", "_tmp/x.parquet", "notes.txt", "a/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in expand_input(str(tmp_path))]
    assert found == ["a/c.parquet", "b9.parquet", "b10.parquet"]


def test_glob(tmp_path: Path) -> None:
    for number in (10, 9, 1):
        (tmp_path / f"x{number}.csv").touch()
    assert [path.name for path in expand_input(f"{tmp_path}/x*.csv")] == ["x1.csv", "x9.csv", "x10.csv"]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("prompt.parquet", "does not exist"),
        ("y*.parquet", "no file matches"),
        ("*", "mixes files of several formats"),
        ("empty", "holds no parquet"),
    ],
)
def test_mistakes(tmp_path: Path, pattern: str, words: str) -> None:
    (tmp_path / "prompts.parquet").touch()
    (tmp_path / "other.csv").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=words) as caught:
        expand_input(f"{tmp_path}/{pattern}")
    if pattern == "prompt.parquet":
        assert "did you mean" in caught.value.hint
        assert "prompts.parquet" in caught.value.hint


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot tell the format"):
        format_of(tmp_path / "x.xlsx")


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("", "out.jsonl", True),
        ("", "deep/out.csv", True),
        ("", "_deep/out.csv", False),
        ("", ".out.csv", False),
        ("", "out.txt", False),
        ("", "../out.jsonl", False),
        ("/*.jsonl", "out.jsonl", True),
        ("/x*.jsonl", "out.jsonl", False),
        ("/*.jsonl", "deep/out.jsonl", False),
        ("/**/*.jsonl", "deep/er/out.jsonl", True),
        ("/**/*.jsonl", ".deep/out.jsonl", False),
        ("/x{1..3}*.jsonl", "x2-out.jsonl", True),
        ("/in.jsonl", "out.jsonl", False),
    ],
)
def test_what_would_be_found_next_time(tmp_path: Path, pattern: str, name: str, found: bool) -> None:
    """It says of a file that is not there what `expand_input` says when it is."""
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    for one in ("in", "x1", "x2", "x3"):
        (root / f"{one}.jsonl").touch()
    path = root / name
    assert would_find(f"{root}{pattern}", path) is found
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        assert (path in expand_input(f"{root}{pattern}")) is found
    except InputError as error:
        assert ("mixes files" in error.message) is found  # noqa: PT017 - of another format than the rest


def test_a_link_to_nothing_is_not_said_to_be_meant(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").symlink_to("nowhere")
    with pytest.raises(InputError, match="does not exist") as caught:
        expand_input(f"{tmp_path}/in.jsonl")
    assert caught.value.hint == f"{tmp_path}/in.jsonl is a link to nothing"
