"""504 says that a gateway waited too long: for rows that are too long, or for an engine that has too much to do."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.stub_process import StubProcess

from remuda.base.errors import Interrupted, Unavailable
from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.batch.progress import Progress
    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]


@pytest.mark.parametrize("concurrency", [1, 8])
def test_all_are_refused_for_a_while_and_no_row_pays(
    stub: StubProcess, prompts: Prompts, run: Run, concurrency: int
) -> None:
    source = prompts([f"row {number}" for number in range(100)])
    stub.set(gateway=-1)
    timer = threading.Timer(3.0, lambda: stub.set(gateway=0))
    timer.start()
    try:
        assert run(stub.url, source, retries=1, max_concurrency=concurrency).failed == 0
    finally:
        timer.join()


def test_an_endpoint_that_never_gets_round_to_it_stops_the_job(
    stub: StubProcess, prompts: Prompts, run: Run, tmp_path: Path
) -> None:
    source = prompts([f"row {number}" for number in range(100)])
    stub.set(gateway=-1)
    with pytest.raises(Unavailable, match="HTTP 504") as caught:
        run(stub.url, source, retries=1, endpoint_wait_s=2.0)
    assert "--max-concurrency" in caught.value.hint
    assert not (tmp_path / "out.parquet").exists()
    stub.set(gateway=0)
    again = run(stub.url, source)
    assert (again.failed, again.done + again.skipped) == (0, 100)


def test_too_much_at_once_is_asked_slower(prompts: Prompts, run: Run) -> None:
    """The endpoint manages four at once and answers all others 504, while its health says that it is well."""
    with StubProcess("--slots", "1000", "--latency-s", "0.02", "--gateway", "4") as stub:
        summary = run(stub.url, prompts([f"row {number}" for number in range(60)]), max_concurrency=64, retries=3)
        assert summary.failed == 0


@pytest.mark.parametrize("concurrency", [1, 8])
def test_rows_that_take_too_long_pay_for_themselves(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, concurrency: int
) -> None:
    texts = [f"row {number}" for number in range(40)]
    for number in (3, 17, 39):
        texts[number] = f"[504] {number}"
    began = time.monotonic()
    assert run(stub.url, prompts(texts), retries=1, max_concurrency=concurrency).failed == 3
    assert time.monotonic() - began < 300
    assert rows()[3]["error"] == "HTTP 504: scripted 504 (after 2 tries)"
    assert max(stub.stats()["prompts"].values()) <= 12


def test_only_rows_that_take_too_long(stub: StubProcess, prompts: Prompts, run: Run) -> None:
    """Nobody is left who could be answered: each row is asked alone before it is given up."""
    assert run(stub.url, prompts(["[504] a", "[504] b"]), retries=1).failed == 2


def test_a_server_that_wants_to_be_left_alone_for_long_is_told_of(
    stub: StubProcess, prompts: Prompts, tmp_path: Path
) -> None:
    stub.set(rate_429=1.0, retry_after="599")
    notes: list[str] = []

    def look(progress: Progress) -> None:
        if progress.state == "waiting" and not notes:
            notes.append(progress.note)
            os.kill(os.getpid(), signal.SIGINT)

    request = JobRequest(
        endpoint=stub.url, model="stub", input=str(prompts(["a", "b"])), output=str(tmp_path / "out.parquet")
    )
    with pytest.raises(Interrupted):
        run_job(request, look)
    assert re.match(r"HTTP 429: .*; the next row is asked in 9m \d+s, as the server wants it", notes[0])
