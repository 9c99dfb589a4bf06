"""From the death of a run on a real Slurm to its next submission, and from its hang to its end, beside what is allowed.

Real settings: what is looked at every 15 seconds is begun again within that and its backoff.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from harness import BenchHome, Figure, finish, slurm_farm, until
from remuda.backends.registry import SLURM_POLL_S
from remuda.backends.rundir import allocation_dir
from remuda.base.disk.paths import StatePaths
from remuda.testing.slurm import cpu_farm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.testing.slurm import SlurmBed

#: Counts in its progress file and waits for what is to befall it: `exit` or `stall` in $OUT, with the moment in a file.
SCRIPT = """#!/bin/sh
n=0
while [ ! -e "$OUT/exit" ]; do
  n=$((n + 1))
  [ -e "$OUT/stall" ] || echo "{\\"step\\": $n}" > "$REMUDA_PROGRESS_FILE"
  sleep 0.2
done
rm "$OUT/exit"
date +%s.%N > "$OUT/died.new" && mv "$OUT/died.new" "$OUT/died"
exit 1
"""
START_S = 180.0
BARE = "a loop that asks squeue every second"


@dataclass(frozen=True)
class Times:
    """Durations that runs are started with, in seconds."""

    backoff: float
    interval: float
    grace: float
    stall: float
    kill_grace: float = 5.0

    def flags(self) -> list[str]:
        """As they are typed."""
        named = {
            "backoff-base": self.backoff, "heartbeat-interval": self.interval, "heartbeat-grace": self.grace,
            "progress-stall": self.stall, "kill-grace": self.kill_grace,
        }  # fmt: skip
        return [word for name, value in named.items() for word in (f"--{name}", f"{value:g}")]


class Run:
    """One run, and what befalls it."""

    def __init__(self, home: BenchHome, name: str) -> None:
        self.home = home
        self.name = name
        self.out = home.root / name
        self.out.mkdir()
        self.at = 0.0

    def task(self) -> dict[str, Any]:
        """As the host sees it."""
        view: dict[str, Any] = self.home.client.get(f"/workloads/{self.name}")["tasks"][0]
        return view

    def is_ready(self) -> bool:
        """Whether it runs, and its progress is known."""
        return self.task()["phase"] == "ready" and (self.folder() / "progress.json").exists()

    def folder(self) -> Path:
        """Directory of its first attempt."""
        view = self.home.client.get(f"/workloads/{self.name}")
        paths = StatePaths(self.home.root / "home")
        return allocation_dir(paths.workloads, f"{self.name}.script.0.1.{view['uid']}")

    def pid(self) -> int:
        """Of its node program."""
        return int(json.loads((self.folder() / "claim.json").read_text())["pid"])

    def when(self, attempt: int, *phases: str) -> float:
        """When its story first says that an attempt came into one of the phases; 0 while it does not."""
        lines = self.home.client.get(f"/workloads/{self.name}/events")
        return next((line["at"] for line in lines if line["attempt"] == attempt and line["phase"] in phases), 0.0)

    # What can befall it; each notes when

    def fail(self) -> None:
        """The script ends with code 1."""
        (self.out / "exit").touch()
        until((self.out / "died").exists, f"{self.name} has ended")
        self.at = float((self.out / "died").read_text())

    def vanish(self) -> None:
        """Node program and script are killed at once; nobody says a last word."""
        node, child = self.pid(), int(self.task()["pid"])
        self.at = time.time()
        os.kill(node, signal.SIGKILL)
        os.killpg(child, signal.SIGKILL)

    def freeze(self) -> None:
        """The node program stands still."""
        self.at = time.time()
        os.kill(self.pid(), signal.SIGSTOP)

    def stall(self) -> None:
        """The script goes on without progress."""
        (self.out / "stall").touch()
        time.sleep(0.5)
        self.at = (self.folder() / "progress.json").stat().st_mtime

    # What is seen of it

    def submitted(self) -> float:
        """When its second attempt was submitted."""
        return self.when(2, "submitting")

    def cancelled(self) -> float:
        """When the host asked its first attempt to end."""
        return self.when(1, "stopping")

    def ended(self) -> float:
        """When the node program said that its script has ended; begun later by the script's own grace."""
        try:
            return float(json.loads((self.folder() / "exit.json").read_text())["at"])
        except OSError:
            return 0.0


