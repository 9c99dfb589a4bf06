"""How long `remuda up` takes beyond what the engines take to start by themselves."""

from __future__ import annotations

import argparse
import http.client
import socket
import statistics
import subprocess
import sys
import time
from contextlib import closing

from harness import BenchHome, Figure, finish, until


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def free_ports(count: int) -> list[int]:
    with closing(socket.socket()) as first:
        first.bind(("127.0.0.1", 0))
        ports = [first.getsockname()[1]]
    while len(ports) < count:
        with closing(socket.socket()) as other:
            other.bind(("127.0.0.1", 0))
            if other.getsockname()[1] not in ports:
                ports.append(other.getsockname()[1])
    return ports


def engines_alone(count: int) -> float:
    """Seconds until `count` engines, started together, all answer."""
    ports = free_ports(count)
    begin = time.perf_counter()
    argv = [sys.executable, "-m", "tests.fakes.engine", "--port"]
    running = [subprocess.Popen([*argv, str(port)], stdout=subprocess.DEVNULL) for port in ports]
    try:
        for port in ports:
            until(lambda port=port: answers(port), f"the engine on {port}")  # type: ignore[misc]
        return time.perf_counter() - begin
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def up(home: BenchHome, name: str, **changes: object) -> float:
    file = home.swarm(name, **changes)  # type: ignore[arg-type]
    begin = time.perf_counter()
    home.run("up", "-c", str(file))
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--router", default="smg")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    alone, cold, warm, down = [], [], [], []
    for _ in range(options.rounds):
        alone.append(engines_alone(options.replicas))
        with BenchHome() as home:
            cold.append(up(home, "cold", replicas=options.replicas, router=options.router))
            home.run("down", "cold")
            warm.append(up(home, "warm", replicas=options.replicas, router=options.router))
            begin = time.perf_counter()
            home.run("down", "warm")
            down.append(time.perf_counter() - begin)
    base = statistics.median(alone)
    name = f"{options.replicas} engines alone"
    rows = {"up, no host runs": cold, "up, a host runs": warm}
    figures = [
        Figure(f"{what}, {options.replicas} replicas and router", statistics.median(times), "s", None, base, name)
        for what, times in rows.items()
    ]
    figures += [
        Figure(f"{what}: beyond the engines", statistics.median(times) - base, "s") for what, times in rows.items()
    ]
    figures.append(Figure("down", statistics.median(down), "s"))
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
