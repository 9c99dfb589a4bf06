"""`remuda bench export | import` as a person types them, and what is said of bad input."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.measures import measure
from remuda.bench.judging.verdict import NAMES, Check
from remuda.bench.load import Load
from remuda.bench.point import Hardware, Point
from remuda.bench.store import PointStore
from remuda.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = Path(__file__).parents[2] / "cases" / "bench"
MS = 1_000_000
LOAD = Load(isl=100, osl=4, concurrency=2)


def row(index: int, *, error: str = "") -> RequestRow:
    """Two streams, side by side, of requests that take 40 ms."""
    sent = (1_000 + index // 2 * 50) * MS
    return RequestRow(
        index, sched=sent, sent=sent, first=sent + 10 * MS, last=sent + 40 * MS, ended=sent + 41 * MS, asked_in=100,
        asked_out=4, n_in=100, n_out=4, status=200, finish="length", error=error, first_out=1,
        chunks=array("I", [10_000, 20_000, 30_000, 40_000]),
    )  # fmt: skip


ROWS = [row(index, error="HTTP 500: no words" if index == 300 else "") for index in range(700)]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def point(tmp_path: Path) -> Point:
    (tmp_path / "home").mkdir(mode=0o700)
    _, metrics = measure(ROWS, LOAD, {})
    made = Point(
        id="3f9a01c2" * 8, repeat=0, source="remuda", endpoint="http://host:8000", model="tiny", engine="vllm 0.32",
        load=LOAD, metrics=metrics, checks=tuple(Check(code, "ok") for code in NAMES), verdict="valid",
        hardware=Hardware(2, "h200", 1), started_at=1_790_000_000.0,
    )  # fmt: skip
    return PointStore(tmp_path / "home" / "bench").write(made, ROWS)


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["bench", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, list)
    return found


def test_requests_are_read_as_they_were_kept(point: Point, tmp_path: Path) -> None:
    assert PointStore(tmp_path / "home" / "bench").rows(point) == ROWS


def test_a_point_goes_out_with_its_requests_and_comes_back(point: Point, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "export", point.name, "--format", "vllm", "-o", "result.json"]) == 0
    data = json.loads(Path("result.json").read_text())
    assert len(data["output_lens"]) == len(data["errors"]) == data["num_prompts"] == data["completed"] + 1
    assert data["completed"] == point.metrics["measured"]
    assert [error for error in data["errors"] if error] == ["HTTP 500: no words"]
    assert main(["bench", "import", "result.json", "--json"]) == 10
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["source"], found["verdict"], found["stored_before"]) == ("vllm", "invalid", False)
    assert [check["code"] for check in found["checks"] if check["state"] == "invalid"] == ["V2"]
    assert found["metrics"]["ttft"]["p99"] == pytest.approx(0.010)
    assert found["metrics"]["output_tok_s"] == point.of("output_tok_s")
    assert found["meta"] == {"file": "result.json"}


def test_several_points_are_lines_a_list_or_rows(point: Point, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "import", str(CASES / "imported" / "inferencex.json")]) == 0
    out = capsys.readouterr().out
    assert out.count("imported") == 2
    names = [line.split()[0] for line in out.splitlines()[1:]]
    assert main(["bench", "export", *names, "--format", "inferencex"]) == 0
    out, err = capsys.readouterr()
    assert [data["hw"] for data in json.loads(out)] == ["b200", "gb200"]
    assert err.splitlines() == [f"{name} is imported: inferencex" for name in names]
    assert main(["bench", "export", point.name, point.name, "--format", "vllm"]) == 0
    assert [json.loads(line)["model_id"] for line in capsys.readouterr().out.splitlines()] == ["tiny", "tiny"]
    assert main(["bench", "export", point.name, *names, "--format", "csv"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()] == ["point", point.name, *names]


def test_a_result_is_imported_once(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(CASES / "imported" / name) for name in ("vllm.json", "sglang.jsonl")]
    assert main(["bench", "import", *files]) == 0
    first = listed(capsys)
    assert main(["bench", "import", *files, files[0]]) == 0
    assert capsys.readouterr().err == "4 of 4 were imported before\n"
    assert listed(capsys) == first
    assert sorted((point["source"], point["verdict"]) for point in first) == [
        ("sglang", "imported"), ("sglang", "imported"), ("vllm", "imported"),
    ]  # fmt: skip
    (name,) = [str(point["name"]) for point in first if point["source"] == "vllm"]
    assert main(["bench", "show", name]) == 0
    out = capsys.readouterr().out
    assert "imported" in out.splitlines()[0]
    assert "source    vllm" in out


def test_a_bad_file_keeps_all_of_them_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = str(CASES / "imported" / "vllm.json")
    bad = str(CASES / "refused" / "cut-line.jsonl")
    assert main(["bench", "import", good, bad]) == 2
    assert capsys.readouterr().err.startswith(f"error: {bad}:2:18: is not valid JSON: ")
    assert listed(capsys) == []
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    told = {
        "bytes.json": "is not text",
        "nowhere.json": "cannot be read: No such file",
        ".": "cannot be read: Is a dir",
    }
    for name, words in told.items():
        assert main(["bench", "import", name]) == 2
        assert capsys.readouterr().err.startswith(f"error: {name}: {words}")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["export", "3f9a", "--format", "inferencex", "--set", "precision=fp8"], 2,
         "error: --format: the format inferencex needs what is not known: 3f9a01c2-1 lacks image, framework"),
        (["export", "3f9a", "--format", "inferencex", "--set", "precision"], 2,
         "error: --set: precision must be NAME=VALUE, each name once"),
        (["export", "3f9a", "--format", "csv", "--set", "tp=8"], 2, "error: --set: the format csv has nothing to set"),
        (["export", "77b0", "--format", "csv"], 3, "error: there is no point '77b0'"),
        (["export", "3f9a", "--format", "csv", "-o", "nowhere/x.csv"], 5,
         "error: nowhere/x.csv cannot be written: No such file or directory"),
    ],
)  # fmt: skip
def test_what_cannot_be_exported(
    point: Point, words: Sequence[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del point
    assert main(["bench", *words]) == code
    assert capsys.readouterr().err.splitlines()[0] == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["concurrency"], "--slo: a search needs a latency target"),
        (["concurrency", "--slo", "ttft_p99=1s", "-C", "8"], "--concurrency: the search chooses the load"),
        (["rate", "--slo", "ttft_p99=1s", "--rate", "8"], "--rate: the search chooses the load"),
        (["rate", "--slo", "ttft_p99=1s", "-C", "8,9"],
         "--concurrency: bounds the requests in flight, with one number"),
        (["concurrency", "--slo", "ttft_p99=1s", "--min", "9", "--max", "3"], "--max: is 3, less than --min 9"),
        (["concurrency", "--slo", "ttft_p99=1s", "--no-stream"],
         "--no-stream: answers that are not streamed have no ttft_p99"),
        (["concurrency", "--slo", "ttft_p99=1s", "--repeats", "2"], "--repeats: a search measures no load twice"),
        (["rate", "--slo", "ttft_p99=1s", "--endpoint", "http://b:1"], "--endpoint: a search is of one endpoint"),
    ],
)  # fmt: skip
def test_what_cannot_be_searched(words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "search", "--endpoint", "http://a:1", "--maximise", *words]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {said}"
