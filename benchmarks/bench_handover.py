"""What clients notice when all jobs of a swarm on a real Slurm hand over to their successors: failures, and p99.

A closed loop of clients asks the endpoint without a pause, first for a while in peace, then while the time limits of
both replicas and of the router are shortened so that their successors are due, until those before them have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass, field

import aiohttp

from harness import BenchHome, Figure, finish, slurm_farm
from remuda.testing.slurm import SlurmBed, cpu_farm

REPLICAS, ENGINE_S, IN_FLIGHT = 2, 0.1, 8
LIMIT, LEAD_S, SHORT_MIN = "02:00:00", 1200, 15
LONG_S = 300.0


@dataclass
class Seen:
    """What the clients of one stretch of time saw."""

    times_s: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def p99(self) -> float:
        """Seconds that one request in a hundred took longer than."""
        return statistics.quantiles(self.times_s, n=100)[98]


class Clients:
    """Ask without a pause; what they see goes to `seen`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen = Seen()
        self.is_over = False

    async def one(self, session: aiohttp.ClientSession) -> None:
        """One of them."""
        body = {"model": "bench-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        while not self.is_over:
            begun, seen = time.monotonic(), self.seen
            try:
                async with session.post(f"{self.url}/v1/chat/completions", json=body) as answer:
                    text = await answer.text()
                if answer.status != 200:
                    seen.failures.append(f"{answer.status} {text[:200]}")
            except (aiohttp.ClientError, TimeoutError) as error:
                seen.failures.append(repr(error))
            seen.times_s.append(time.monotonic() - begun)


def bring_up(home: BenchHome) -> None:
    control = home.root / "control"
    control.write_text(json.dumps({"mode": "slow", "slow_s": ENGINE_S}))
    engine = [sys.executable, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}"]
    backend = {
        "type": "slurm", "partition": "cpu", "account": "inference", "qos": "normal", "time_limit": LIMIT,
        "endpoint": {"cpus_per_task": 1, "mem": "200MB", "wall_time": LIMIT},
    }  # fmt: skip
    file = home.swarm(
        "herd", REPLICAS, backend=backend, gpus_per_replica=0, cpus_per_task=1, lifetime="1d", handover=LEAD_S,
        drain=10, command=[*engine, "--model", "bench-1", "--control", str(control)],
    )  # fmt: skip
    home.run("up", "-c", str(file))


def tasks(home: BenchHome) -> dict[str, str]:
    """Native names of the tasks on the cluster that are shown."""
    shown = home.client.get("/workloads/herd")["tasks"]
    return {task["task"]: task["native"] for task in shown if task["role"] != "relay"}


def hand_over(home: BenchHome, bed: SlurmBed) -> float:
    """Make successors due, and wait until those before them are gone; returns how long that took, in seconds."""
    first, begun = tasks(home), time.monotonic()
    for native in first.values():
        bed.run("scontrol", "update", f"JobId={native}", f"TimeLimit={SHORT_MIN}")
    while first.keys() & tasks(home).keys() or len(tasks(home)) < len(first):
        if time.monotonic() - begun > LONG_S:
            raise SystemExit(f"they do not hand over: {tasks(home)}")
        time.sleep(0.5)
    return time.monotonic() - begun


async def ask(home: BenchHome, bed: SlurmBed, calm_s: float) -> tuple[Seen, Seen, float]:
    clients = Clients(home.client.get("/workloads/herd")["endpoint"])
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        asking = [asyncio.create_task(clients.one(session)) for _ in range(IN_FLIGHT)]
        await asyncio.sleep(calm_s)
        before, clients.seen = clients.seen, Seen()
        took = await asyncio.to_thread(hand_over, home, bed)
        clients.is_over = True
        await asyncio.gather(*asking)
    return before, clients.seen, took


def measure(home: BenchHome, bed: SlurmBed, options: argparse.Namespace) -> list[Figure]:
    bring_up(home)
    before, during, took = asyncio.run(ask(home, bed, options.calm_s))
    home.run("down", "herd")
    for failure in (before.failures + during.failures)[:5]:
        sys.stderr.write(f"failed: {failure}\n")
    return [
        Figure("failed requests in peace", len(before.failures), "", 0),
        Figure("failed requests during the hand-over", len(during.failures), "", 0),
        Figure("requests during the hand-over", len(during.times_s), ""),
        Figure("p99 during the hand-over", during.p99() * 1000, "ms", None, before.p99() * 1000, "in peace"),
        Figure("p50 during the hand-over", statistics.median(during.times_s) * 1000, "ms", None,
               statistics.median(before.times_s) * 1000, "in peace"),
        Figure("from due to gone", took, "s"),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calm-s", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with slurm_farm(cpu_farm(1, cpus=8)) as bed, BenchHome() as home:
        home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")} | {"REMUDA_SLURM_POLL_S": "1"}
        return finish(measure(home, bed, options), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
