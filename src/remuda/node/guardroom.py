"""Beside the node program on the first node of several: starts a guard on each of the others, and keeps the lines.

A program of its own that never looks at the shared file system while it runs: a file server that is away for a minute
must not silence it. It tells the node program, one JSON object a line, who is here, and who is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.node import gang
from remuda.node.guard import MEETING
from remuda.node.launch import own_address
from remuda.node.process import adopt_orphans
from remuda.node.signals import ENDING, Signals
from remuda.wire.child import ChildSpec
from remuda.wire.process import identify

if TYPE_CHECKING:
    import subprocess

FAREWELL_S = 5.0
"""So long the guards have to say that nothing is left."""
STRANGERS, STRANGER_S, GREETING_BYTES = 64, 10.0, 1024
"""What is borne of those that have not said the key: how many, how long, how much."""
_USERS = ("SLURM_MEM_PER", "SLURM_CPUS_PER", "SLURM_NTASKS", "SLURM_GPUS", "SLURM_GPU_", "SLURM_TRES", "SLURM_GRES",
          "SLURM_DISTRIBUTION", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_HINT", "SLURM_THREADS", "SLURM_EXCLUSIVE",
          "SLURM_STEP", "SLURM_OVERCOMMIT", "SLURM_WHOLE", "SLURM_EXACT", "SLURM_CORE_SPEC")  # fmt: skip
"""Begins of variables that srun takes for options: they are the user's wishes for the user's steps."""


def main(arguments: list[str]) -> int:
    """`guardroom RUN_DIR NODES`: until it is asked to end."""
    return Guardroom(Path(arguments[0]), int(arguments[1])).run()


def step_words(nodes: int) -> list[str]:
    """`srun` that starts one guard on each node but the first, beside whatever else runs there."""
    others = nodes - 1
    return [
        "srun", "--job-name=remuda-guard", "--overlap", "--relative=1", f"--nodes={others}", f"--ntasks={others}",
        "--ntasks-per-node=1", "--cpus-per-task=1", "--mem=0", "--gres=none", "--cpu-bind=none", "--mpi=none",
        "--export=ALL", "--input=none", "--output=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--quiet",
    ]  # fmt: skip


class _Stranger:
    """Who has called and not said the key yet."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.until = time.monotonic() + STRANGER_S
        self.is_over = False
        self._said = b""

    def greeting(self) -> dict[str, object] | None:
        """The first line, once it is there. Over: it said too much, too late, or hung up."""
        try:
            data = self.socket.recv(GREETING_BYTES)
        except BlockingIOError:
            self.is_over = time.monotonic() > self.until
            return None
        except OSError:
            data = b""
        self._said += data
        line, ends, _ = self._said.partition(b"\n")
        self.is_over = not data or len(self._said) > GREETING_BYTES or (not ends and time.monotonic() > self.until)
        if not ends:
            return None
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        self.is_over = not isinstance(told, dict)
        return told if isinstance(told, dict) else None


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
        self._guard, self._host_file = spec.guard, spec.host_file
        self._signals, self._cleanup = Signals(), adopt_orphans()
        self._key = secrets.token_hex(16)
        self._listener = socket.create_server(("0.0.0.0", 0))  # noqa: S104 - the other nodes must reach it
        self._listener.setblocking(False)
        self._strangers: list[_Stranger] = []
        self._lines: dict[str, gang.Line] = {}
        self._step: subprocess.Popen[bytes] | None = None
        self._beat_at = self._turned_at = 0.0

    def run(self) -> int:
        """Until it is asked to end, or the step of the guards has ended and none of them is left."""
        self._write_meeting()
        for name in [name for name in os.environ if name.startswith(_USERS)]:
            del os.environ[name]
        argv = [*step_words(self._nodes), *self._guard.launcher, "guard", str(self._folder)]
        try:
            self._step = gang.start(argv, {}, self._cleanup, own_group=True, pipe=True, with_errors=True)
        except OSError as error:
            return self._say({"failed": f"cannot start srun: {error}"})
        while not any(number in ENDING for number in self._signals.take()):
            self._turn()
            if self._step.poll() is not None and not self._lines:
                return self._say({"failed": f"the step of the guards ended: {self._last_words()}"})
        self._farewell()
        return 0

    def _write_meeting(self) -> None:
        hosts = [own_address(self._host_file), os.uname().nodename]
        port = self._listener.getsockname()[1]
        told = {"port": port, "key": self._key, "hosts": hosts, "process": vars(identify(os.getppid()))}
        draft = self._folder / f".{MEETING}.{os.getpid()}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json.dumps(told))
        draft.replace(self._folder / MEETING)

    def _turn(self) -> None:
        poll = select.poll()
        callers = [one.socket for one in self._strangers] + [line.socket for line in self._lines.values()]
        for fd in (self._signals.fd, *(one.fileno() for one in (self._listener, *callers))):
            poll.register(fd, select.POLLIN)
        poll.poll(500)
        self._accept()
        self._greet()
        now = time.monotonic()
        stood_still = now - self._turned_at > self._guard.silence_s / 4
        self._turned_at = now
        for name, line in list(self._lines.items()):
            told = line.hear()
            if stood_still:
                line.heard_at = max(line.heard_at, now)
            if any("ended" in message for message in told) or not line.is_open:
                self._lose(name, "its guard has ended")
            elif now - line.heard_at > self._guard.silence_s:
                self._lose(name, "nothing is heard of it")
        if now - self._beat_at >= gang.BEAT_S:
            self._beat_at = now
            for line in self._lines.values():
                line.say({})

    def _accept(self) -> None:
        """Take in who calls; more than can be borne wait in the kernel's queue, or are sent away by it."""
        # Nobody is there, or there are no descriptors left: those that are here go on.
        with contextlib.suppress(OSError):
            while len(self._strangers) < STRANGERS:
                self._strangers.append(_Stranger(self._listener.accept()[0]))

    def _greet(self) -> None:
        waiting: list[_Stranger] = []
        for one in self._strangers:
            told = one.greeting()
            if told is not None and secrets.compare_digest(str(told.get("key", "")).encode(), self._key.encode()):
                name = str(told.get("node", ""))
                if name in self._lines:
                    self._lines.pop(name).close()
                self._lines[name] = gang.Line(one.socket)
                self._say({"here": name})
            elif told is not None or one.is_over:
                one.socket.close()
            else:
                waiting.append(one)
        self._strangers = waiting

    def _lose(self, name: str, why: str) -> None:
        """Nothing more is said to it, so that it ends what it has not ended yet."""
        self._lines.pop(name).close()
        self._say({"lost": name, "why": why})

    def _farewell(self) -> None:
        for line in self._lines.values():
            line.say({"end": True})
        until = time.monotonic() + FAREWELL_S
        while self._lines and time.monotonic() < until:
            self._turn()
        if self._step is not None:
            gang.end([self._step], 1.0)

    def _last_words(self) -> str:
        text = b""
        if self._step is not None and self._step.stdout is not None:
            with contextlib.suppress(OSError):
                text = self._step.stdout.read(4096)
        lines = text.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "without a word"

    def _say(self, what: dict[str, str]) -> int:
        with contextlib.suppress(OSError):
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()
        return 1
