"""What the host and the node programs use while nothing happens, beside a process that wakes once a second."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from harness import BenchHome, Figure, cpu_seconds, finish

BOUND_PERCENT = 0.5
BASELINE = "import asyncio\nasync def main():\n while True: await asyncio.sleep(1)\nasyncio.run(main())"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--settle", type=float, default=5.0, help="seconds before measuring")
    parser.add_argument("--router", default="smg", help="smg, nginx or none (with one replica)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with BenchHome() as home:
        idle = subprocess.Popen([sys.executable, "-c", BASELINE])
        try:
            home.run("up", "-c", str(home.swarm("herd", options.replicas, router=options.router)))
            time.sleep(options.settle)
            view = home.client.get("/workloads/herd")
            if view["phase"] != "RUNNING" or view["ready"] != options.replicas:
                raise SystemExit(f"it is not idle: {view['phase']}, {view['ready']} ready, {view['reason']}")
            host = int(home.client.get("/host")["pid"])
            nodes = [int(pid) for pid in _parents([task["pid"] for task in view["tasks"]])]
            begin = time.monotonic()
            before = {pid: cpu_seconds(pid) for pid in (host, idle.pid, *nodes)}
            time.sleep(options.seconds)
            after = {pid: cpu_seconds(pid) for pid in before}
            seconds = time.monotonic() - begin
        finally:
            idle.kill()
            idle.wait()
    share = {pid: 100 * (after[pid] - before[pid]) / seconds for pid in before}
    name = "waking once a second"
    figures = [
        Figure(f"host with {options.replicas} replicas", share[host], "% of a core", BOUND_PERCENT, share[idle.pid],
               name),
        Figure(f"all {len(nodes)} node programs", sum(share[pid] for pid in nodes), "% of a core", None,
               share[idle.pid], name),
    ]  # fmt: skip
    return finish(figures, as_json=options.json)


def _parents(pids: list[int]) -> list[str]:
    """The node program is the parent of what it runs."""
    found = []
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
            found.append(file.read().rpartition(")")[2].split()[1])
    return found


if __name__ == "__main__":
    sys.exit(main())
