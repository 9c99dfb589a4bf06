"""A stub server for the tests of this room, and short ways to run jobs over small inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import patience
from tests.fakes.stub_process import StubProcess

from remuda.base.errors import RemudaError
from remuda.batch.driver import run_job
from remuda.batch.job import SwarmJob
from remuda.batch.request import JobRequest, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stands still is waited for."""
    patience.wait_for_models(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server that stands still was asked is not asked again meanwhile: tests count its questions."""
    patience.seldom_ask_twice(monkeypatch.setattr)


@pytest.fixture
def stub() -> Iterator[StubProcess]:
    with StubProcess() as made:
        yield made


@pytest.fixture
def prompts(tmp_path: Path) -> Callable[[list[Any]], Path]:
    """Write prompts (or messages) as a parquet file with a number column; returns its path."""

    def write(items: list[Any], *, column: str = "prompt", name: str = "in.parquet") -> Path:
        path = tmp_path / name
        pq.write_table(pa.table({"number": list(range(len(items))), column: items}), path)
        return path

    return write


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Summary]:
    """Run a job over a file into `out.parquet`; keyword arguments are fields of the request."""

    def start(url: str, source: Path | str, **fields: Any) -> Summary:
        values: dict[str, Any] = {"model": "stub", "output": str(tmp_path / "out.parquet"), "max_concurrency": 8}
        return run_job(JobRequest(endpoint=url, input=str(source), **(values | fields)))

    return start


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """Rows of `out.parquet`."""

    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pq.read_table(tmp_path / "out.parquet").to_pylist()
        return found

    return read


class Echo(SwarmJob):
    """Says what it is given, and remembers it."""

    asks = False

    def __init__(self, **options: Any) -> None:
        super().__init__(max_concurrency=4, **options)
        self.asked: list[Any] = []

    async def transform_items(self, items: list[Any]) -> list[Any]:
        """One answer per item."""
        self.asked += items
        return [f"echo: {item}" for item in items]


@pytest.fixture
def echo() -> Callable[..., tuple[list[Any], Summary]]:
    """Run `Echo` from a file into another; returns what it was asked in this run, and the summary."""

    def start(source: Path | str, target: Path | str, **fields: Any) -> tuple[list[Any], Summary]:
        job = Echo()
        values: dict[str, Any] = {"endpoint": "", "model": "", "input": str(source), "output": str(target)}
        try:
            summary = run_job(JobRequest(**(values | fields)), job=job)
        except RemudaError as error:
            error.asked = job.asked  # type: ignore[attr-defined]
            raise
        return job.asked, summary

    return start
