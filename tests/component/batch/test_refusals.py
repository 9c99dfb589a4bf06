"""What ends a job or a row at once: URLs for files, servers that ask for too much patience, a closed terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until

from remuda.base.errors import InputError, RemudaError, Unavailable
from remuda.batch import driver
from remuda.batch.job import SwarmJob
from remuda.batch.output.lock import Busy, take_lock
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fakes.stub_process import StubProcess

    from remuda.batch.output.lock import FolderLock
    from remuda.batch.request import Summary

    Prompts = Callable[..., Path]
    Rows = Callable[[], list[dict[str, Any]]]
    Run = Callable[..., Summary]

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("url", ["s3://b/o.jsonl", "gs://b/o.parquet", "file:///tmp/o.csv", "https://h/o.jsonl"])
@pytest.mark.parametrize("name", ["input", "output"])
def test_a_url_is_no_file(run: Run, prompts: Prompts, tmp_path: Path, name: str, url: str) -> None:
    source: Path | str = prompts(["x"])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError) as caught:
        run("http://127.0.0.1:1", url if name == "input" else source, **({"output": url} if name == "output" else {}))
    assert str(caught.value).startswith(f"--{name}: the {name} {url} is a URL; rows are in files")
    assert sorted(tmp_path.iterdir()) == before


def remuda(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "REMUDA_HOME": str(folder / "home")}
    return subprocess.run(
        [sys.executable, "-m", "remuda", *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["-o", "s3://b/o.jsonl"], "error: --output: the output s3://b/o.jsonl is a URL; rows are in files"),
        (["-o", "o.jsonl", "--limit", "0"], "Invalid value for '-l' / '--limit': must be at least 1, not 0"),
    ],
    ids=["url", "no row"],
)
def test_the_command_says_so(tmp_path: Path, flags: list[str], said: str) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    done = remuda(tmp_path, "job", "submit", "completion", "--endpoint", "http://127.0.0.1:1", "-i", "in.jsonl", *flags)
    assert done.returncode == 2, done
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["in.jsonl"]


# Before the first row


def test_a_job_that_was_refused_is_none(tmp_path: Path, stub: StubProcess) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    submit = ["job", "submit", "completion", "--endpoint", stub.url, "-i", "in.jsonl", "-o", "o.jsonl", "--json"]
    assert remuda(tmp_path, *submit, "--input-column", "nonsense").returncode == 2
    done = remuda(tmp_path, *submit)
    assert done.returncode == 0, done
    assert remuda(tmp_path, *submit, "--job-kwargs", '{"temperature": 1}').returncode in (2, 4)
    (listed,) = json.loads(remuda(tmp_path, "job", "list", "--json").stdout)
    assert listed["state"] == "DONE"
    assert done.stderr.startswith(f"job {listed['id']}\n")


def test_what_was_refused_before_its_first_row_leaves_no_checkpoint(
    run: Run, prompts: Prompts, tmp_path: Path, stub: StubProcess
) -> None:
    source = prompts(["x"])
    before = sorted(tmp_path.iterdir())
    stub.set(api_key="right")
    with pytest.raises(RemudaError):
        run(stub.url, source)
    stub.kill()
    with pytest.raises(Unavailable):
        run(stub.url, source)
    assert sorted(tmp_path.iterdir()) == before


def test_a_checkpoint_that_was_there_stays(run: Run, prompts: Prompts, tmp_path: Path, stub: StubProcess) -> None:
    source = prompts(["x", "y"])
    run(stub.url, source, limit=1)
    stub.kill()
    with pytest.raises(Unavailable):
        run(stub.url, source)
    stub.start()
    assert run(stub.url, source).skipped == 1


@pytest.mark.parametrize("is_held", [True, False])
def test_what_another_job_made_meanwhile_stays(
    run: Run, prompts: Prompts, tmp_path: Path, stub: StubProcess, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    rows = tmp_path / "out.parquet.checkpoint" / "rows"
    taken = take_lock

    async def taken_late(folder: Path, owner: str) -> FolderLock:
        folder.mkdir(mode=0o700)
        (folder / rows.name).write_text("of another job")
        if is_held:
            raise Busy("the checkpoint", "process 1 on here", "wait for it")
        return await taken(folder, owner)

    monkeypatch.setattr(driver, "take_lock", taken_late)
    stub.kill()
    with pytest.raises(RemudaError):
        run(stub.url, prompts(["x"]))
    assert rows.read_text() == "of another job"


# Patience


@pytest.mark.parametrize(("asked", "said"), [("86400", "1d"), ("1e300", "366d")])
def test_a_server_that_asks_for_more_patience_than_a_row_has_gets_no_more_questions(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, asked: str, said: str
) -> None:
    stub.set(rate_429=1.0, retry_after=asked)
    assert run(stub.url, prompts(["a", "b"])).failed == 2
    for row in rows():
        assert row["error"].startswith("HTTP 429: ")
        assert row["error"].endswith("and a row waits 10m at most (--timeout)"), row["error"]
        assert f"the server asks to wait {said}" in row["error"]
    assert stub.stats()["requests"] <= 4


def test_encodings_that_can_be_read_are_asked_for(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    run(stub.url, prompts(["a"]))
    assert stub.stats()["encoding"] == "gzip, deflate"


# A terminal that is closed

SLOW = """
import json, sys
from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest
from remuda.base.errors import RemudaError
try:
    run_job(JobRequest(**json.loads(sys.argv[1])))
