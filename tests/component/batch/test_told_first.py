"""What an output cannot take and an input cannot give is told before anything is asked; the rest is unchanged."""

from __future__ import annotations

import decimal
import json
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remuda.base.errors import InputError, RemudaError
from remuda.batch.driver import run_job
from remuda.batch.job import SwarmJob
from remuda.batch.output.checkpoint import Checkpoint
from remuda.batch.output.log import scan
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fakes.stub_process import StubProcess

    from remuda.batch.request import Summary

    Run = Callable[..., tuple[list[Any], Summary]]

#: Made where they are used: the first array of a process loads pandas.
TEXT = ["a", "b"]
BYTES = [b"\x00\xff", b"x"]


def make(folder: Path, name: str, content: Any) -> Path:
    """Write an input: a table, which a function makes, text, or bytes; a dict makes a folder."""
    path = folder / name
    if callable(content):
        content = content()
    if isinstance(content, dict):
        path.mkdir()
        for inner, item in content.items():
            make(path, inner, item)
    elif isinstance(content, pa.Table):
        pq.write_table(content, path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(echo: Run, source: Path | str, target: Path | str, **fields: Any) -> str:
    """What is said, and nothing was asked."""
    with pytest.raises(RemudaError) as caught:
        echo(source, target, **fields)
    assert caught.value.asked == []  # type: ignore[attr-defined]
    assert isinstance(caught.value, InputError)
    return caught.value.message


def twins() -> pa.Table:
    return pa.Table.from_arrays([pa.array(TEXT)] * 3, names=["prompt", "x", "x"])


def cut_parquet() -> bytes:
    made = pa.BufferOutputStream()
    pq.write_table(pa.table({"prompt": TEXT}), made)
    raw: bytes = made.getvalue().to_pybytes()
    return raw[: len(raw) // 2]


def jsonl(*rows: Any) -> bytes:
    """Rows as stdlib JSON writes them: integers of any size."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


UNCHANGED = "--output: column 'n' cannot be written to parquet unchanged: "
OUTPUTS = {
    "two columns": ("in.parquet", twins, "out.parquet", "--input: {source} has two columns 'x'"),
    "two columns of csv": ("in.csv", "prompt,x,x\na,1,2\n", "out.csv", "--input: {source} has two columns 'x'"),
    "bytes to csv": (
        "in.parquet",
        lambda: pa.table({"prompt": TEXT, "image": BYTES}),
        "out.csv",
        "--output: column 'image' is binary: csv cannot store bytes",
    ),
    "bytes to jsonl": (
        "in.parquet",
        lambda: pa.table({"prompt": TEXT, "image": BYTES}),
        "out.jsonl",
        "--output: column 'image' is binary: jsonl cannot store bytes",
    ),
    "bytes inside": (
        "in.parquet",
        lambda: pa.table({"prompt": TEXT, "image": pa.array([{"bytes": b"x"}, None])}),
        "out.jsonl",
        "--output: column 'image' is struct<bytes: binary>: jsonl cannot store bytes",
    ),
    "a type that csv lacks": (
        "in.parquet",
        lambda: pa.table({"prompt": TEXT, "x": pa.array(["a", "b"], pa.string_view())}),
        "out.csv",
        "--output: column 'x' is string_view, which csv cannot hold: Unsupported Type:string_view",
    ),
    "a column error": (
        "in.parquet",
        lambda: pa.table({"prompt": TEXT, "error": TEXT}),
        "out.parquet",
        "--input: the input has a column 'error', which the output needs for itself",
    ),
    "a column error in the last row": (
        "in.jsonl",
        b'{"prompt": "a"}\n' * 2000 + b'{"prompt": "b", "error": "mine"}\n',
        "out.jsonl",
        "--input: the input has a column 'error', which the output needs for itself",
    ),
    "integers above 64 bits": (
        "in.jsonl",
        jsonl({"prompt": "a", "n": 1}, {"prompt": "b", "n": 1 << 64}),
        "out.parquet",
        UNCHANGED + "it has 18446744073709551616, an integer of more than 64 bits",
    ),
    "u64 beside negatives": (
        "in.jsonl",
        jsonl({"prompt": "a", "n": -1}, {"prompt": "b", "n": (1 << 64) - 1}),
        "out.parquet",
        UNCHANGED + "it has -1 and 18446744073709551615, which no integer type has both",
    ),
    "long integers beside fractions": (
        "in.jsonl",
        jsonl(*[{"prompt": "a", "n": (1 << 53) + 1}] * 1024, {"prompt": "b", "n": 0.5}),
        "out.parquet",
        UNCHANGED + "it has fractions beside 9007199254740993, which no float is exactly",
    ),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_that_cannot_hold_it(tmp_path: Path, echo: Run, case: str) -> None:
    name, content, target, words = OUTPUTS[case]
    source = make(tmp_path, name, content)
    assert refusal(echo, source, tmp_path / target) == words.format(source=source)


INPUTS = {
    "no parquet": (
        "x.parquet",
        b'{"prompt": "a"}\n',
        "{source} cannot be read: Parquet magic bytes not found in footer",
    ),
    "cut parquet": ("x.parquet", cut_parquet, "{source} cannot be read: Parquet magic bytes not found in footer"),
    "empty parquet": ("x.parquet", b"", "{source} cannot be read: Parquet file size is 0 bytes"),
    "ragged csv": (
        "x.csv",
        "prompt,n\n" + "a,1\n" * 3000 + "b,1,2\n",
        "{source} cannot be read: CSV parse error: Row #3002: Expected 2 columns, got 3: b,1,2",
    ),
    "latin-1 csv": ("x.csv", "prompt\nä\n".encode("latin-1"), "{source}:2: the line is not utf8"),
    "latin-1 header": ("x.csv", "prömpt\na\n".encode("latin-1"), "{source}:1: the line is not utf8"),
    "empty csv": ("x.csv", b"", "{source} is empty"),
    "utf-16 jsonl": ("x.jsonl", '{"prompt": "a"}\n'.encode("utf-16"), "{source}:1: not JSON"),
    "empty jsonl": ("x.jsonl", b"", "--input: input {source} is empty"),
    "other separator": ("x.csv", b"prompt;n\na;1\n", "--input: input {source} has none of the columns messages"),
    "other columns": (
        "x",
        {"1.parquet": lambda: pa.table({"prompt": TEXT, "a": TEXT}), "2.parquet": lambda: pa.table({"prompt": TEXT})},
        "--input: {source}/2.parquet has no column 'a', which {source}/1.parquet has",
    ),
    "other types": (
        "x",
        {
            "1.parquet": lambda: pa.table({"prompt": TEXT, "a": [1, 2]}),
            "2.parquet": lambda: pa.table({"prompt": TEXT, "a": TEXT}),
        },
        "--input: column 'a' is string in {source}/2.parquet and int64 in {source}/1.parquet",
    ),
    "types that fit, values that do not": (
        "x",
        {
            "1.parquet": lambda: pa.table({"prompt": TEXT, "a": [0.5, 2]}),
            "2.parquet": lambda: pa.table({"prompt": TEXT, "a": [1, (1 << 53) + 1]}),
        },
        "column 'a' is int64 in {source}/2.parquet, and double for all files together: Integer value 9007199254740993",
    ),
    "other formats": (
        "x",
        {"1.csv": "prompt\na\n", "2.jsonl": b"{}\n"},
        "--input: {source} mixes files of several formats",
    ),
    "nothing in it": ("x", {"readme.txt": "a"}, "--input: directory {source} holds no parquet, jsonl or csv file"),
    "no rows of that column": ("x.jsonl", b'{"a": 1, "b": 2}\n', "--input: input {source} has none of the columns"),
}


@pytest.mark.parametrize("name", ["notes.csv", "notes.jsonl", "notes.parquet"])
def test_a_file_that_no_job_wrote_is_kept(tmp_path: Path, echo: Run, name: str) -> None:
    source, target = make(tmp_path, "in.csv", "prompt\na\n"), tmp_path / name
    target.write_text("mine")
    assert refusal(echo, source, target) == f"--output: the output {target} exists without a checkpoint"
    assert target.read_text() == "mine"
    assert not list(tmp_path.glob("*.checkpoint"))
    echo(source, target, resume=False)
    assert target.read_bytes() != b"mine"
    echo(source, target)
    target.write_bytes(b"")
    shutil.rmtree(f"{target}.checkpoint")
    echo(source, target)  # an empty file, as mktemp makes them, is nobody's work


@pytest.mark.parametrize("case", INPUTS)
def test_an_input_that_cannot_be_read(tmp_path: Path, echo: Run, case: str) -> None:
    name, content, words = INPUTS[case]
    source = make(tmp_path, name, content)
    said = refusal(echo, source, tmp_path / "out.parquet")
    assert said.startswith(words.format(source=source)), said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"read_kwargs": {"batch_size": 0}}, "batch_size is 0; it must be an integer above zero"),
        ({"read_kwargs": {"batch_size": "many"}}, "batch_size is 'many'"),
        ({"read_kwargs": {"delimiter": "||"}}, "a csv option is wrong: "),
        ({"read_kwargs": {"encoding": "nope"}}, "a csv option is wrong: unknown encoding: nope"),
        ({"read_kwargs": {"column_types": {"prompt": "nope"}}}, "a csv option is wrong: No type alias for nope"),
        ({"read_kwargs": {"column_types": {"nope": "int64"}}}, "column_types names 'nope', which "),
        ({"read_kwargs": {"column_types": {"prompt": "int64"}}}, "cannot be read: In CSV column #0: "),
        ({"write_kwargs": {"nope": 1}}, "unknown write option: "),
        ({"write_kwargs": {"compression": "nope"}}, "wrong write option: Unsupported compression: nope"),
        ({"write_kwargs": {"compression": "gzip", "compression_level": 99}}, "wrong write option: "),
        ({"input": "x" * 5000 + ".csv"}, "File name too long"),
    ],
)
def test_options_that_are_wrong(tmp_path: Path, echo: Run, fields: dict[str, Any], words: str) -> None:
    source = make(tmp_path, "in.csv", "prompt\na\n")
    assert words in refusal(echo, source, tmp_path / "out.parquet", **fields)


def test_an_output_where_nothing_can_be_written(tmp_path: Path, echo: Run) -> None:
    """In /proc not even root can make a file."""
    source, kept = make(tmp_path, "in.csv", "prompt\na\n"), str(tmp_path / "checkpoint")
    said = refusal_of_any_kind(echo, source, "/proc/out.parquet", checkpoint_dir=kept)
    assert said.startswith("the output /proc/out.parquet cannot be used: ")
    assert refusal(echo, source, "/proc/new/out.csv", checkpoint_dir=kept).startswith(
        "--output: /proc/new/out.csv cannot"
    )


def refusal_of_any_kind(echo: Run, source: Path, target: str, **fields: Any) -> str:
    with pytest.raises(RemudaError) as caught:
        echo(source, target, **fields)
    assert caught.value.asked == []  # type: ignore[attr-defined]
    return caught.value.message


def test_two_columns_of_the_jobs_own(tmp_path: Path) -> None:
    source = make(tmp_path, "in.csv", "prompt\na\n")
    job = SwarmJob(output_cols=["a", "error"])
    request = JobRequest(endpoint="http://127.0.0.1:9", model="m", input=str(source), output=str(tmp_path / "x.csv"))
    with pytest.raises(InputError, match="the output would have two columns 'error'"):
        run_job(request, job=job)


@pytest.mark.parametrize(
    ("job", "names", "told"),
    [
        ("chat", ("a", "b"), "the job's answers fill one column, not 2 columns (a, b)"),
        ("perplexity", ("a",), "the job's answers fill 3 columns, not one (a)"),
    ],
)
def test_as_many_columns_as_the_answers_fill(
    tmp_path: Path, stub: StubProcess, job: str, names: tuple[str, ...], told: str
) -> None:
    source = make(tmp_path, "in.jsonl", '{"messages": [{"role": "user", "content": "a"}]}\n')
    request = JobRequest(stub.url, "m", str(source), str(tmp_path / "x.csv"), job=job, output_columns=names)
    with pytest.raises(InputError, match=re.escape(told)):
        run_job(request)
    assert not (tmp_path / "x.csv").exists()


def test_an_output_that_is_something_else(tmp_path: Path, echo: Run) -> None:
    source = make(tmp_path, "in.csv", "prompt\na\n")
    (tmp_path / "out.jsonl").mkdir()
    assert refusal(echo, source, tmp_path / "out.jsonl") == f"--output: the output {tmp_path}/out.jsonl is a directory"
    (tmp_path / "out").touch()
    there = f"--output: the output {tmp_path}/out exists and is not a directory"
    assert refusal(echo, source, tmp_path / "out") == there
    assert refusal(echo, source, tmp_path / "out" / "x.csv").startswith(
        f"--output: {tmp_path}/out/x.csv cannot be made: "
    )
    (tmp_path / "parts" / "part-00000.parquet").mkdir(parents=True)
    assert "holds other files (part-00000.parquet)" in refusal(echo, source, tmp_path / "parts")


FULL = """
import json, resource, signal, sys
from remuda.base.errors import RemudaError
from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    run_job(JobRequest.from_json(json.loads(sys.argv[1])))
except RemudaError as error:
    sys.exit(error.message)
"""


def test_an_output_for_which_there_is_no_room(tmp_path: Path, stub: StubProcess) -> None:
    """Files may be long enough for the beginning of a checkpoint, and not for an output."""
    source = make(tmp_path, "in.csv", "prompt\na\n")
    request = {"endpoint": stub.url, "model": "stub", "input": str(source), "output": str(tmp_path / "out.csv")}
    done = subprocess.run(
        [sys.executable, "-c", FULL, orjson.dumps(request).decode()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, stub.stats()["requests"]) == (1, 0), done.stderr
    assert re.match(f"--output: the output {tmp_path}/out.csv cannot be written: File too large", done.stderr)
    assert not [name for name in tmp_path.iterdir() if name.suffix == ".tmp"]


def test_numbers_come_out_as_they_came_in(tmp_path: Path, echo: Run) -> None:
    numbers = [1 << 70, -(1 << 70), (1 << 64) - 1, -1, 10**40, 1.5, (1 << 53) + 1]
    source = make(tmp_path, "in.jsonl", jsonl(*({"prompt": "a", "n": n, "deep": [{"n": n}]} for n in numbers)))
    echo(source, tmp_path / "out.jsonl")
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["n"], row["deep"]) for row in found] == [(n, [{"n": n}]) for n in numbers]
    assert [type(row["n"]) for row in found] == [type(n) for n in numbers]


def test_unsigned_numbers_stay_numbers(tmp_path: Path, echo: Run) -> None:
    source = make(tmp_path, "in.jsonl", jsonl(*({"prompt": "a", "n": n} for n in [*[1] * 1500, (1 << 64) - 1, None])))
    echo(source, tmp_path / "out.parquet")
    column = pq.read_table(tmp_path / "out.parquet").column("n")
    assert column.type == pa.uint64()
    assert column.to_pylist()[-3:] == [1, (1 << 64) - 1, None]


def test_parquet_keeps_types_and_metadata(tmp_path: Path, echo: Run) -> None:
    table = pa.table(
        {
            "prompt": TEXT,
            "image": BYTES,
            "price": pa.array([decimal.Decimal("1.10"), None]),
            "n": pa.array([(1 << 64) - 1, 0], pa.uint64()),
            "kind": pa.array(["x", "y"]).dictionary_encode(),
        }
    )
    features = {b"huggingface": b'{"info": {"features": {"prompt": {"dtype": "string", "_type": "Value"}}}}'}
    field = table.schema.field("n").with_metadata({b"unit": b"bytes"})
    schema = table.schema.set(3, field).with_metadata(features)
    source = tmp_path / "in.parquet"
    pq.write_table(table.cast(schema), source)
    echo(source, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.select(table.column_names).equals(pq.read_table(source))
    assert found.schema.metadata[b"huggingface"] == features[b"huggingface"]
    assert found.schema.field("n").metadata[b"unit"] == b"bytes"


def test_columns_of_later_files_are_kept(tmp_path: Path, echo: Run) -> None:
    source = make(
        tmp_path,
        "in",
        {
            "1.parquet": lambda: pa.table({"prompt": TEXT, "n": pa.array([1, 2], pa.int32())}),
            "2.parquet": lambda: pa.table({"prompt": TEXT, "n": [1 << 40, 0], "more": ["x", "y"]}),
        },
    )
    echo(source, tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.column("n").to_pylist() == [1, 2, 1 << 40, 0]
    assert found.column("more").to_pylist() == [None, None, "x", "y"]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path, echo: Run) -> None:
    for name, text in (("in.csv", "prompt,id\na,007\n"), ("in.jsonl", '{"prompt": "a", "id": "007"}\n')):
        source = make(tmp_path, name, b"\xef\xbb\xbf" + text.encode())
        echo(source, tmp_path / f"{name}.parquet")
        row = pq.read_table(tmp_path / f"{name}.parquet").to_pylist()[0]
        assert (row["prompt"], row["id"], row["result"]) == ("a", "007", "echo: a")


def test_what_a_checkpoint_has_of_usage_is_never_too_much_for_an_output(tmp_path: Path, stub: StubProcess) -> None:
    """Records that were written before servers' counts were looked at."""
    source = make(tmp_path, "in.csv", "prompt\na\nb\n")
    request = JobRequest(endpoint=stub.url, model="stub", input=str(source), output=str(tmp_path / "out.parquet"))
    run_job(request)
    folder = tmp_path / "out.parquet.checkpoint"
    key = next(raw[:16] for _, raw in scan(folder / "results.log") if raw[:8] == bytes(8))
    checkpoint = Checkpoint(folder, ids=None, keep=True)
    checkpoint.write(0, key, b'[["x"],null,5.5,18446744073709551615,7]', failed=False)
    checkpoint.flush()
    checkpoint.close()
    assert run_job(request).done == 0
    row = pq.read_table(tmp_path / "out.parquet").to_pylist()[0]
    assert (row["result"], row["prompt_tokens"], row["completion_tokens"]) == ("x", None, None)
    assert row["finish_reason"] == "7"
