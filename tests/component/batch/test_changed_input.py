"""An input that grew or was mended: answers of rows that did not change are kept, all others are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from remuda.base.errors import Conflict, InputError, RemudaError
from remuda.batch.output.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from remuda.batch.request import Summary

    Run = Callable[..., tuple[list[Any], Summary]]


def write(path: Path, prompts: Sequence[str], **columns: list[Any]) -> Path:
    data = {"prompt": list(prompts), **columns}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(data), path)
    elif path.suffix == ".csv":
        pa.csv.write_csv(pa.table(data), path)
    else:
        rows = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def results(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_appending_asks_what_is_new(tmp_path: Path, echo: Run, suffix: str) -> None:
    source, target = tmp_path / f"in.{suffix}", tmp_path / "out.jsonl"
    echo(write(source, ["a", "b", "c"]), target)
    asked, summary = echo(write(source, ["a", "b", "c", "d"]), target)
    assert (asked, summary.skipped, summary.notes) == (["d"], 3, ())
    assert [row["result"] for row in results(target)] == ["echo: a", "echo: b", "echo: c", "echo: d"]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_mending_asks_what_was_mended(tmp_path: Path, echo: Run, suffix: str) -> None:
    source, target = tmp_path / f"in.{suffix}", tmp_path / "out.jsonl"
    echo(write(source, ["a", "b", "c"]), target)
    asked, summary = echo(write(source, ["a", "B!", "c"]), target)
    assert asked == ["B!"]
    assert summary.notes[0].endswith("2 rows keep their answers, 1 are asked again")
    assert [row["result"] for row in results(target)] == ["echo: a", "echo: B!", "echo: c"]
    assert echo(write(source, ["a", "b", "c"]), target)[0] == ["b"], "the newest record was for something else"


def test_a_bad_line_is_a_row_with_an_error_until_it_is_mended(tmp_path: Path, echo: Run) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = [b'{"prompt": "a"}', b'{"prompt": "b', b"[1]", b'{"prompt": "\xff"}', b'{"prompt": "e"}']
    source.write_bytes(b"\n".join(lines))
    asked, summary = echo(source, target)
    assert (sorted(asked), summary.rows, summary.failed) == (["a", "e"], 5, 3)
    assert summary.notes[0].startswith(
        f"lines that are not rows and get an error: 3; the first is {source}:2: not JSON"
    )
    found = results(target)
    assert [row["result"] for row in found] == ["echo: a", None, None, None, "echo: e"]
    assert found[1]["error"].startswith(f"{source}:2: not JSON: ")
    assert found[2]["error"] == f"{source}:3: a line must be a JSON object, this is list"
    assert found[3]["error"].startswith(f"{source}:4: not JSON: ")
    assert echo(source, target)[0] == []
    source.write_bytes(b"\n".join([lines[0], b'{"prompt": "b"}', *lines[2:]]))
    assert echo(source, target)[0] == ["b"]
    assert [row["result"] for row in results(target)] == ["echo: a", "echo: b", None, None, "echo: e"]


def test_bad_lines_in_other_formats_of_output(tmp_path: Path, echo: Run) -> None:
    (tmp_path / "in.jsonl").write_bytes(b'{"prompt": "a", "n": 1}\n{"prompt"\n')
    for name in ("out.parquet", "out.csv"):
        assert echo(tmp_path / "in.jsonl", tmp_path / name)[1].failed == 1
    found = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["prompt"], row["n"], row["error"] is None) for row in found] == [("a", 1, True), (None, None, False)]


def test_an_input_without_a_good_line_is_told_before_anything_is_asked(tmp_path: Path, echo: Run) -> None:
    (tmp_path / "in.jsonl").write_text('[\n {"prompt": "a"},\n {"prompt": "b"}\n]\n')
    with pytest.raises(InputError, match=r"in\.jsonl:1: not JSON") as caught:
        echo(tmp_path / "in.jsonl", tmp_path / "out.jsonl")
    assert "one JSON object a line" in caught.value.hint


def test_another_input_is_refused_and_nothing_is_lost(tmp_path: Path, echo: Run) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    echo(write(source, ["a", "b", "c"]), target)
    write(source, ["new", "a", "b", "c"])
    with pytest.raises(Conflict, match=r"belongs to another input: all of the 3 rows .*in\.jsonl changed") as caught:
        echo(source, target)
    assert caught.value.asked == []  # type: ignore[attr-defined]
    assert "--id-column" in caught.value.hint
    assert echo(write(source, ["a", "b", "c"]), target)[0] == []


@pytest.mark.parametrize("id_column", ["", "number"])
def test_other_columns_may_change_and_reach_the_output(tmp_path: Path, echo: Run, id_column: str) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    echo(write(source, ["a", "b"], number=[1, 2], note=["x", "y"]), target, id_column=id_column)
    asked, summary = echo(write(source, ["a", "b"], number=[1, 2], note=["x", "Y!"]), target, id_column=id_column)
    assert (asked, summary.output_kept) == ([], False)
    assert [row["note"] for row in results(target)] == ["x", "Y!"]


def test_files_may_be_added_behind_the_others(tmp_path: Path, echo: Run) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "1.parquet", ["a", "b"])
    echo(tmp_path / "in", tmp_path / "out.jsonl")
    write(tmp_path / "in" / "2.parquet", ["c"])
    assert echo(tmp_path / "in", tmp_path / "out.jsonl")[0] == ["c"]


def test_rows_that_are_gone_are_gone(tmp_path: Path, echo: Run) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    echo(write(source, ["a", "b", "c"]), target)
    asked, summary = echo(write(source, ["a", "b"]), target)
    assert (asked, summary.rows) == ([], 2)
    assert len(results(target)) == 2


def test_an_input_that_changes_while_the_job_runs_gets_no_wrong_answer(
    tmp_path: Path, echo: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write(source, ["a", "b", "c"])
    flush = Checkpoint.flush

    def change(self: Checkpoint) -> None:
        flush(self)
        if self.done == 3:  # all is asked, and nothing is written yet
            write(source, ["a", "X", "c"])

    monkeypatch.setattr(Checkpoint, "flush", change)
    with pytest.raises(RemudaError, match=r"row 1 of .*in\.jsonl is not what was asked"):
        echo(source, target)
    monkeypatch.undo()
    assert not target.exists()
    assert echo(source, target)[0] == ["X"]
    assert [row["result"] for row in results(target)] == ["echo: a", "echo: X", "echo: c"]


def test_ids_need_readable_lines(tmp_path: Path, echo: Run) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a", "id": 1}\n{"prompt"\n')
    with pytest.raises(InputError, match=r"in\.jsonl:2: not JSON"):
        echo(tmp_path / "in.jsonl", tmp_path / "out.jsonl", id_column="id")
