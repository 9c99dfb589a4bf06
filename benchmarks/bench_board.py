"""What the board of 1,000 tasks costs the host, beside the answer that clients would ask for instead."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from harness import Figure, finish
from remuda.backends.base import TaskKey
from remuda.host.board import Board
from remuda.host.feed import BoardFeed, Viewer
from remuda.plan.model import Command, Group, Kind, Role, Workload
from remuda.supervise.model import Phase, Task, Want
from remuda.views.queries import Queries
from remuda.views.workloads import WorkloadView

if TYPE_CHECKING:
    from collections.abc import Callable

VIEWERS = 50
VIEWS = TypeAdapter(list[WorkloadView])


class World:
    """A supervisor's memory: swarms that serve, and tell other numbers each second."""

    def __init__(self, swarms: int, replicas: int) -> None:
        self.supervisor = self.store = self
        self.unreachable: dict[str, str] = {}
        self.wants: dict[str, Want] = {}
        self.all: dict[str, dict[TaskKey, Task]] = {}
        self.turn = 0
        for name in (f"swarm-{number}" for number in range(swarms)):
            group = Group(name="replica", role=Role.REPLICA, count=replicas, command=Command(argv=("server",)))
            plan = Workload(name=name, kind=Kind.SWARM, uid="u", backend="fake", groups=(group,), run_dir="/run")
            keys = [TaskKey(name, "replica", index) for index in range(replicas)]
            self.wants[name] = Want(plan, running=True)
            self.all[name] = {key: Task(key, "fake", Phase.READY, attempt=1, url="http://n:1") for key in keys}

    def workloads(self) -> list[Any]:
        """Of the store: none, so each was brought up at 0."""
        return []

    def tasks(self, name: str) -> dict[TaskKey, Task]:
        """Of one swarm."""
        return self.all[name]

    def report(self) -> None:
        """Every task has new numbers."""
        self.turn += 1
        for tasks in self.all.values():
            for key, task in tasks.items():
                numbers = {"running": 3.0, "waiting": 0.0, "tokens_per_s": 1000.0 + 10 * self.turn, "gpu_count": 1.0}
                tasks[key] = replace(task, seq=self.turn, last_seen=float(self.turn), metrics=numbers)


def median_ms(act: Callable[[], object], before: Callable[[], object], rounds: int) -> float:
    """Of CPU time."""
    times = []
    for _ in range(rounds):
        before()
        begin = time.process_time()
        act()
        times.append(time.process_time() - begin)
    return statistics.median(times) * 1000


async def measure(options: argparse.Namespace) -> list[Figure]:
    world: Any = World(options.swarms, options.replicas)
    lookout = Queries(world, world, world)
    clock = iter(range(1, 1_000_000))
    feed = BoardFeed(Board(lookout), 1, lambda: float(next(clock)), lambda _: [])

    def asked() -> bytes:
        return VIEWS.dump_json(lookout.workloads())

    def nothing() -> None:
        pass

    tick = feed.tick
    tick()
    rounds = options.rounds
    base = median_ms(asked, world.report, rounds)
    tick()
    moved = median_ms(tick, world.report, rounds)
    still = median_ms(tick, nothing, 5 * rounds)
    viewers = [Viewer() for _ in range(VIEWERS)]
    for viewer in viewers:
        feed.join(viewer)

    def read() -> None:
        world.report()
        for viewer in viewers:
            while not viewer.frames.empty():
                viewer.frames.get_nowait()

    looked_at = median_ms(tick, read, rounds)
    tasks = options.swarms * options.replicas
    name = f"GET /workloads of them ({base:.2f} ms)"
    return [
        Figure(f"a look at {tasks} tasks with new numbers, difference and encoding ({moved:.2f} ms)", moved / base,
               f"of {name}", 0.4),
        Figure(f"the same where nothing has changed ({still:.3f} ms)", still / base, f"of {name}", 0.02),
        Figure(f"the same with {VIEWERS} viewers ({looked_at:.2f} ms)", looked_at / moved, "of that with none", 1.5),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swarms", type=int, default=40)
    parser.add_argument("--replicas", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    return finish(asyncio.run(measure(options)), as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