@dataclass(frozen=True)
class Case:
    """One thing that befalls runs, what is seen of it, and within which time."""

    name: str
    act: Callable[[Run], None]
    seen: tuple[tuple[str, Callable[[Run], float], float | None], ...]


def cases(times: Times, poll: float) -> list[Case]:
    again, silent = poll + times.backoff, times.interval + times.grace
    return [
        Case("the script ends with code 1", Run.fail, (("next submission", Run.submitted, again),)),
        Case("killed with its node program", Run.vanish, (("next submission", Run.submitted, again),)),
        Case("no progress", Run.stall, (
            ("ended on its node", Run.ended, times.stall + poll),
            ("next submission", Run.submitted, times.stall + 2 * poll + times.backoff),
        )),
        Case("node program stands still", Run.freeze, (
            ("cancelled", Run.cancelled, silent + poll), ("next submission", Run.submitted, None),
        )),
    ]  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """What all cases have in common."""

    count: int
    poll: float
    times: Times


def bare_s(bed: SlurmBed) -> float:
    """Seconds from a job's end to the next sbatch of a loop that asks squeue every second and waits for nothing."""
    died = bed.root / "died"
    job = bed.submit(f"sleep 2; date +%s.%N > {died}; exit 1")
    while bed.job_state(job) in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
        time.sleep(1.0)
    bed.submit("true")
    return time.time() - float(died.read_text())


def measure(case: Case, number: int, home: BenchHome, settings: Settings, bare: float) -> list[Figure]:
    """Let it befall runs, at moments that are spread over an interval between two looks."""
    script = home.root / "train.sh"
    script.write_text(SCRIPT)
    runs = [Run(home, f"case-{number}-{index}") for index in range(settings.count)]
    for run in runs:
        home.run("run", str(script), "--name", run.name, "--backend", "slurm", "--partitions", "cpu", "--env",
                 f"OUT={run.out}", *settings.times.flags())  # fmt: skip
    for run in runs:
        until(run.is_ready, f"{run.name} runs", START_S, step_s=0.2)
    dice = random.Random(number)
    moments = sorted(dice.uniform(0.0, settings.poll) for _ in runs)
    begin = time.monotonic()
    for moment, run in zip(moments, runs, strict=True):
        time.sleep(max(0.0, begin + moment - time.monotonic()))
        case.act(run)
    found = []
    for what, seen, bound in case.seen:
        taken = []
        for run in runs:
            until(partial(seen, run), f"{run.name}: {what}", START_S + (bound or 0.0), step_s=0.2)
            taken.append(seen(run) - run.at)
        spread = f"longest of {len(taken)} (least {min(taken):.1f}, median {statistics.median(taken):.1f})"
        found.append(Figure(f"{case.name} → {what}, {spread}", max(taken), "s", bound, bare, BARE))
    home.run("stop", *(run.name for run in runs))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=6, help="runs of each kind")
    parser.add_argument("--poll", type=float, default=SLURM_POLL_S, help="seconds between two looks")
    parser.add_argument("--backoff", type=float, default=10.0)
    parser.add_argument("--interval", type=float, default=5.0, help="between two heartbeats")
    parser.add_argument("--grace", type=float, default=15.0)
    parser.add_argument("--stall", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times = Times(options.backoff, options.interval, options.grace, options.stall)
    settings = Settings(options.count, options.poll, times)
    figures = []
    with slurm_farm(cpu_farm(2, cpus=8 * options.count)) as bed, BenchHome() as home:
        home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")}
        home.env["REMUDA_SLURM_POLL_S"] = f"{options.poll:g}"
        bare = statistics.median([bare_s(bed) for _ in range(3)])
        for number, case in enumerate(cases(times, options.poll)):
            figures += measure(case, number, home, settings, bare)
    return finish(figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
