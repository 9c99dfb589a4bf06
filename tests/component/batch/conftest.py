"""A stub server for the tests of this room, and short ways to run jobs over small inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest, Summary
from remuda.testing.stub_process import StubProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


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
