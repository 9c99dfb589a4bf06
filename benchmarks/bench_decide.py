"""What one look of the supervisor over 10,000 tasks costs, beside a loop that touches every task once."""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter

from harness import Figure, finish
from remuda.backends.base import TaskKey
from remuda.plan.model import Command, Group, Kind, Role, Workload
from remuda.supervise.decide import decide, next_due
from remuda.supervise.model import Phase, Task, Want

NOW = 1_000_000.0
BOUND_MS = 100.0
PHASES = [*[Phase.READY] * 6, *Phase]


def world(workloads: int, tasks: int) -> list[tuple[Want, dict[TaskKey, Task]]]:
    """Workloads in the middle of their lives: most tasks are ready, all phases occur, some are surplus or missing."""
    dice = random.Random(7)
    made = []
    for number in range(workloads):
        name = f"w{number}"
        group = Group(name="replica", role=Role.REPLICA, count=tasks, command=Command(argv=("server",)))
        workload = Workload(name=name, kind=Kind.SWARM, uid="u", backend="fake", groups=(group,), run_dir="/run")
        known = {}
        for index in range(tasks):
            key = TaskKey(name, "replica", index)
            when = NOW + dice.choice([-10.0, 10.0])
            known[key] = Task(
                key, "fake", dice.choice(PHASES), attempt=1, generation=dice.choice([1, 2]), token=f"t{index}",
                not_before=when, kill_at=when,
            )  # fmt: skip
        counts = {"replica": tasks + dice.choice([-50, 0, 50])}
        made.append((Want(workload, running=number % 10 != 9, generation=2, counts=counts), known))
    return made


def touch(worlds: list[tuple[Want, dict[TaskKey, Task]]]) -> int:
    return sum(task.phase is Phase.READY for _, tasks in worlds for _, task in tasks.items())


def think(worlds: list[tuple[Want, dict[TaskKey, Task]]]) -> Counter[str]:
    return Counter(type(action).__name__ for want, tasks in worlds for action in decide(want, tasks, NOW))


def due(worlds: list[tuple[Want, dict[TaskKey, Task]]]) -> float:
    return min(found for _, tasks in worlds if (found := next_due(tasks, NOW)) is not None)


def median_ms(act: object, worlds: list[tuple[Want, dict[TaskKey, Task]]], rounds: int) -> float:
    assert callable(act)
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        act(worlds)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    many = world(max(1, options.tasks // 1000), min(1000, options.tasks))
    one = world(1, options.tasks)
    actions = think(many)
    if sum(actions.values()) < options.tasks // 5:
        raise SystemExit(f"the world is too quiet to measure anything: {dict(actions)}")
    base = median_ms(touch, many, options.rounds)
    said = ", ".join(f"{count} {name}" for name, count in sorted(actions.items()))
    figures = [
        Figure(f"decide, {options.tasks} tasks in {len(many)} workloads ({said})",
               median_ms(think, many, options.rounds), "ms", BOUND_MS, base, "touching every task once"),
        Figure(f"decide, {options.tasks} tasks in one workload", median_ms(think, one, options.rounds), "ms",
               BOUND_MS, base, "touching every task once"),
        Figure("when the clock alone has something to say", median_ms(due, many, options.rounds), "ms",
               BOUND_MS, base, "touching every task once"),
    ]  # fmt: skip
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
