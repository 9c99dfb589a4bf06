"""A sweep of 1,000 deployments of which 990 are known: seconds until the first new one, CPU of the host's loop.

Beside that: one look at 10,000 rows; several loads on one deployment and each on its own; and swarms with a job each,
one after the other, by a pool and by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.unit.bench.invented import keep, point

from harness import BenchHome, Figure, cpu_seconds, finish, until
from remuda.client.bench import sweeps
from remuda.look import planning
from remuda.look.kinds.deployment import plan_sweep
from remuda.store.rows import CampaignItemRow
from remuda.supervise.campaign import DONE, OVER, due

STANDINS = Path(__file__).parents[1] / "tests/standins"
ROWS = 10_000


def write(home: BenchHome, **changes: Any) -> None:
    """A recipe whose engines are stand-ins: `seqs` makes configs."""
    (home.root / "model").mkdir(exist_ok=True)
    (home.root / "model/config.json").write_text("{}")
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    document = {
        "kind": "deployment", "name": "grid", "model": {"path": str(home.root / "model"), "name": "tiny"},
        "python": sys.executable, "engine": "mocker", "env": {"PYTHONPATH": path, "SEQS": "{seqs}"},
        "roles": {"prefill": {}, "decode": {}},
        "benchmark": {"type": "sa-bench", "isl": 40, "osl": 8, "concurrencies": [1], "num_prompts_mult": 12}, **changes,
    }  # fmt: skip
    (home.root / "grid.yaml").write_text(json.dumps(document))


def know(home: BenchHome, count: int) -> None:
    """Store a point for each of the first deployments."""
    with patch.dict(os.environ, home.env), chdir(home.root):
        facts = planning.facts_of()
        found = sweeps.points_of(plan_sweep(facts, ("grid.yaml",)), facts)
    keep([replace(point(), id=one["address"]) for one in found[:count]], home.root / "home")


def first_new(home: BenchHome) -> tuple[float, float]:
    """Seconds from the command to its first deployment, and CPU of the host until then."""
    pid = int(json.loads((home.root / "home/host.json").read_text())["pid"])
    before, begin = cpu_seconds(pid), time.perf_counter()
    words = [sys.executable, "-m", "remuda", "apply", str(home.root / "grid.yaml"), "--sweep", "--no-wait"]
    command = subprocess.Popen(words, env=home.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: any(Path(home.root / "home/workloads").glob("grid-*")), "a deployment is there")
    found = time.perf_counter() - begin, cpu_seconds(pid) - before
    command.wait()
    home.run("sweep", "cancel", "grid")
    return found


def known(count: int) -> list[Figure]:
    """A large sweep that is nearly done, beside one of a single deployment."""
    with BenchHome() as home:
        write(home, sweep={"seqs": [0]})
        home.run("host", "start")
        alone_s, alone_cpu_s = first_new(home)
    with BenchHome() as home:
        write(home, sweep={"seqs": [*range(count)]})
        home.run("host", "start")
        know(home, count - 10)
        took_s, cpu_s = first_new(home)
    name = f"{count:,} deployments, 10 of them new"
    return [
        Figure(f"{name}: until the first is made", took_s, "s", None, alone_s, "one deployment"),
        Figure(f"{name}: CPU of the host until then", cpu_s, "s", None, alone_cpu_s, "one deployment"),
    ]


def look() -> Figure:
    """One look at many rows, beside a loop that only counts those that are over."""
    rows = [
        CampaignItemRow("p", n, f"r{n}", state=OVER if n < ROWS - 10 else "waiting", outcome=DONE) for n in range(ROWS)
    ]
    took, base = [], []
    for _ in range(20):
        begin = time.perf_counter()
        due(rows, {}, 2, 0.0)
        middle = time.perf_counter()
        sum(1 for row in rows if row.state == OVER and row.outcome == DONE)
        took.append(middle - begin)
        base.append(time.perf_counter() - middle)
    return Figure(f"one look at {ROWS:,} rows", min(took) * 1e3, "ms", 20.0, min(base) * 1e3, "counting them")


def together(count: int) -> Figure:
    """So many loads on one deployment, beside a deployment for each."""
    times = []
    for loads, configs in ((count, 1), (1, count)):
        with BenchHome() as home:
            bench = {
                "type": "sa-bench",
                "isl": 40,
                "osl": 8,
                "concurrencies": [*range(1, loads + 1)],
                "num_prompts_mult": 12,
            }
            write(home, sweep={"seqs": [*range(configs)]}, benchmark=bench)
            home.run("host", "start")
            begin = time.perf_counter()
            words = [sys.executable, "-m", "remuda", "apply", str(home.root / "grid.yaml"), "--sweep"]
            subprocess.run(words, env=home.env, capture_output=True, check=False)  # 1: a point is invalid
            times.append(time.perf_counter() - begin)
    return Figure(f"{count} loads on one deployment", times[0], "s", None, times[1], f"{count} deployments")


def pool(count: int) -> Figure:
    """Swarms one after the other, each with its job."""
    with BenchHome() as home:
        home.run("host", "start")
        (home.root / "in.jsonl").write_text("".join(f'{{"prompt": "row {n}"}}\n' for n in range(30)))
        files = [home.swarm(f"s{n}", replicas=1, router="none") for n in range(count)]
        begin = time.perf_counter()
        for number, file in enumerate(files):
            rows = [str(home.root / "in.jsonl"), str(home.root / f"hand{number}.jsonl")]
            home.run("up", "-c", str(file))
            home.run("job", "submit", "completion", "--input", rows[0], "--output", rows[1], "--name", f"s{number}")
            home.run("down", f"s{number}")
        by_hand = time.perf_counter() - begin
        jobs = [{"job": "completion", "input": "in.jsonl", "output": f"pool{number}.jsonl"} for number in range(count)]
        members = [{"config": file.name, "job": job} for file, job in zip(files, jobs, strict=True)]
        (home.root / "pool.yaml").write_text(json.dumps({"max_concurrent": 1, "swarms": members}))
        begin = time.perf_counter()
        home.run("pool", "-c", str(home.root / "pool.yaml"))
        took = time.perf_counter() - begin
    return Figure(f"a pool of {count} jobs, one after the other", took, "s", None, by_hand, "the commands by hand")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deployments", type=int, default=1_000)
    parser.add_argument("--loads", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = [*known(options.deployments), look(), together(options.loads), pool(options.jobs)]
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
