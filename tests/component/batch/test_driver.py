"""Whole jobs against the stub: what is asked, what is written, what a second run does."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.fakes.stub_process import StubProcess

from remuda.base.errors import Conflict, InputError, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]


def test_answers_in_input_order_with_columns_kept(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    summary = run(stub.url + "/v1", prompts([f"hello {n}" for n in range(50)]), model="")
    assert (summary.rows, summary.done, summary.skipped, summary.failed) == (50, 50, 0, 0)
    assert rows()[7] == {
        "number": 7,
        "prompt": "hello 7",
        "result": "echo: hello 7",
        "error": None,
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "finish_reason": "stop",
    }
    assert [row["number"] for row in rows()] == list(range(50))
    assert summary.completion_tokens == 150


def test_typed_again_it_asks_nobody(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, tmp_path: Path) -> None:
    source = prompts([f"hello {n}" for n in range(20)])
    run(stub.url, source)
    before = rows()
    again = run(stub.url, source)
    assert (again.done, again.skipped, again.output_kept) == (0, 20, True)
    (tmp_path / "out.parquet").unlink()
    remade = run("http://127.0.0.1:9", source)
    assert (remade.done, remade.output_kept) == (0, False)
    assert rows() == before
    assert stub.stats()["requests"] == 20


def test_limit_is_a_part_of_the_same_job(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    source = prompts([f"hello {n}" for n in range(20)])
    assert run(stub.url, source, limit=5).rows == 5
    whole = run(stub.url, source)
    assert (whole.rows, whole.done, whole.skipped) == (20, 15, 5)
    assert stub.stats()["requests"] == 20


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"job_kwargs": {"temperature": 0.7}}, "temperature: 0.2 -> 0.7"),
        ({"job_kwargs": {"temperature": 0.2, "top_p": 1}}, "top_p: not set -> 1"),
        ({"model": "other"}, "model: stub -> other"),
        ({"output_columns": ["text"]}, 'output columns: ["result"] -> ["text"]'),
        ({"job": "completion"}, "job: remuda.batch.jobs:ChatCompletionJob -> remuda.batch.jobs:CompletionJob"),
        ({"input_column": "other"}, "input column: prompt -> other"),
    ],
)
def test_changed_settings_never_return_old_answers(
    stub: StubProcess, run: Run, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"prompt": ["a", "b"], "other": ["c", "d"]}), source)
    first = {"job_kwargs": {"temperature": 0.2}, "input_column": "prompt"}
    run(stub.url, source, **first)
    with pytest.raises(Conflict) as caught:
        run(stub.url, source, **(first | change))
    assert words in caught.value.message
    assert "--no-resume" in caught.value.hint
    assert stub.stats()["requests"] == 2
    assert run(stub.url, source, **(first | change), resume=False).done == 2


def test_a_longer_input_keeps_its_answers(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts(["a", "b"]))
    assert run(stub.url, prompts(["a", "b", "c"])).done == 1
    assert [row["result"] for row in rows()] == ["echo: a", "echo: b", "echo: c"]
    assert stub.stats()["requests"] == 3


def test_another_input_is_named(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    run(stub.url, prompts(["a", "b"]))
    with pytest.raises(Conflict, match=r"input file in\.parquet changed"):
        run(stub.url, prompts(["0", "a", "b"]))
    assert stub.stats()["requests"] == 2


def test_a_tag_keeps_both(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    source = prompts(["a"])
    run(stub.url, source)
    assert run(stub.url, source, job_kwargs={"temperature": 1}, checkpoint_tag="hot").done == 1
    assert run(stub.url, source).done == 0


def test_without_checkpointing_nothing_stays(stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path) -> None:
    source = prompts(["a", "b"])
    run(stub.url, source, checkpointing=False)
    assert run(stub.url, source, checkpointing=False).done == 2
    assert {item.name for item in tmp_path.iterdir()} == {"in.parquet", "out.parquet"}


def test_bad_rows_become_rows_with_an_error(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    summary = run(stub.url, prompts(["fine", "[400] bad", None, "[404] also bad", "fine too"]), retries=1)
    assert (summary.done, summary.failed) == (5, 3)
    found = rows()
    assert [row["result"] for row in found] == ["echo: fine", None, None, None, "echo: fine too"]
    assert found[1]["error"] == "HTTP 400: scripted 400"
    assert found[2]["error"] == "the input column 'prompt' is null"
    assert found[1]["prompt_tokens"] is None
    assert None not in stub.stats()["prompts"]


def test_retry_errors_redoes_just_them(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    source = prompts(["a", "[500] b", "c", "[400] d"])
    assert run(stub.url, source, retries=0).failed == 2
    again = run(stub.url, source, retries=0, retry_errors=True)
    assert (again.done, again.skipped, again.failed) == (2, 2, 2)
    assert stub.stats()["prompts"]["a"] == 1
    assert [row["error"] is None for row in rows()] == [True, False, True, False]


def test_passing_failures_are_tried_again_once_each(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    summary = run(stub.url, prompts(["[429 once] a", "[500 once] b", "[503 once] c", "d"]))
    assert summary.failed == 0
    assert [row["result"] for row in rows()][1] == "echo: [500 once] b"
    assert max(stub.stats()["prompts"].values()) == 2


def test_retries_are_bounded_and_counted(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts(["[500] a", "b"]), retries=2)
    assert stub.stats()["prompts"] == {"[500] a": 3, "b": 1}
    assert rows()[0]["error"] == "HTTP 500: scripted 500 (after 3 tries)"


def test_jsonl_to_jsonl(stub: StubProcess, run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": 1, "prompt": "a", "x": [1, 2]}\n\n{"id": 2, "prompt": "b", "y": {"z": null}}\n')
    run(stub.url, source, output=str(target), usage_columns=False)
    assert [orjson.loads(line) for line in target.read_text().splitlines()] == [
        {"id": 1, "prompt": "a", "x": [1, 2], "result": "echo: a", "error": None},
        {"id": 2, "prompt": "b", "y": {"z": None}, "result": "echo: b", "error": None},
    ]


def test_jsonl_to_parquet_finds_the_types(stub: StubProcess, run: Run, rows: Rows, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "a", "n": 1}\n{"prompt": "b", "n": 1.5, "m": "x"}\n')
    run(stub.url, source)
    assert [(row["n"], row["m"]) for row in rows()] == [(1.0, None), (1.5, "x")]


def test_csv_to_csv(stub: StubProcess, run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text('id,prompt\n007,"two\nlines"\n008,\n')
    summary = run(stub.url, source, output=str(target))
    assert summary.failed == 1
    convert = pa.csv.ConvertOptions(column_types={"id": pa.string()}, strings_can_be_null=True)
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    found = pa.csv.read_csv(target, convert_options=convert, parse_options=parse).to_pylist()
    assert found[0]["id"] == "007"
    assert found[0]["result"] == "echo: two\nlines"
    assert found[1]["error"] == "the input column 'prompt' is null"


def test_directory_in_and_out(stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in (10, 9):
        prompts([f"{part} a", f"{part} b", f"{part} c"], name=f"in/part-{part}.parquet")
    target = tmp_path / "out"
    for threads in (4, 2):
        run(stub.url, tmp_path / "in", output=f"{target}/", num_threads=threads)
        assert sorted(item.name for item in target.iterdir()) == [f"part-{n:05d}.parquet" for n in range(threads)]
    assert pq.read_table(target / "part-00000.parquet").column("prompt").to_pylist() == ["9 a", "9 b", "9 c"]
    assert pq.read_table(target / "part-00001.parquet").column("result").to_pylist()[0] == "echo: 10 a"
    assert stub.stats()["requests"] == 6


def test_brace_range_with_a_missing_file(stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path) -> None:
    for number in (8, 9, 11):
        prompts([f"{number}"], name=f"in_{number:04d}.parquet")
    assert run(stub.url, f"{tmp_path}/in_{{0008..0009}}.parquet").rows == 2
    with pytest.raises(InputError, match=r"in_0010\.parquet does not exist"):
        run(stub.url, f"{tmp_path}/in_{{0008-0011}}.parquet")


def test_ids_survive_another_order_and_new_rows(stub: StubProcess, run: Run, rows: Rows, tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c"], "prompt": ["1", "2", "3"]}), source)
    run(stub.url, source, id_column="id")
    # Reordered, one new, one gone, and c asks something else now.
    pq.write_table(pa.table({"id": ["c", "d", "a"], "prompt": ["3 new", "4", "1"]}), source)
    summary = run(stub.url, source, id_column="id")
    assert (summary.done, summary.skipped) == (2, 1)
    assert [row["result"] for row in rows()] == ["echo: 3 new", "echo: 4", "echo: 1"]
    assert stub.stats()["prompts"] == {"1": 1, "2": 1, "3": 1, "3 new": 1, "4": 1}


def test_an_id_that_is_there_twice(stub: StubProcess, run: Run, tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "a"], "prompt": ["1", "2", "3"]}), source)
    with pytest.raises(InputError, match="'a' in row 0 and again in row 2"):
        run(stub.url, source, id_column="id")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"input_column": "promt"}, "no column 'promt'"),
        ({"job": "chatt"}, "no job 'chatt'"),
        ({"job": "nosuchmodule:Job"}, "no module 'nosuchmodule'"),
        ({"job": "remuda.batch.jobs:Nope"}, "has no 'Nope'"),
        ({"job": "json:JSONDecoder"}, "is not a SwarmJob"),
        ({"output": "x.xlsx"}, "cannot tell the format"),
        ({"output_columns": ["prompt"]}, "a column 'prompt' already"),
        ({"job_kwargs": {"api_key": "k"}}, "'api_key' is not supported"),
        ({"job": "structured"}, "needs a schema"),
        ({"job": "structured", "job_kwargs": {"schema": {"type": "nope"}}}, "not a valid JSON schema"),
        ({"read_kwargs": {"nope": 1}}, "unknown read option 'nope'"),
        ({"api_key_env": "REMUDA_TEST_NO_SUCH_VARIABLE"}, "is empty"),
        ({"id_column": "nope"}, "no column 'nope'"),
        ({"data_backend": "polars"}, "unknown data backend"),
    ],
)
def test_mistakes_cost_no_request(
    stub: StubProcess, prompts: Prompts, run: Run, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        run(stub.url, prompts(["a"]), **fields)
    assert stub.stats()["requests"] == 0


def test_output_must_not_become_input(stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path) -> None:
    """The same command would find it the next time, whatever it is called and whether it is a file."""
    (tmp_path / "in").mkdir()
    prompts(["a"], name="in/a.parquet")
    for source, output in (("in", "in/out.jsonl"), ("in", "in/out"), ("in/*.parquet", "in/out.parquet")):
        with pytest.raises(InputError, match=r"in/out.* would be one of the input's files"):
            run(stub.url, tmp_path / source, output=str(tmp_path / output))
    assert stub.stats()["requests"] == 0
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a.parquet"]


@pytest.mark.parametrize("name", ["input", "output"])
def test_an_empty_name_is_not_this_directory(stub: StubProcess, prompts: Prompts, run: Run, name: str) -> None:
    fields = {"source": prompts(["a"])} | {"source" if name == "input" else name: ""}
    with pytest.raises(InputError, match=f"^--{name}: the {name} has no name$"):
        run(stub.url, **fields)


def test_empty_files_are_told(stub: StubProcess, run: Run, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, text in (("a", ""), ("b", "prompt\nhello\n")):
        (tmp_path / "in" / f"{name}.csv").write_text(text)
    assert run(stub.url, tmp_path / "in").notes == (f"an input file is empty: {tmp_path}/in/a.csv",)


def test_output_must_not_be_the_input(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    source = prompts(["a"])
    with pytest.raises(InputError, match="would overwrite the input"):
        run(stub.url, source, output=str(source))


def test_several_models_are_named(prompts: Prompts, run: Run) -> None:
    with StubProcess("--models", "a,b") as stub, pytest.raises(InputError, match="several models: a, b"):
        run(stub.url, prompts(["x"]), model="")


def test_nobody_listens(prompts: Prompts, run: Run) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # so that nobody else does
        with pytest.raises(Unavailable, match="does not answer"):
            run(f"http://127.0.0.1:{nobody.getsockname()[1]}", prompts(["x"]))


def test_the_key_is_sent_and_shown_nowhere(
    prompts: Prompts, run: Run, rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("MY_KEY", key)
    with StubProcess("--api-key", key) as stub:
        source = prompts(["a", f"[400] {key}"])
        with pytest.raises(Rejected, match="refuses the API key"):
            run(stub.url, source)
        assert run(stub.url, source, api_key_env="MY_KEY").failed == 1
    kept = [path.read_bytes() for path in (tmp_path / "out.parquet.checkpoint").iterdir()]
    assert not any(key.encode() in data for data in kept)


def test_a_model_that_is_not_there_stops_the_job(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    with pytest.raises(Rejected, match="refuses every request: HTTP 404"):
        run(stub.url, prompts(["[404] x"] * 50))
    assert stub.stats()["requests"] <= 8


@pytest.mark.parametrize("metrics", ["vllm", "llamacpp", "sglang"])
def test_the_engines_queue_bounds_concurrency(metrics: str, prompts: Prompts, run: Run) -> None:
    flags = ("--slots", "4", "--latency-s", "0.05", "--metrics", metrics)
    with StubProcess(*flags) as stub:
        run(stub.url, prompts([f"{n}" for n in range(300)]), max_concurrency=0)
        assert stub.stats()["peak"] == 4
