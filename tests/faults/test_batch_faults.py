"""What a batch job survives: full disks, torn files, endpoints that vanish, hang or push back, impatient users."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import patience
from tests.conftest import until
from tests.fakes.stub_process import StubProcess
from tests.ports import free_port

from remuda.base.errors import Conflict, Unavailable
from remuda.batch.driver import run_job
from remuda.batch.output.lock import FolderLock
from remuda.batch.output.log import StorageFull
from remuda.batch.request import JobRequest, Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
RUN = """
import json, sys
from tests import patience
from remuda.base.errors import RemudaError
from remuda.batch.pipeline.breaker import Breaker
from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest
patience.wait_for_models()
patience.seldom_ask_twice()
limit = int(sys.argv[2])
if limit:
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    run_job(JobRequest.from_json(json.loads(sys.argv[1])))
except RemudaError as error:
    print(type(error).__name__, error.message, "|", error.hint)
    sys.exit(error.exit_code)
"""


QUIET = """
from pathlib import Path
from remuda import SwarmJob
from remuda.batch.output.output import OutputPass

class Quiet(SwarmJob):
    asks = False
    async def transform_items(self, items):
        return items

added = OutputPass._added

def hold(self, chunk):
    if chunk.first > 0 and Path("hold").exists():
        Path("held").touch()
        self.stop.wait()
    return added(self, chunk)

