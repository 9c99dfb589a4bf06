"""How long after a change a command that waits sees it: the stream beside a look every half second."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, finish
from remuda.base.ids import api_path
from remuda.client import mirror
from remuda.supervise.summary import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.client.http import HostClient

RUNS, SEEN_MS, POLL_S = 40, 250.0, 0.5


def late_ms(views: Iterable[object]) -> list[float]:
    """Of each phase of the only task: from when it began, by the host's clock, until it was seen."""
    found, phase = [], ""
    for view in views:
        assert isinstance(view, dict)
        task = view["tasks"][0]
        if task["phase"] != phase:
            phase = task["phase"]
            found.append((time.time() - task["since"]) * 1e3)
        if view["phase"] in ENDED:
            break
    return found


def looks(client: HostClient, name: str) -> Iterable[object]:
    while True:
        yield client.get(api_path(name))
        time.sleep(POLL_S)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    told: dict[str, list[float]] = {"stream": [], "looks": []}
    with BenchHome() as home:
        script = home.root / "train.sh"
        script.write_text("#!/bin/sh\nsleep 0.3\n")
        home.run("host", "start")
        for number in range(RUNS):
            for how, late in told.items():
                name = f"{how}-{number}"
                home.run("run", str(script), "--backend", "local", "--name", name)
                waits = (views[0] for views in mirror.wait(home.client, [name]))
                late += late_ms(waits if how == "stream" else looks(home.client, name))[1:]
    stream, polled = (percentile(late, 0.99) for late in told.values())
    return finish([
        Figure(f"a change is seen, 99 of 100 of {len(told['stream'])}", stream, "ms", SEEN_MS, polled,
               "a look every 0.5 s"),
        Figure("a change is seen, half of them", percentile(told["stream"], 0.5), "ms", None,
               percentile(told["looks"], 0.5), "a look every 0.5 s"),
    ], as_json=options.json)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
