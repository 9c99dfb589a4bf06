"""Supervised runs on the real cluster of the tests: a home whose host talks to it, scripts, and what they left."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

from tests.conftest import Home, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.testing.slurm import SlurmBed

#: Quick where a real site is slow.
QUICK = ("--backend", "slurm", "--backoff-base", "0.2", "--backoff-max", "1", "--heartbeat-interval", "0.5",
         "--no-gpu-check")  # fmt: skip

#: Counts to $LAST, one step in a tenth of a second, from its own checkpoint; says where and when it began.
COUNTER = """#!/bin/sh
echo "$REMUDA_ATTEMPT $SLURM_JOB_ID $SLURMD_NODENAME" >> "$OUT/starts"
trap 'echo "$REMUDA_ATTEMPT TERM" >> "$OUT/signals"; exit 15' TERM
n=$(cat "$OUT/checkpoint" 2>/dev/null || echo 0)
while [ "$n" -lt "${LAST:-40}" ] && [ ! -e "$OUT/enough" ]; do
  if [ -e "$OUT/fail" ]; then mv "$OUT/fail" "$OUT/failed"; exit 3; fi
  n=$((n + 1))
  echo "$n" > "$OUT/checkpoint.$REMUDA_ATTEMPT" && mv "$OUT/checkpoint.$REMUDA_ATTEMPT" "$OUT/checkpoint"
  echo "$REMUDA_ATTEMPT $n" >> "$OUT/steps"
  sleep 0.1
done
echo "$REMUDA_ATTEMPT" > "$OUT/done"
"""


class Runs:
    """A home with a host on the cluster's head."""

    def __init__(self, home: Home, bed: SlurmBed) -> None:
        self.home = home
        self.bed = bed
        home.env |= {**bed.env(), "REMUDA_SLURM_POLL_S": "0.5"}
        self.out = home.root / "out"
        self.out.mkdir()

    def script(self, text: str = COUNTER, name: str = "train.sh") -> Path:
        path = self.home.root / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def begin(self, *flags: str, script: Path | None = None, name: str = "train", last: int = 100_000) -> str:
        """Submit a run of the counter (or of `script`), as a user types it."""
        env = ("--env", f"OUT={self.out}", "--env", f"LAST={last}")
        self.home.run("run", str(script or self.script()), "--name", name, *QUICK, *env, *flags)
        return name

    def slurm(self, *argv: str, check: bool = True) -> str:
        """Output of one of Slurm's own commands."""
        done = subprocess.run(
            argv, env=self.home.env, cwd=self.home.root, capture_output=True, text=True, check=False, timeout=120
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def jobs(self) -> list[tuple[str, str, str]]:
        """Job id, name and state of all that pend or run."""
        text = self.slurm("squeue", "-h", "-o", "%i|%j|%T")
        return [tuple(line.split("|")) for line in text.splitlines()]  # type: ignore[misc]

    def wait_forgotten(self, limit_s: float = 180) -> None:
        """Wait until the controller knows no job at all, not even one that has ended."""
        until(lambda: not self.slurm("squeue", "-h", "-t", "all", "-o", "%i"), "all jobs are forgotten", limit_s)

    def lines(self, name: str) -> list[str]:
        path = self.out / name
        return path.read_text().splitlines() if path.exists() else []

    def starts(self) -> list[list[str]]:
        """Attempt, job id and node of each start."""
        return [line.split() for line in self.lines("starts")]

    def task(self, name: str = "train") -> dict[str, Any]:
        return self.home.task(name, "script/0")

    def phase(self, name: str = "train") -> str:
        return str(self.home.view(name)["phase"])

    def wait_running(self, name: str = "train", *, attempt: int = 1, limit_s: float = 180) -> dict[str, Any]:
        """Wait until that attempt runs and has made a step."""
        said = f"{attempt} "
        self.wait(
            lambda: any(line.startswith(said) for line in self.lines("steps")), f"attempt {attempt} steps", limit_s
        )
        return self.task(name)

    def wait_done(self, name: str = "train", limit_s: float = 180) -> None:
        self.wait(lambda: self.phase(name) == "DONE", f"{name} is done", limit_s)

    def wait(self, ask: Callable[[], bool], what: str, limit_s: float = 180) -> None:
        """Wait; a failure tells what a person would look at."""
        try:
            until(ask, what, limit_s)
        except AssertionError as error:
            told = [self.told(view["name"]) for view in self.home.client.get("/workloads")]
            queue = self.slurm("squeue", "-t", "all", "-o", "%i %j %T %P %N %r", check=False)
            nodes = self.slurm("sinfo", "-N", "-o", "%N %T %P %E", check=False)
            raise AssertionError("\n".join([str(error), *told, queue, nodes, self.home.log()])) from None

    def enough(self) -> None:
        """Let the counter come to its end."""
        (self.out / "enough").touch()

    def told(self, name: str = "train") -> str:
        """What a person would look at."""
        return self.home.run("explain", name, check=False).stdout

    def events(self, name: str = "train") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.home.run("events", name, "--json").stdout)
        return found

    def job_id(self, name: str = "train") -> str:
        native = str(self.task(name)["native"])
        assert re.fullmatch(r"\d+(_\d+)?", native), native
        return native
