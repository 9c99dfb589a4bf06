"""Columns that stand in the names of folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remuda.batch.input.partitions import Partitions
from remuda.batch.input.source import Source, to_batch

FOLDER = Path("/data")


@pytest.mark.parametrize(
    ("paths", "schema", "values"),
    [
        pytest.param(["a.csv"], [], [{}], id="none"),
        pytest.param(["lang=de/a.csv", "lang=en/a.csv"], [("lang", pa.string())], [{"lang": "de"}, {"lang": "en"}],
                     id="text"),
        pytest.param(["y=1/a.csv", "y=-2/b.csv"], [("y", pa.int64())], [{"y": 1}, {"y": -2}], id="whole numbers"),
        pytest.param(["y=01/a.csv"], [("y", pa.string())], [{"y": "01"}], id="a leading zero is text"),
        pytest.param([f"y={1 << 63}/a.csv"], [("y", pa.string())], [{"y": str(1 << 63)}], id="too large"),
        pytest.param(["a=x%2Fy/a.csv"], [("a", pa.string())], [{"a": "x/y"}], id="encoded"),
        pytest.param(["y=1/a.csv", "y=__HIVE_DEFAULT_PARTITION__/b.csv", "c.csv"], [("y", pa.int64())],
                     [{"y": 1}, {"y": None}, {"y": None}], id="null"),
        pytest.param(["a=1/b=z/x.csv"], [("a", pa.int64()), ("b", pa.string())], [{"a": 1, "b": "z"}], id="two"),
        pytest.param(["=1/plain/x.csv"], [], [{}], id="no name"),
    ],
)  # fmt: skip
def test_what_folders_say(paths: list[str], schema: list[Any], values: list[dict[str, Any]]) -> None:
    files = [FOLDER / path for path in paths]
    found = Partitions(FOLDER, files)
    assert found.schema == pa.schema(schema)
    assert [dict(found.of(path)) for path in files] == values


def rows(source: Source, columns: list[str] | None = None) -> list[dict[str, Any]]:
    source.survey(types=True)
    schema = source.schema if columns is None else pa.schema([source.schema.field(name) for name in columns])
    return [row for chunk in source.chunks(columns) for row in to_batch(chunk, schema).to_pylist()]


def test_they_are_those_of_pyarrow(tmp_path: Path) -> None:
    for lang, year in (("de", 2023), ("de", 2024), ("en", 2023)):
        folder = tmp_path / f"lang={lang}" / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"prompt": [f"{lang} {year} {n}" for n in range(3)]}), folder / "part-0.parquet")
    found = rows(Source(str(tmp_path)))
    import pyarrow.dataset as pads

    theirs = pads.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert sorted(found, key=str) == sorted(theirs, key=str)
    assert rows(Source(str(tmp_path)), ["year"]) == [{"year": row["year"]} for row in found]


@pytest.mark.parametrize(
    ("name", "text"), [("a.jsonl", '{"prompt": "x"}\n{"prompt": "y", "lang": "own"}\n'), ("a.csv", "prompt\nx\ny\n")]
)
def test_text_files_have_them_too(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "lang=de").mkdir()
    (tmp_path / "lang=de" / name).write_text(text)
    second = "own" if name.endswith("jsonl") else "de"
    assert rows(Source(str(tmp_path))) == [{"prompt": "x", "lang": "de"}, {"prompt": "y", "lang": second}]


def test_a_column_of_the_files_counts(tmp_path: Path) -> None:
    (tmp_path / "lang=de").mkdir()
    pq.write_table(pa.table({"lang": ["fr"]}), tmp_path / "lang=de" / "a.parquet")
    assert rows(Source(str(tmp_path))) == [{"lang": "fr"}]


def test_a_single_file_says_nothing_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "lang=de").mkdir()
    pq.write_table(pa.table({"prompt": ["x"]}), tmp_path / "lang=de" / "a.parquet")
    assert rows(Source(str(tmp_path / "lang=de" / "a.parquet"))) == [{"prompt": "x"}]
