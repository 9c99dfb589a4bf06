"""What a soak keeps going: a swarm, runs that count, and jobs that ask the swarm; and what must be true of each."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.conftest import Home, until

from remuda.base.errors import RemudaError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.places import Place

ROWS = 400
STEPS = 120

#: Counts to $LAST from its own checkpoint. A step is written down before the checkpoint, so a kill doubles one at most.
COUNTER = """#!/bin/sh
n=$(cat "$OUT/checkpoint" 2>/dev/null || echo 0)
while [ "$n" -lt "$LAST" ]; do
  n=$((n + 1))
  echo "$REMUDA_ATTEMPT $n" >> "$OUT/steps"
  echo "$n" > "$OUT/checkpoint.$REMUDA_ATTEMPT" && mv "$OUT/checkpoint.$REMUDA_ATTEMPT" "$OUT/checkpoint"
  remuda-progress "$n/$LAST"
  sleep 0.1
done
"""


class Lost(AssertionError):
    """Something was lost, doubled, left over, or told wrongly."""


class Work:
    """One swarm `herd`, and as many runs and jobs as fit into the time."""

    def __init__(self, home: Home, place: Place) -> None:
        self.home = home
        self.place = place
        self.runs: list[str] = []
        """Names of those that go on."""
        self.jobs: list[str] = []
        self.ended: Counter[str] = Counter()
        self._number = 0

    def bring_up(self) -> None:
        """The swarm: two replicas that answer with the prompt, behind a router."""
        # By default ten good minutes heal, and kills come faster: here a moment of service is enough.
        document = self.home.swarm(
            engine_args=["--echo", "--token-s", "0.004"],
            watchdog={"max_replacements": 1000, "heal_after": 3},
            **self.place.swarm(),
        )
        self.type("up", "-c", str(document))
        lines = [json.dumps({"id": number, "prompt": f"row {number}"}) for number in range(ROWS)]
        (self.home.root / "in.jsonl").write_text("\n".join(lines) + "\n")
        (self.home.root / "count.sh").write_text(COUNTER)

    def type(self, *words: str) -> None:
        """A command as a user types it, who types it again where the host was killed meanwhile."""
        for _ in range(4):
            done = self.home.run(*words, check=False, timeout=600)
            if done.returncode == 0:
                return
        raise Lost(f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.home.log()}")

    def keep_going(self) -> None:
        """Check what has ended, and begin as many again."""
        phases = self.phases()
        for name in [name for name in self.runs if phases.get(name) in ("DONE", "FAILED", "DOWN")]:
            self.check_run(name, phases[name])
            self.runs.remove(name)
            self.ended["runs"] += 1
        for name in [name for name in self.jobs if phases.get(name) in ("DONE", "FAILED", "DOWN")]:
            self.check_job(name, phases[name])
            self.jobs.remove(name)
            self.ended["jobs"] += 1

    def begin(self, runs: int, jobs: int) -> None:
        """Begin what is missing of so many at a time."""
        while len(self.runs) < runs:
            self._number += 1
            self.runs.append(self._begin_run(f"count-{self._number}"))
        while len(self.jobs) < jobs:
            self._number += 1
            self.jobs.append(self._begin_job(f"ask-{self._number}"))

    def _begin_run(self, name: str) -> str:
        (self.home.root / name).mkdir()
        self.type(
            "run", "count.sh", "--name", name, *self.place.run(), "--max-retries", "1000", "--backoff-base", "0.2",
            "--backoff-max", "1", "--heartbeat-interval", "0.5", "--no-gpu-check",
            "--env", f"OUT={self.home.root / name}", "--env", f"LAST={STEPS}",
        )  # fmt: skip
        return name

    def _begin_job(self, name: str) -> str:
        # It waits until the swarm answers, and what is left of a cluster without its crashed node may be too small.
        self.place.mend()
        self.type(
            "job", "submit", "completion", "--name", "herd", "-i", "in.jsonl", "-o", f"{name}.jsonl", "--job-id", name,
            "--detach", "--max-concurrency", "8", "--checkpoint-interval", "8", *self.place.job(),
        )  # fmt: skip
        return name

    def phases(self) -> dict[str, str]:
        """Phase of every workload, those that are down, too; a killed host is started as a user would, by a command."""
        for _ in range(10):
            try:
                views = self.home.client.get("/workloads", everything=True)
            except RemudaError:
                self.home.run("status", check=False)
            else:
                return {view["name"]: view["phase"] for view in views}
        raise Lost(f"no host comes up\n{self.home.log()}")

    def settle(self, limit_s: float) -> None:
        """Wait until every run and job has ended, and all of the swarm serves; check them."""

        def ended() -> bool:
            self.keep_going()
            return not self.runs and not self.jobs

        def serves() -> bool:
            view = self.home.view("herd")
            return bool(view["phase"] == "RUNNING" and view["ready"] == view["wanted"])

        try:
            until(ended, f"{self.runs} and {self.jobs} end", limit_s)
            until(serves, "the whole swarm serves", limit_s)
        except Lost:
            raise
        except AssertionError as error:
            names = [*self.runs, *self.jobs, "herd"]
            told = [self.home.run("explain", name, check=False).stdout for name in names]
            raise Lost("\n".join([str(error), *told, self.home.log()])) from None

    def check_run(self, name: str, phase: str) -> None:
        """It ended well, made every step, and no attempt wrote after the next had begun."""
        if phase != "DONE":
            raise Lost(f"{name} is {phase}:\n{self.home.run('explain', name, check=False).stdout}")
        steps = read_steps(self.home.root / name / "steps")
        numbers = [number for _, number in steps]
        if set(numbers) != set(range(1, STEPS + 1)):
            raise Lost(f"{name} lost steps {sorted(set(range(1, STEPS + 1)) - set(numbers))}")
        if any(before > after for (before, _), (after, _) in pairwise(steps)):
            raise Lost(f"two attempts of {name} wrote at one time: {steps}")
        if len(set(steps)) != len(steps):
            raise Lost(f"an attempt of {name} made a step twice: {Counter(steps).most_common(1)}")
        if any(after not in (before, before + 1) for before, after in pairwise(numbers)):
            raise Lost(f"{name} went back: {numbers}")

    def check_job(self, name: str, phase: str) -> None:
        """Every row is there once, in order, with its own answer."""
        # A driver that has told how its job ended is done, whatever that is.
        state = json.loads(self.home.run("job", "status", name, "--json").stdout)
        if phase != "DONE" or state["state"] != "DONE":
            told = [self.home.run("explain", one, check=False).stdout for one in (name, "herd")]
            raise Lost("\n".join([f"{name} is {phase}: {state}", *told, self.home.log()]))
        rows = [json.loads(line) for line in (self.home.root / f"{name}.jsonl").read_text().splitlines()]
        if [row["id"] for row in rows] != list(range(ROWS)):
            raise Lost(f"{name}: rows are missing, doubled or out of order")
        wrong = [row for row in rows if row["error"] is not None or row["result"] != f"row {row['id']}"]
        if wrong:
            raise Lost(f"{name}: {len(wrong)} rows without their answer, such as {wrong[0]}")


def read_steps(path: Path) -> list[tuple[int, int]]:
    """Attempt and step of each line."""
    pairs = [line.split() for line in path.read_text().splitlines()]
    return [(int(attempt), int(number)) for attempt, number in pairs]
