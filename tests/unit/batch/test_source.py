"""Streams of rows: every row once, in order, whatever the files look like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.batch.input.infer import TypeUnion, to_array
from remuda.batch.input.source import Source

if TYPE_CHECKING:
    from pathlib import Path


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    group=st.integers(1, 30),
    chunk=st.integers(1, 25),
    limit=st.integers(0, 100),
    suffix=st.sampled_from(["parquet", "jsonl", "csv"]),
)
def test_positions_are_global(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], group: int, chunk: int, limit: int, suffix: str
) -> None:
    folder, number = tmp_path_factory.mktemp("source"), 0
    for index, size in enumerate(sizes):
        texts = [f"row {number + n}" for n in range(size)]
        path = folder / f"part-{index}.{suffix}"
        if suffix == "parquet":
            pq.write_table(
                pa.table({"x": pa.array(texts, pa.string()), "y": list(range(size))}), path, row_group_size=group
            )
        elif suffix == "jsonl":
            path.write_text("".join(f'{{"x": "{text}"}}\n' for text in texts))
        else:
            path.write_text("x,y\n" + "".join(f"{text},1\n" for text in texts))
        number += size
    source = Source(str(folder), limit=limit, read_kwargs={"batch_size": chunk})
    expected = [f"row {n}" for n in range(min(number, limit) if limit else number)]
    positions: list[int] = []
    values: list[object] = []
    for piece in source.chunks(["x"]):
        positions += range(piece.first, piece.first + piece.rows)
        values += piece.values("x")
    assert values == expected
    assert positions == list(range(len(expected)))
    assert source.count() == len(expected)


def test_files_with_other_column_order_and_types_fit_the_first(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": ["y"], "a": pa.array([2], pa.int32()), "c": [0]}), tmp_path / "2.parquet")
    chunks = list(Source(str(tmp_path)).chunks())
    assert [chunk.values("a") for chunk in chunks] == [[1], [2]]
    pq.write_table(pa.table({"b": ["z"]}), tmp_path / "3.parquet")
    with pytest.raises(InputError, match=r"3\.parquet has no column 'a'"):
        list(Source(str(tmp_path)).chunks())


def test_a_bad_line_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\n{"a": \n\n{"a": 2}\n')
    (chunk,) = Source(str(tmp_path / "x.jsonl")).chunks()
    assert chunk.values("a") == [1, None, 2]
    assert chunk.bad[1].message.startswith(f"{tmp_path / 'x.jsonl'}:2: not JSON")
    assert not chunk.cut(1).bad


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.parquet", b"no parquet", r"x\.parquet cannot be read"),
        ("x.jsonl", b'{"a": \n{"a": 1}\n', r"x\.jsonl:1: not JSON"),
        ("x.jsonl", b"[1]\n", "a line must be a JSON object, this is list"),
        ("x.csv", b"", "is empty"),
        ("x.csv", b"a,b\n1,2\n1,2,3\n", r"x\.csv cannot be read"),
        ("x.csv", b"a\ncaf\xe9\n", r"x\.csv:2: the line is not utf8"),
        ("x.csv", b"caf\xe9\na\n", r"x\.csv:1: the line is not utf8"),
        ("x.csv", b"a\n" + b"1\n" * (3 << 20) + b"\xe9\n", r"x\.csv:3145730: the line is not utf8"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        Source(str(tmp_path / name)).survey(types=True)


@pytest.mark.parametrize(("suffix", "row"), [("csv", b"a\n1\n"), ("jsonl", b'{"a": 1}\n')])
@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
def test_empty_files_of_a_folder_have_no_rows(tmp_path: Path, suffix: str, row: bytes, content: bytes) -> None:
    """Whatever their format, and the others are read."""
    for name in "ac":
        (tmp_path / f"{name}.{suffix}").write_bytes(content)
    (tmp_path / f"b.{suffix}").write_bytes(row)
    source = Source(str(tmp_path))
    source.survey(types=True)
    assert (source.total, source.columns, source.bad) == (1, ["a"], 0)
    assert [path.name for path in source.empty] == [f"a.{suffix}", f"c.{suffix}"]


def test_column_that_is_not_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["x"]}), tmp_path / "x.parquet")
    with pytest.raises(InputError) as caught:
        Source(str(tmp_path / "x.parquet")).require("promt", where="--input-column")
    assert "did you mean 'prompt'?" in caught.value.hint


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([["a"], [None]], pa.string()),
        ([[1], [2.5]], pa.float64()),
        ([[1], ["a"]], pa.string()),
        ([[None]], pa.string()),
        ([[True], [None, False]], pa.bool_()),
        ([[1 << 70]], pa.string()),
        ([[[1]], [[0.5]]], pa.list_(pa.float64())),
        ([[{"a": 1}], [{"b": "x"}]], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([[{}]], pa.string()),
        ([[[]]], pa.string()),
    ],
)
def test_types_are_found_in_a_stream(values: list[list[object]], expected: pa.DataType) -> None:
    union = TypeUnion()
    for some in values:
        union.add(some)
    assert union.type == expected


@given(st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=40))
def test_integers_as_column(values: list[int | None]) -> None:
    assert to_array(values, pa.int64()).to_pylist() == values


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=40))
def test_numbers_as_column(values: list[float | None]) -> None:
    assert to_array(values, pa.float64()).to_pylist() == values


def test_text_column_takes_anything_as_json() -> None:
    assert to_array(["a", None, {"b": [1]}, 2], pa.string()).to_pylist() == ["a", None, '{"b":[1]}', "2"]
