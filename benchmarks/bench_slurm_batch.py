"""Rows per second of a batch job on a real Slurm, driver and router on the cluster, beside the same rows straight.

Two engines take as long for each answer as a model would. Straight means one job at each engine, with half of the rows
and half of the requests in flight. Rounds take turns, so that a busy moment of the machine hits both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, finish, slurm_farm
from remuda.testing.slurm import cpu_farm

if TYPE_CHECKING:
    from pathlib import Path

ENGINE_S, IN_FLIGHT, REPLICAS = 0.2, 64, 2
AT_MOST = 1 / 0.9
"""Times the seconds that it takes straight."""


def submit(home: BenchHome, source: Path, name: str, *words: str) -> subprocess.Popen[str]:
    argv = ["job", "submit", "completion", "-i", str(source), "-o", str(home.root / f"{name}.jsonl"), "--job-id", name,
            "--json", *words]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "remuda", *argv], env=home.env, cwd=home.root, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def seconds(job: subprocess.Popen[str], rows: int) -> float:
    """How long a job worked, reading and writing included, waiting in the queue not."""
    out, err = job.communicate()
    if job.returncode != 0:
        raise SystemExit(f"a job failed: {err[-2000:]}")
    summary = json.loads(out)
    if summary["done"] != rows or summary["failed"]:
        raise SystemExit(f"not all rows were answered: {summary}")
    return float(summary["seconds"])


def make_inputs(home: BenchHome, rows: int) -> list[Path]:
    """The whole input, and one part for each engine."""
    lines = [json.dumps({"prompt": f"prompt {number} " * 20}) + "\n" for number in range(rows)]
    share = rows // REPLICAS
    parts = [lines, *(lines[n * share : (n + 1) * share] for n in range(REPLICAS))]
    paths = [home.root / f"in-{number}.jsonl" for number in range(len(parts))]
    for path, part in zip(paths, parts, strict=True):
        path.write_text("".join(part))
    return paths


def bring_up(home: BenchHome) -> list[str]:
    """Addresses of the engines."""
    control = home.root / "control"
    control.write_text(json.dumps({"mode": "slow", "slow_s": ENGINE_S}))
    engine = [sys.executable, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}"]
    backend = {
        "type": "slurm", "partition": "cpu", "account": "inference", "qos": "normal",
        "endpoint": {"cpus_per_task": 1, "mem": "200MB"}, "job": {"cpus_per_task": 1, "mem": "500MB"},
    }  # fmt: skip
    file = home.swarm(
        "herd", REPLICAS, backend=backend, gpus_per_replica=0, cpus_per_task=1,
        command=[*engine, "--model", "bench-1", "--control", str(control)],
    )  # fmt: skip
    home.run("up", "-c", str(file))
    tasks = home.client.get("/workloads/herd")["tasks"]
    return [task["url"] for task in tasks if task["role"] == "replica"]


def measure(home: BenchHome, options: argparse.Namespace) -> list[Figure]:
    urls = bring_up(home)
    whole, *parts = make_inputs(home, options.rows)
    routed, straight = [], []
    for number in range(options.rounds):
        job = submit(home, whole, f"routed-{number}", "--name", "herd", "--max-concurrency", str(IN_FLIGHT))
        routed.append(seconds(job, options.rows))
        each = ["--model", "bench-1", "--max-concurrency", str(IN_FLIGHT // REPLICAS)]
        jobs = [
            submit(home, part, f"straight-{number}-{place}", "--endpoint", url, *each)
            for place, (url, part) in enumerate(zip(urls, parts, strict=True))
        ]
        straight.append(max(seconds(job, options.rows // REPLICAS) for job in jobs))
    home.run("down", "herd")
    base, took = statistics.median(straight), statistics.median(routed)
    rate, base_rate = options.rows / took, options.rows / base
    return [
        Figure(f"{options.rows} rows through the router on Slurm", took, "s", base * AT_MOST, base, "straight"),
        Figure("rows per second", rate, "/s", None, base_rate, "straight"),
        Figure("rows per second that the engines can answer", IN_FLIGHT / ENGINE_S, "/s"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with slurm_farm(cpu_farm(1, cpus=8)) as bed, BenchHome() as home:
        home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")}
        return finish(measure(home, options), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
