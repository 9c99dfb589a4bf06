"""Milliseconds to list 10,000 jobs: from the host, and without one, beside reading each job's folder."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, finish
from remuda.client.jobs.batches import list_jobs
from remuda.views.job_folders import JobFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.base.disk.paths import StatePaths

BOUND_MS = 50.0


def make_jobs(paths: StatePaths, count: int) -> None:
    """Folders of jobs that have ended."""
    paths.prepare()
    for number in range(count):
        folder = JobFolder(paths, f"answers-{number:05}-abcde")
        folder.path.mkdir(mode=0o700)
        progress = {"done": 1000, "total": 1000, "failed": 3, "rows_per_s": 12.5, "name": folder.id, "state": "done"}
        (folder.path / "progress.json").write_text(json.dumps(progress))
        meta = {"created_at": 1e9 + number, "kind": "batch", "what": "chat", "input": f"/data/in/{number}.parquet",
                "output": f"/data/out/{number}.parquet", "progress": str(folder.path / "progress.json")}  # fmt: skip
        (folder.path / "job.json").write_text(json.dumps(meta))
        outcome = {"state": "DONE", "reason": "3 rows have an error", "summary": {"rows": 1000, "failed": 3}}
        (folder.path / "outcome.json").write_text(json.dumps(outcome))


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """Median of some rounds, after one that warms up."""
    took = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(took[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with BenchHome() as home:
        paths = home.client.paths
        make_jobs(paths, options.jobs)
        folders_ms = median_ms(lambda: list_jobs(paths, None), 2)
        home.run("host", "start")
        assert len(list_jobs(paths, home.client)) == options.jobs
        host_ms = median_ms(lambda: list_jobs(paths, home.client, whole=False), options.rounds)
        home.run("host", "stop")
        rows_ms = median_ms(lambda: list_jobs(paths, None, whole=False), options.rounds)
    beside = "each job's folder"
    return finish(
        [
            Figure(f"{options.jobs:,} jobs, from the host", host_ms, "ms", BOUND_MS, folders_ms, beside),
            Figure(f"{options.jobs:,} jobs, without a host", rows_ms, "ms", BOUND_MS, folders_ms, beside),
        ],
        as_json=options.json,
    )


if __name__ == "__main__":
    sys.exit(main())
