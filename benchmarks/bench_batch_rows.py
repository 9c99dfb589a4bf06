"""A million rows through a job that does nothing: memory, CPU and number of files, beside a hundred thousand rows.

Each size runs in a process of its own; peak memory is that of the process, imports and output included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from remuda import SwarmJob

SIZES = (100_000, 1_000_000)
WIDTH = 120


class Nothing(SwarmJob):
    """Gives every item back."""

    asks = False

    async def transform_items(self, items: list[Any]) -> list[Any]:
        """The items."""
        return items


def make_input(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("id", pa.int64()), ("messages", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 50_000):
            ids = list(range(start, min(start + 50_000, rows)))
            texts = [f"prompt {number} ".ljust(WIDTH, "x") for number in ids]
            writer.write_table(pa.table({"id": ids, "messages": texts}, schema=schema))


def run(source: Path, target: Path) -> dict[str, float]:
    from remuda.batch.driver import run_job
    from remuda.batch.request import JobRequest

    cpu, wall = time.process_time(), time.perf_counter()
    summary = run_job(
        JobRequest(endpoint="", model="", input=str(source), output=str(target)), job=Nothing(max_concurrency=8)
    )
    assert summary.done == summary.rows
    return {
        "rows": summary.rows,
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "files": sum(1 for _ in Path(summary.checkpoint).iterdir()),
    }


def child(*argv: str) -> Any:
    command = [sys.executable, __file__, "--child", *argv]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out) if out else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+")
    options = parser.parse_args()
    if options.child:
        what, source, *rest = options.child
        if what == "make":
            make_input(Path(source), int(rest[0]))
        else:
            print(json.dumps(run(Path(source), Path(rest[0]))))
        return
    with tempfile.TemporaryDirectory() as name:
        seen = []
        for rows in SIZES:
            source = f"{name}/in-{rows}.parquet"
            child("make", source, str(rows))
            seen.append(child("run", source, f"{name}/out-{rows}.parquet"))
    small, large = seen
    result = {
        "runs": seen,
        "peak_ratio": large["peak_mb"] / small["peak_mb"],
        "targets": {"peak_mb": 300, "cpu_s": 60, "peak_ratio": 1.2},
    }
    if options.json:
        print(json.dumps(result))
        return
    for item in seen:
        print(
            f"{item['rows']:>9,} rows: {item['cpu_s']:5.1f} s CPU, peak {item['peak_mb']:.0f} MB, {item['files']} files"
        )
    print(f"peak memory, 1 M over 100 k rows: {result['peak_ratio']:.2f}   (targets: below 300 MB, below 60 s CPU)")
    if large["peak_mb"] >= 300 or large["cpu_s"] >= 60 or large["files"] > 20:
        sys.exit("a target is missed")


if __name__ == "__main__":
    main()
