"""Talking to a bed as its users do: with Slurm's own commands."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError, TimedOut
from remuda.fleet.processes import wait_until
from remuda.fleet.tree import SBIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CLIENTS = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCONTROL_")
"""Variables that Slurm's commands read begin with one of these."""
OURS = ("REMUDA_", "DOMYN_SWARM_")
"""Variables that say where the caller's own work is, which is not on this cluster."""
MARKS = "*~#!%$@^-+"
"""What `sinfo` appends to a state: `*` is a node that does not respond."""


class Client:
    """Commands, jobs and states of the bed in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def node_names(self) -> tuple[str, ...]:
        """Names of all nodes."""
        raise NotImplementedError

    def env(self) -> dict[str, str]:
        """The environment for Slurm's commands: ours, with SLURM_CONF and PATH, without other settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith((*CLIENTS, *OURS))}
        return {**kept, "SLURM_CONF": f"{self.root}/slurm.conf", "PATH": f"{kept.get('PATH', '')}:{SBIN}"}

    def run(self, *argv: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands.

        Raises:
            RemudaError: it failed, and `check`.
        """
        done = subprocess.run(
            list(argv),
            env=self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise RemudaError(f"{' '.join(argv)}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch script (its text, with or without `#!`); the job's id. Its output goes to `out/ID`."""
        (self.root / "out").mkdir(exist_ok=True)
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        path = self.root / "out" / "script.sh"
        path.write_text(text)
        where = f"--output={self.root}/out/%j"
        return int(self.run("sbatch", "--parsable", where, *options, str(path)).stdout.split(";")[0])

    def output(self, job: int) -> str:
        """What a job that `submit` sent has printed so far."""
        path = self.root / "out" / str(job)
        return path.read_text() if path.exists() else ""

    def job_state(self, job: int) -> str:
        """Its state, as `squeue -o %T` has it; empty when the controller does not know it."""
        return self.run("squeue", "-h", "-t", "all", "-j", str(job), "-o", "%T", check=False).stdout.strip()

    def wait_job(self, job: int, *states: str, limit_s: float = 180) -> str:
        """Wait until a job is in one of the states, and say in which.

        Raises:
            TimedOut: it was not.
        """
        return _wait_for(lambda: self.job_state(job), f"job {job}", states, limit_s)

    def node_states(self) -> dict[str, str]:
        """States of the nodes, short and with marks, as `sinfo -o %t` has them; empty when the controller is down."""
        answer = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False)
        return dict(line.split() for line in answer.stdout.splitlines() if len(line.split()) == 2)

    def wait_node(self, node: str, *states: str, limit_s: float = 180) -> str:
        """Wait until a node is in one of the states (marks such as `*` do not count), and say in which, marks included.

        Raises:
            TimedOut: it was not.
        """
        return _wait_for(lambda: self.node_states().get(node, ""), f"node {node}", states, limit_s)

    def wait_idle(self, *, states: Sequence[str] = ("idle",), limit_s: float = 180) -> None:
        """Wait until all nodes are in one of the states, without marks.

        Raises:
            TimedOut: they were not; the message names the others.
        """

        def others() -> dict[str, str]:
            now = self.node_states()
            return {name: now.get(name, "unknown") for name in self.node_names if now.get(name) not in states}

        try:
            wait_until(lambda: not others(), f"all nodes are {' or '.join(states)}", limit_s)
        except TimedOut as error:
            left = ", ".join(f"{name} {state}" for name, state in others().items())
            raise TimedOut(f"{error}; others: {left or 'none now'}") from error


def _wait_for(look: Callable[[], str], what: str, states: Sequence[str], limit_s: float) -> str:
    seen = ""

    def there() -> bool:
        nonlocal seen
        seen = look()
        return seen.rstrip(MARKS) in states

    try:
        wait_until(there, f"{what} is {' or '.join(states)}", limit_s, step_s=0.1)
    except TimedOut as error:
        raise TimedOut(f"{error}; it is {seen or 'unknown'}") from error
    return seen
