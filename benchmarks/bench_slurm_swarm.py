"""A swarm on a real Slurm: how long `remuda up` takes beyond its engines, and what a killed server costs under load."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from harness import BenchHome, Figure, finish, slurm_farm, until
from remuda.testing.slurm import cpu_farm

BEYOND_S = 3.0
INTERVAL_S, BACKOFF_S = 2.0, 1.0
"""Between two probes, and before a restart in place."""
BACKEND = {
    "type": "slurm", "partition": "cpu", "account": "inference", "qos": "normal", "time_limit": "01:00:00",
    "endpoint": {"cpus_per_task": 1, "mem": "100MB", "wall_time": "01:00:00"},
}  # fmt: skip
WATCHDOG = {"probe_interval": INTERVAL_S, "restart_backoff_initial": BACKOFF_S, "http_path": "/health"}


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def engines_alone(count: int, first_port: int) -> float:
    """Seconds until `count` engines, started together, all answer."""
    begin = time.perf_counter()
    argv = [sys.executable, "-m", "tests.fakes.engine", "--port"]
    ports = range(first_port, first_port + count)
    running = [subprocess.Popen([*argv, str(port)], stdout=subprocess.DEVNULL) for port in ports]
    try:
        for port in ports:
            until(partial(answers, port), f"the engine on {port}")
        return time.perf_counter() - begin
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


@dataclass
class Load:
    """Clients that ask one request after the other, each on a connection of its own, and never try twice."""

    endpoint: str
    good: int = 0
    bad: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """One client, until it is over."""
        body = json.dumps({"model": "bench-1", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8})
        where = urlsplit(self.endpoint)
        line = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        while not self.over.is_set():
            try:
                line.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
                answer = line.getresponse()
                said = answer.read()
                if answer.status == 200:
                    self.good += 1
                else:
                    self.bad.append(f"{answer.status} {said[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self.bad.append(repr(error))
                line.close()


def view(home: BenchHome) -> dict[str, Any]:
    found: dict[str, Any] = home.client.get("/workloads/bench")
    return found


def replica(home: BenchHome, number: int) -> dict[str, Any]:
    return next(task for task in view(home)["tasks"] if task["task"] == f"replica/{number}")


def killed(home: BenchHome, clients: int) -> list[Figure]:
    """Kill a server with all that it has begun, under load; nobody but the program beside it sees this at first."""
    load = Load(view(home)["endpoint"])
    threads = [threading.Thread(target=load.ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    until(lambda: load.good > 10 * clients, "the load is there")
    before = replica(home, 0)
    os.killpg(before["pid"], signal.SIGKILL)
    begin = time.monotonic()
    until(lambda: before["url"] not in view(home)["router"]["members"], "out of the router")
    out_s = time.monotonic() - begin
    until(lambda: replica(home, 0)["url"] in view(home)["router"]["members"], "serving again", 120)
    again_s = time.monotonic() - begin
    time.sleep(1.0)
    load.over.set()
    for thread in threads:
        thread.join()
    for text in sorted(set(load.bad))[:5]:
        print(f"failed: {text}", file=sys.stderr)
    return [
        Figure(f"a server killed under load of {clients} clients → out of the router", out_s, "s", INTERVAL_S),
        Figure("the same → serving again, after a wait of 1 s and its start", again_s, "s"),
        Figure(f"failed requests of {load.good + len(load.bad):,}", float(len(load.bad)), "", 0.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone, ups = [], []
    with slurm_farm(cpu_farm(4, cpus=options.replicas)) as bed, BenchHome() as home:
        home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")}
        home.run("host", "start")
        file = home.swarm("bench", options.replicas, backend=BACKEND, gpus_per_replica=0, cpus_per_task=1,
                          watchdog=WATCHDOG)  # fmt: skip
        for number in range(options.rounds):
            alone.append(engines_alone(options.replicas, 23000 + 100 * number))
            begin = time.perf_counter()
            home.run("up", "-c", str(file))
            ups.append(time.perf_counter() - begin)
            if number < options.rounds - 1:
                home.run("down", "bench")
        figures = killed(home, options.clients)
        home.run("down", "bench")
    base, whole = statistics.median(alone), statistics.median(ups)
    name = f"{options.replicas} engines alone"
    first = [
        Figure(f"up of {options.replicas} replicas and a router, a host runs", whole, "s", None, base, name),
        Figure("the same beyond the engines", whole - base, "s", BEYOND_S),
    ]
    return finish([*first, *figures], as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
