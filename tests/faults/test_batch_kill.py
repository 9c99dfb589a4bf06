"""A batch driver killed with -9 again and again: every row once, none lost, in order, and hardly a request twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fakes.stub_process import StubProcess

from remuda.batch.request import JobRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = 50
ROWS = 120
IN_FLIGHT = 8
INTERVAL = 4
KILLS = 2


class Nursery:
    """Starts drivers quickly; see `programs/nursery.py`."""

    def __init__(self) -> None:
        program = Path(__file__).parent / "programs" / "nursery.py"
        path = f"{Path(__file__).parents[2]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, request: JobRequest, *, kill_after_s: float | None) -> int:
        """Exit code of one driver; -9 when it was killed in time."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request.to_json()) + "\n")
        self.process.stdin.flush()
        pid = int(self._line())
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            # The nursery reaps the child when it ends by itself; its pid is not used again this soon.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self._line())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(120)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="module")
def stub() -> Iterator[StubProcess]:
    with StubProcess("--latency-s", "0.006") as made:
        yield made


@pytest.mark.parametrize("seed", range(SEEDS))
def test_killed_anywhere_and_resumed(seed: int, nursery: Nursery, stub: StubProcess, tmp_path: Path) -> None:
    chance = random.Random(seed)
    prompts = [f"seed {seed} row {number}" for number in range(ROWS)]
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pq.write_table(pa.table({"number": list(range(ROWS)), "prompt": prompts}), source)
    request = JobRequest(
        endpoint=stub.url,
        model="stub",
        input=str(source),
        output=str(target),
        max_concurrency=IN_FLIGHT,
        checkpoint_interval=INTERVAL,
        order=("input", "prefix", "auto")[seed % 3],
    )
    kills = 0
    for _ in range(KILLS):
        code = nursery.run(request, kill_after_s=chance.uniform(0.0, 0.22))
        assert code in {0, -signal.SIGKILL}
        kills += code != 0
    assert nursery.run(request, kill_after_s=None) == 0

    table = pq.read_table(target)
    assert table.column("number").to_pylist() == list(range(ROWS))
    assert table.column("prompt").to_pylist() == prompts
    assert table.column("result").to_pylist() == [f"echo: {prompt}" for prompt in prompts]
    assert table.column("error").null_count == ROWS
    counts = stub.stats()["prompts"]
    asked = [counts[prompt] for prompt in prompts]
    assert min(asked) >= 1
    # Per kill: what was in flight, and what was answered but not yet written.
    assert sum(asked) - ROWS <= kills * (IN_FLIGHT + INTERVAL)
    # Nothing is left lying about by the killed ones.
    assert {item.name for item in tmp_path.iterdir()} == {"in.parquet", "out.parquet", "out.parquet.checkpoint"}
    kept = {item.name for item in (tmp_path / "out.parquet.checkpoint").iterdir()}
    assert kept == {"lock", "job.json", "results.log", "progress.json", "output.json"}
