"""Documents that a host plans: what a plan costs beside one in a process of its own, and who waits for a hundred."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from harness import BenchHome, Figure, finish

if TYPE_CHECKING:
    from remuda.client.http import HostClient

PLANS, LOOKS, ALONE = 100, 50, 5
LATER_MS = 100.0
PROGRAM = """
import sys
from remuda.look import planning
planning.answer("swarm", {"file": sys.argv[1]}, dry_run=True)
"""


def looks_ms(client: HostClient, count: int) -> list[float]:
    """How long the host's answers take, ten times a second."""
    found = []
    for _ in range(count):
        began = time.monotonic()
        client.get("/workloads")
        found.append((time.monotonic() - began) * 1e3)
        time.sleep(0.1)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with BenchHome() as home:
        file = str(home.swarm("herd", 1, router="none"))
        home.run("host", "start")
        asked: dict[str, Any] = {
            "kind": "swarm", "words": {"file": file}, "dry_run": True,
            "caller": {"cwd": os.getcwd(), "env": dict(home.env)},  # noqa: PTH109
        }  # fmt: skip
        home.client.post("/plans", asked)  # what has to be loaded is loaded by the first
        began = time.monotonic()
        for _ in range(ALONE):
            subprocess.run([sys.executable, "-c", PROGRAM, file], env=home.env, check=True)
        alone_ms = (time.monotonic() - began) / ALONE * 1e3
        one_ms = []
        for _ in range(ALONE * 2):
            began = time.monotonic()
            home.client.post("/plans", asked)
            one_ms.append((time.monotonic() - began) * 1e3)
        rest = looks_ms(home.client, LOOKS // 2)
        began = time.monotonic()
        with ThreadPoolExecutor(PLANS) as pool:
            answers = [pool.submit(home.client.post, "/plans", asked) for _ in range(PLANS)]
            busy = looks_ms(home.client, LOOKS)
            for answer in answers:
                answer.result()
        each_ms = (time.monotonic() - began) / PLANS * 1e3
    worst, calm = sorted(busy)[-2], statistics.median(rest)
    return finish([
        Figure("a plan of the host", statistics.median(one_ms), "ms", alone_ms, alone_ms, "in a process of its own"),
        Figure("each of 100 plans at once", each_ms, "ms", alone_ms, alone_ms, "in a process of its own"),
        Figure("a look at the host meanwhile, worst but one", worst, "ms", calm + LATER_MS, calm, "at rest"),
    ], as_json=options.json)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
