"""Beside the node program on the first node of several: starts a guard on each of the others, and keeps the lines.

A program of its own that never looks at the shared file system while it runs: a file server that is away for a minute
must not silence it. It tells the node program, one JSON object a line, who is here, and who is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node.child.process import adopt_orphans
from remuda.node.child.signals import ENDING, Signals
from remuda.node.guard import member_line
from remuda.node.guard.door import Door
from remuda.node.guard.guard import MEETING
from remuda.wire.child import ChildSpec
from remuda.wire.process import identify

if TYPE_CHECKING:
    import subprocess

FAREWELL_S = 5.0
"""So long the guards have to say that nothing is left."""
REPLACEMENTS = 3
"""So often a guard that died is started again on one node: each is a step of the scheduler's."""
USERS = ("SLURM_MEM_PER", "SLURM_CPUS_PER", "SLURM_NTASKS", "SLURM_GPUS", "SLURM_GPU_", "SLURM_TRES", "SLURM_GRES",
          "SLURM_DISTRIBUTION", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_HINT", "SLURM_THREADS", "SLURM_EXCLUSIVE",
          "SLURM_STEP", "SLURM_OVERCOMMIT", "SLURM_WHOLE", "SLURM_EXACT", "SLURM_CORE_SPEC")  # fmt: skip
"""Begins of variables that srun takes for options: they are the user's wishes for the user's steps."""


def main(arguments: list[str]) -> int:
    """`guardroom RUN_DIR NODES`: until it is asked to end."""
    return Guardroom(Path(arguments[0]), int(arguments[1])).run()


def step_words(nodes: int, only: str = "", *, records: bool = False) -> list[str]:
    """`srun` that starts one guard on each node but the first, or on one of them, beside whatever else runs there.

    Guards that record see the job's GPUs.
    """
    others, where = (1, f"--nodelist={only}") if only else (nodes - 1, "--relative=1")
    return [
        "srun", "--job-name=remuda-guard", "--overlap", where, f"--nodes={others}", f"--ntasks={others}",
        "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--cpu-bind=none", "--mpi=none",
        "--export=ALL", "--input=none", "--output=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--quiet",
        *([] if records else ["--gres=none"]),
    ]  # fmt: skip


class Guardroom:
    """The lines to all guards of one attempt.

    Args:
        folder: run directory of the allocation.
        nodes: of the job.
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self._folder, self._nodes = folder, nodes
        spec = ChildSpec.from_json((folder / "child.json").read_text(encoding="utf-8"))
        if spec.guard is None:
            raise ValueError("the child document has no guards")
        self._guard, self._host_file, self._records = spec.guard, spec.host_file, spec.record_interval_s > 0
        self._signals, self._cleanup = Signals(), adopt_orphans()
        self._door = Door("0.0.0.0")  # noqa: S104 - the other nodes must reach it
        self._lines: dict[str, member_line.MemberLine] = {}
        self._steps: list[subprocess.Popen[bytes]] = []
        self._died: dict[str, int] = {}
        """How many guards of a node did."""
        self._awaited: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        """Nodes whose guard was started again: its step, and until when it must have called."""
        self._is_over = False
        self._beat_at = self._turned_at = 0.0

    def run(self) -> int:
        """Until it is asked to end, or the step of the guards has ended and none of them is left."""
        self._door.announce(self._folder / MEETING, self._host_file, process=vars(identify(os.getppid())))
        for name in [name for name in os.environ if name.startswith(USERS)]:
            del os.environ[name]
        if why := self._start(step_words(self._nodes, records=self._records)):
            return self._say({"failed": why})
        first = self._steps[0]
        while not any(number in ENDING for number in self._signals.take()):
            self._turn()
            if first.poll() is not None and not (self._lines or self._died):
                return self._say({"failed": f"the step of the guards ended: {_last_words(first)}"})
        self._farewell()
        return 0

    def _start(self, srun: list[str]) -> str:
        """Begin a step of guards; why it cannot be, empty where it can."""
        argv = [*srun, *self._guard.launcher, "guard", str(self._folder)]
        try:
            self._steps.append(member_line.start(argv, {}, self._cleanup, own_group=True, pipe=True, with_errors=True))
        except OSError as error:
            return f"cannot start srun: {error}"
        return ""

    def _turn(self) -> None:
        lines = [line.socket.fileno() for line in self._lines.values()]
        self._signals.wait(500, *self._door.waits_for(time.monotonic()), *lines)
        now = time.monotonic()
        self._greet(now)
        stood_still = now - self._turned_at > self._guard.silence_s / 4
        self._turned_at = now
        for name, line in list(self._lines.items()):
            told = line.hear()
            if stood_still:
                line.heard_at = max(line.heard_at, now)
            if any("ended" in message for message in told) or (self._is_over and not line.is_open):
                self._lose(name, "its guard has ended")
            elif not line.is_open:
                self._replace(name, now)
            elif now - line.heard_at > self._guard.silence_s:
                self._lose(name, "nothing is heard of it")
        self._look_for_awaited(now)
        if now - self._beat_at >= member_line.BEAT_S:
            self._beat_at = now
            for line in self._lines.values():
                line.say({})

    def _greet(self, now: float) -> None:
        """Take in the guards that have called, and answer: who hears nothing was crowded out, and calls again."""
        for line, told in self._door.newcomers(now):
            name = str(told.get("node", ""))
            if name in self._lines:
                self._lines.pop(name).close()
            self._lines[name] = line
            line.say({})
            self._say({"here": name})

    def _lose(self, name: str, why: str) -> None:
        """Nothing more is said to it, so that it ends what it has not ended yet."""
        self._lines.pop(name).close()
        self._say({"lost": name, "why": why})

    def _replace(self, name: str, now: float) -> None:
        """Its guard died, and nobody would end what runs there: start another."""
        self._lines.pop(name).close()
        self._died[name] = self._died.get(name, 0) + 1
        self._say({"died": name})
        if self._died[name] > REPLACEMENTS:
            self._say({"unguarded": name, "why": f"{self._died[name]} of them died"})
        elif why := self._start(step_words(self._nodes, name, records=self._records)):
            self._say({"unguarded": name, "why": why})
        else:
            self._awaited[name] = (self._steps[-1], now + self._guard.meet_s)

    def _look_for_awaited(self, now: float) -> None:
        for name, (step, until) in list(self._awaited.items()):
            is_here, has_ended = name in self._lines, step.poll() is not None
            if is_here or has_ended or now > until:
                del self._awaited[name]
            if not is_here and has_ended:
                self._say({"unguarded": name, "why": f"another could not be started: {_last_words(step)}"})
            elif not is_here and now > until:
                self._say({"unguarded": name, "why": f"another did not call within {self._guard.meet_s:g} s"})

    def _farewell(self) -> None:
        self._is_over = True
        for line in self._lines.values():
            line.say({"end": True})
        until = time.monotonic() + FAREWELL_S
        while self._lines and time.monotonic() < until:
            self._turn()
        member_line.end(self._steps, 1.0)

    def _say(self, what: dict[str, str]) -> int:
        with contextlib.suppress(OSError):
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()
        return 1


def _last_words(step: subprocess.Popen[bytes]) -> str:
    """What a step that has ended said last."""
    text = b""
    if step.stdout is not None:
        with contextlib.suppress(OSError):
            text = step.stdout.read(4096)
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