except RemudaError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_job_whose_terminal_is_closed_keeps_its_rows(
    stub: StubProcess, prompts: Prompts, tmp_path: Path, number: signal.Signals
) -> None:
    stub.set(leave_after=5)
    source = prompts([f"row {n}" for n in range(50)])
    asked = {"endpoint": stub.url, "model": "stub", "input": str(source), "output": str(tmp_path / "out.jsonl"),
             "max_concurrency": 2}  # fmt: skip
    argv = [sys.executable, "-c", SLOW, json.dumps(asked)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as job:
        until(lambda: stub.stats()["requests"] >= 6, "rows are under way")
        job.send_signal(number)
        said, _ = job.communicate(timeout=120)
    assert said.startswith("the job was stopped; finished rows are kept"), said
    assert (tmp_path / "out.jsonl.checkpoint" / "results.log").stat().st_size > 0


def test_nohup_outlives_it(stub: StubProcess, prompts: Prompts, tmp_path: Path) -> None:
    stub.set(latency_s=0.5)
    source = prompts([f"row {n}" for n in range(8)])
    asked = {"endpoint": stub.url, "model": "stub", "input": str(source), "output": str(tmp_path / "out.jsonl"),
             "max_concurrency": 2}  # fmt: skip
    argv = ["nohup", sys.executable, "-c", SLOW, json.dumps(asked)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as job:
        until(lambda: stub.stats()["requests"] >= 2, "rows are under way")
        job.send_signal(signal.SIGHUP)
        said, _ = job.communicate(timeout=120)
    assert said == ""
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 8


# Columns of the user's own

USAGE = ("finish_reason", "prompt_tokens", "completion_tokens")


class Judge(SwarmJob):
    """Fills columns of these names with what is its own."""

    asks = False

    async def transform_items(self, items: list[Any]) -> list[Any]:
        return [(f"why {item}", f"{item} in", f"{item} out") for item in items]


def test_columns_of_usage_may_be_a_jobs_own(prompts: Prompts, tmp_path: Path) -> None:
    from remuda.batch.driver import run_job

    request = JobRequest(endpoint="", model="", input=str(prompts(["a"])), output=str(tmp_path / "out.jsonl"))
    run_job(request, job=Judge(output_cols=list(USAGE)))
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert [row[name] for name in USAGE] == ["why a", "a in", "a out"]


@pytest.mark.parametrize("name", USAGE)
def test_columns_of_usage_of_the_input_are_kept_or_told(stub: StubProcess, run: Run, tmp_path: Path, name: str) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"prompt": "x", name: "mine"}) + "\n")
    output = str(tmp_path / "out.jsonl")
    with pytest.raises(InputError, match=f"the input has a column '{name}', which the output needs for itself"):
        run(stub.url, source, output=output)
    run(stub.url, source, output=output, usage_columns=False)
    row = json.loads((tmp_path / "out.jsonl").read_text())
    assert row[name] == "mine"