OutputPass._added = hold
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stands still is waited for, and is not asked again meanwhile: its questions are counted."""
    patience.wait_for_models(monkeypatch.setattr)
    patience.seldom_ask_twice(monkeypatch.setattr)


@pytest.fixture
def stub() -> Iterator[StubProcess]:
    with StubProcess() as made:
        yield made


@pytest.fixture
def returning() -> Iterator[StubProcess]:
    """A server that can come back: its port is none that the kernel gives to somebody else meanwhile."""
    with StubProcess("--port", str(free_port())) as made:
        yield made


def write_input(folder: Path, count: int, *, width: int = 0) -> list[str]:
    prompts = [f"row {number}".ljust(width, "x") for number in range(count)]
    pq.write_table(pa.table({"prompt": prompts}), folder / "in.parquet")
    return prompts


def request(folder: Path, url: str, **fields: Any) -> JobRequest:
    values: dict[str, Any] = {"model": "stub", "max_concurrency": 8, "endpoint_wait_s": 120.0}
    source, target = str(folder / "in.parquet"), str(folder / "out.parquet")
    return JobRequest(endpoint=url, input=source, output=target, **(values | fields))


def results(folder: Path) -> list[Any]:
    found: list[Any] = pq.read_table(folder / "out.parquet").column("result").to_pylist()
    return found


def start(asked: JobRequest, *, file_limit: int = 0, cwd: Path | None = None) -> subprocess.Popen[str]:
    import json

    argv = [sys.executable, "-c", RUN, json.dumps(asked.to_json()), str(file_limit)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=cwd, env=env)


def until_asked(stub: StubProcess, requests: int) -> None:
    """Wait until so many requests have come."""
    until(lambda: stub.stats()["requests"] >= requests, f"{requests} requests have come", 120)


def small_disk(folder: Path) -> bool:
    """Mount a file system of 256 kB at `folder` where that is allowed."""
    argv = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    return os.getuid() == 0 and subprocess.run(argv, capture_output=True, check=False).returncode == 0


def test_full_disk_stops_clearly_and_goes_on(stub: StubProcess, tmp_path: Path) -> None:
    """On a real small file system where this user may mount one, else under a limit on file sizes."""
    prompts = write_input(tmp_path, 600, width=1000)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = small_disk(disk)
    asked = request(tmp_path, stub.url, checkpoint_dir=str(disk / "checkpoint"))
    try:
        with start(asked, file_limit=0 if mounted else 200_000) as process:
            said, _ = process.communicate(timeout=300)
        assert process.returncode == 1
        assert said.startswith("StorageFull the checkpoint")
        assert "cannot be written" in said
        assert "type the same command again" in said
        assert not (tmp_path / "out.parquet").exists()
        if mounted:
            with pytest.raises(StorageFull):
                run_job(asked)
            subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        before = stub.stats()["requests"]
        summary = run_job(asked)
        assert summary.skipped > 100
        assert stub.stats()["requests"] - before == summary.done == 600 - summary.skipped
        assert results(tmp_path) == [f"echo: {prompt}" for prompt in prompts]
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("cut", [1, 5, 11, 60])
def test_torn_tail_costs_its_rows_only(stub: StubProcess, tmp_path: Path, cut: int) -> None:
    prompts = write_input(tmp_path, 30)
    run_job(request(tmp_path, stub.url))
    log = tmp_path / "out.parquet.checkpoint" / "results.log"
    os.truncate(log, log.stat().st_size - cut)
    with log.open("ab") as file:
        file.write(b"\0" * 3)
    again = run_job(request(tmp_path, stub.url))
    assert 1 <= again.done <= 2
    assert stub.stats()["requests"] == 30 + again.done
    assert results(tmp_path) == [f"echo: {prompt}" for prompt in prompts]


def test_two_drivers_on_one_checkpoint(stub: StubProcess, tmp_path: Path) -> None:
    write_input(tmp_path, 3)
    lock = FolderLock(tmp_path / "out.parquet.checkpoint")
    with pytest.raises(Conflict, match=f"being written by process {os.getpid()}"):
        run_job(request(tmp_path, stub.url))
    lock.release()
    assert run_job(request(tmp_path, stub.url)).done == 3


def test_retry_after_is_waited_for(stub: StubProcess, tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["[429 once] a"]}), tmp_path / "in.parquet")
    stub.set(retry_after="2")
    began = time.monotonic()
    assert run_job(request(tmp_path, stub.url)).failed == 0
    assert time.monotonic() - began >= 2.0


def in_background(asked: JobRequest) -> tuple[threading.Thread, list[Summary | BaseException]]:
    found: list[Summary | BaseException] = []

    def work() -> None:
        try:
            found.append(run_job(asked))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, found


def test_endpoint_restarts_in_the_middle(returning: StubProcess, tmp_path: Path) -> None:
    prompts = write_input(tmp_path, 400)
    returning.set(leave_after=50)
    thread, found = in_background(request(tmp_path, returning.url, retries=1))
    until_asked(returning, 51)
    returning.kill()
    time.sleep(2.0)
    returning.start()
    thread.join(300)
    assert isinstance(found[0], Summary), found
    assert (found[0].done, found[0].failed) == (400, 0)
    assert results(tmp_path) == [f"echo: {prompt}" for prompt in prompts]


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_endpoint_that_refuses_everybody_for_a_while(stub: StubProcess, tmp_path: Path, status: int) -> None:
    """As a router does whose replicas are gone. With 500 the server itself says that it is well, so rows pay."""
    write_input(tmp_path, 200)
    stub.set(latency_s=0.02)
    thread, found = in_background(request(tmp_path, stub.url, retries=30))
    until_asked(stub, 20)
    stub.set(status=status)
    time.sleep(2.0)
    stub.set(status=200)
    thread.join(300)
    assert isinstance(found[0], Summary), found
    assert (found[0].done, found[0].failed) == (200, 0)


def test_endpoint_that_never_comes_back(returning: StubProcess, tmp_path: Path) -> None:
    write_input(tmp_path, 400)
    returning.set(leave_after=50)
    thread, found = in_background(request(tmp_path, returning.url, retries=0, endpoint_wait_s=3.0))
    until_asked(returning, 51)
    returning.kill()
    thread.join(300)
    assert isinstance(found[0], Unavailable)
    assert "has been away" in found[0].message
    returning.start()
    summary = run_job(request(tmp_path, returning.url))
    assert summary.skipped > 0
    # A row without retries left pays for a broken connection, and each of the 8 workers may lose two so: the kernel
    # closes a dead process's files newest first, which hangs up on the clients while the listening socket, the oldest,
    # still takes a new connection, only to reset that one, too.
    assert summary.failed <= 2 * 8


def test_hang_in_the_middle_of_a_body(stub: StubProcess, tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["a", "[hang] b"]}), tmp_path / "in.parquet")
    summary = run_job(request(tmp_path, stub.url, timeout_s=3.0, retries=1))
    errors = pq.read_table(tmp_path / "out.parquet").column("error").to_pylist()
    assert (summary.failed, errors) == (1, [None, "no answer within 3 s (after 2 tries)"])


def test_connections_that_break_and_answers_that_are_none(stub: StubProcess, tmp_path: Path) -> None:
    pq.write_table(pa.table({"prompt": ["a", "[reset] b", "[garbage] c"]}), tmp_path / "in.parquet")
    summary = run_job(request(tmp_path, stub.url, retries=1))
    errors = pq.read_table(tmp_path / "out.parquet").column("error").to_pylist()
    assert (summary.failed, errors[0]) == (2, None)
    assert errors[1].startswith("connection lost")
    assert errors[2].startswith("the answer is not a JSON object: <html>")


def test_server_that_pushes_back_is_not_overrun(tmp_path: Path) -> None:
    prompts = write_input(tmp_path, 300)
    with StubProcess("--slots", "4", "--latency-s", "0.02", "--queue-limit", "8") as stub:
        summary = run_job(request(tmp_path, stub.url, max_concurrency=0))
        assert summary.failed == 0
        assert stub.stats()["requests"] < 2 * len(prompts)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_is_done(stub: StubProcess, tmp_path: Path, number: signal.Signals) -> None:
    prompts = write_input(tmp_path, 300)
    stub.set(latency_s=0.05, leave_after=50)
    with start(request(tmp_path, stub.url)) as process:
        until_asked(stub, 51)
        process.send_signal(number)
        said, _ = process.communicate(timeout=300)
    stub.set(leave_after=0)
    assert process.returncode == 130
    assert said.startswith("Interrupted the job was stopped; finished rows are kept | type the same command again")
    summary = run_job(request(tmp_path, stub.url))
    assert summary.skipped >= 40
    assert stub.stats()["requests"] <= 300 + 8
    assert results(tmp_path) == [f"echo: {prompt}" for prompt in prompts]


def test_ctrl_c_while_the_output_is_written(tmp_path: Path) -> None:
    """The old output stays, nothing half-written is left, and the next run writes it without asking."""
    count = 100_000
    source = tmp_path / "in.jsonl"
    source.write_text("".join(f'{{"prompt": "{number}"}}\n' for number in range(count)))
    (tmp_path / "quiet.py").write_text(QUIET)
    (tmp_path / "hold").touch()
    target = tmp_path / "out.jsonl"
    asked = JobRequest(endpoint="", model="", input=str(source), output=str(target), job="quiet:Quiet")
    target.write_text("old")
    (tmp_path / "out.jsonl.checkpoint").mkdir(0o700)  # of an earlier job
    with start(asked, cwd=tmp_path) as process:
        until(lambda: process.poll() is not None or (tmp_path / "held").exists(), "the output is being written")
        assert list(tmp_path.glob(".out*.tmp"))
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=300)
    assert (process.returncode, said.split()[0]) == (130, "Interrupted")
    assert target.read_text() == "old"
    assert not list(tmp_path.glob(".out*"))
    (tmp_path / "hold").unlink()
    with start(asked, cwd=tmp_path) as process:
        assert process.wait(300) == 0
    with target.open() as file:
        assert sum(1 for _ in file) == count
