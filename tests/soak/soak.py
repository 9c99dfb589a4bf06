"""Random kills for so many minutes, over all that remuda keeps running; nothing is lost, doubled, left or told wrongly.

`make soak MINUTES=20` runs it on this machine and on the cluster of the tests, half of the time each.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.conftest import until
from tests.soak.victims import Part, host, kill, victims
from tests.soak.work import Lost, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Home
    from tests.soak.places import Place

RUNS = 2
JOBS = 1
#: What may be said of an allocation, by what was done to it.
TRUE_REASONS = {
    "child": r"^killed by signal 9",
    "program": r"node program.*killed( by signal 9)?|killed by signal 9, node program and all",
    "node": r"its node failed",
}


@dataclass
class Figures:
    """What a soak did."""

    place: str
    seed: int
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    """By what was killed."""
    drills: int = 0
    runs: int = 0
    jobs: int = 0
    allocations: int = 0
    """That ended under a kill, each with a reason that was true."""
    in_place: int = 0
    """Restarts within an allocation."""


class Soak:
    """One place under random kills."""

    def __init__(self, home: Home, place: Place, seed: int, *, pause_s: tuple[float, float] = (0.5, 3.0)) -> None:
        self.home = home
        self.place = place
        self.chance = random.Random(seed)
        self.pause_s = pause_s
        self.work = Work(home, place)
        self.figures = Figures(place.name, seed)
        self.hits: dict[Part, list[str]] = {}
        self.crashes: list[tuple[str, float]] = []
        """Nodes, and when they crashed: what came to a node in that moment, or before it was known, is hit, too."""

    def go(self, seconds: float) -> Figures:
        """Kill for so long, let everything settle, and check.

        Raises:
            Lost: something was lost, doubled, left over, or told wrongly.
        """
        begin = time.monotonic()
        return self._go(lambda: time.monotonic() - begin < seconds)

    def go_until(self, kills: int) -> Figures:
        """The same until so many programs were killed, and a host, and where nodes crash: one; however long that takes.

        Raises:
            Lost: as `go` does.
        """
        return self._go(lambda: not self._has_enough(kills))

    def _go(self, goes_on: Callable[[], bool]) -> Figures:
        begin = time.monotonic()
        self.work.bring_up()
        drill_at = time.monotonic() + self.place.drill_every_s
        while goes_on():
            self.work.begin(RUNS, JOBS)
            self._kill_one()
            time.sleep(self.chance.uniform(*self.pause_s))
            if self.place.drill_every_s and time.monotonic() > drill_at:
                self._drill()
                drill_at = time.monotonic() + self.place.drill_every_s
            self.work.keep_going()
        self.place.mend()
        self.work.settle(240)
        self._check_reasons()
        self._check_nothing_left()
        self.figures.seconds = round(time.monotonic() - begin, 1)
        self.figures.runs, self.figures.jobs = self.work.ended["runs"], self.work.ended["jobs"]
        return self.figures

    def _has_enough(self, kills: int) -> bool:
        figures = self.figures
        has_drilled = bool(figures.drills) >= bool(self.place.drill_every_s)
        return figures.kills.total() - figures.kills["host"] >= kills and figures.kills["host"] >= 1 and has_drilled

    def _kill_one(self) -> None:
        found = victims(self.home)
        is_host = self.chance.random() < 0.25
        victim = host(self.home) if is_host or not found else self.chance.choice(found)
        if victim is None or not kill(victim):
            return
        if victim.part is None:
            self.figures.kills["host"] += 1
            return
        self.figures.kills[f"{victim.kind} of a {victim.part.task.partition('/')[0]}"] += 1
        self.hits.setdefault(victim.part, []).append(victim.kind)

    def _drill(self) -> None:
        until(lambda: host(self.home) or self.work.phases(), "a host answers")
        begun = time.time()
        node, hit = self.place.drill(self.chance)
        self.crashes.append((node, begun))
        self.figures.drills += 1
        for part in hit:
            self.hits.setdefault(part, []).append("node")

    def _check_reasons(self) -> None:
        """Only what was hit has failed, and what is said of it is what was done."""
        wrong: list[str] = []
        for name in self.work.phases():
            told = json.loads(self.home.run("explain", name, "--json").stdout)
            for one in told["allocations"]:
                wrong += self._wrong_reason(name, one)
            self.figures.in_place += sum(task["restarts"] for task in self.home.view(name)["tasks"])
        if wrong:
            raise Lost("\n".join(wrong))

    def _wrong_reason(self, name: str, one: dict[str, Any]) -> list[str]:
        if not one["ended_at"] or one["exit_code"] == 0 or one["cause"] == "none":
            return []
        part = Part(name, one["task"], one["attempt"])
        crashed = any(one["node"] == node and one["ended_at"] >= begun - 1 for node, begun in self.crashes)
        done = [*self.hits.get(part, []), *(["node"] if crashed else [])]
        self.figures.allocations += 1
        if not done:
            return [f"{part} ended although nobody hit it: {one}"]
        if not any(re.search(TRUE_REASONS[kind], one["reason"]) for kind in done):
            return [f"{part} was hit as {done}, and is said to have ended because: {one['reason']!r}"]
        return []

    def _check_nothing_left(self) -> None:
        self.work.type("down", "--all")
        until(lambda: not self.home.tokens(), "no process is left")
        if left := self.place.left():
            raise Lost(f"the scheduler still has {left}")


def table(figures: Figures) -> str:
    """The figures for people."""
    kills = ", ".join(f"{count} × {what}" for what, count in figures.kills.most_common())
    return (
        f"{figures.place}: seed {figures.seed}, {figures.seconds:.0f} s, {figures.kills.total()} kills ({kills}), "
        f"{figures.drills} node crashes; {figures.runs} runs and {figures.jobs} jobs complete, "
        f"{figures.allocations} ends told truly, {figures.in_place} restarts in place; nothing lost, doubled or left"
    )


def as_json(figures: Figures) -> str:
    """The figures for programs. (`asdict` counts a counter's items.)"""
    return json.dumps(vars(figures))
