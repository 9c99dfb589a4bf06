"""Daemons as processes: started, found again by later programs, stopped.

A daemon is known by `run/NAME.pid`, which holds its pid and when it started, so a pid that something else got since
then never receives a signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError, TimedOut
from remuda.base.waiting import until
from remuda.wire.process import start_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

PROGRAMS = ("slurmctld", "slurmd", "munged")
"""Those of a fleet, as the kernel calls them."""


def identity(pid: int) -> str:
    """`pid start-time clock`: names a process for ever. `clock` is the time namespace in which it started then."""
    return f"{pid} {start_time(pid)} {_clock()}"


def is_alive(known: str) -> bool:
    """Whether the process of an `identity` lives; of another time namespace's, whether one has its number."""
    pid, start, clock = [*known.split(), "", "", ""][:3]
    if not start or start.startswith("time:"):
        return False
    now = start_time(int(pid))
    return bool(now) if clock and clock != _clock() else now == start


@cache
def _clock() -> str:
    """The time namespace of this process: start times are told as it counts; empty where the kernel has none."""
    try:
        return os.readlink("/proc/self/ns/time")  # noqa: PTH115 - no path
    except OSError:
        return ""


def wait_until(ask: Callable[[], object], what: str, limit_s: float, *, step_s: float = 0.05) -> None:
    """Ask until the answer is true.

    Raises:
        TimedOut: it was not within `limit_s`.
    """
    if not until(ask, limit_s, step_s):
        raise TimedOut(f"{what}: not within {limit_s:.0f} s")


def send(targets: Iterable[int], number: int) -> None:
    """Send a signal to each; those that are gone do not matter."""
    for pid in targets:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def orphans() -> Iterator[tuple[int, str, str]]:
    """Daemons of this user's fleets whose directory was removed: pid, program and directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, owner = (entry / "comm").read_text().strip(), entry.stat().st_uid
            environ = (entry / "environ").read_bytes() if name in PROGRAMS and owner == os.getuid() else b""
            folder = os.fsdecode((b"\0" + environ).partition(b"\0SLURM_CONF=")[2].partition(b"/slurm.conf\0")[0])
            if folder.endswith(("/fleet", "/fleet-node/slurm")) and not Path(f"{entry}/root{folder}").exists():
                yield int(entry.name), name, folder
        except OSError:
            continue


#: Daemons that this process started, by directory and name: whoever ends one here must reap it.
_CHILDREN: dict[tuple[Path, str], subprocess.Popen[bytes]] = {}


class Daemons:
    """The daemons of one directory, by name."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _record(self, name: str) -> Path:
        return self._root / "run" / f"{name}.pid"

    def pid(self, name: str) -> int | None:
        """Pid of a living daemon, whoever started it."""
        self._reap(name)
        try:
            known = self._record(name).read_text().strip()
        except OSError:
            return None
        return int(known.split()[0]) if is_alive(known) else None

    def _reap(self, name: str) -> None:
        """Forget a child of ours that has ended, so that no zombie stays."""
        child = _CHILDREN.get((self._root, name))
        if child is not None and not start_time(child.pid):
            child.communicate()
            del _CHILDREN[self._root, name]

    def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str], *, gated: bool = False) -> int:
        """Start a daemon that outlives this process, unless it runs; its pid.

        Args:
            name: under which it is found again; its output goes to `log/NAME.out`.
            argv: what to run.
            env: its whole environment.
            gated: it reads one byte from its standard input before it does anything; see `open_gate`.
        """
        running = self.pid(name)
        if running:
            return running
        with (self._root / "log" / f"{name}.out").open("ab") as log:
            child = subprocess.Popen(
                list(argv),
                cwd=self._root,
                env=dict(env),
                stdin=subprocess.PIPE if gated else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._record(name).write_text(identity(child.pid) + "\n")
        _CHILDREN[self._root, name] = child
        return child.pid

    def is_gated(self, name: str) -> bool:
        """Whether this process started it gated, and has not let it go on."""
        child = _CHILDREN.get((self._root, name))
        return child is not None and child.stdin is not None and not child.stdin.closed

    def open_gate(self, name: str) -> None:
        """Let a gated daemon go on."""
        gate = _CHILDREN[self._root, name].stdin
        assert gate is not None
        with suppress(BrokenPipeError):  # it ended meanwhile; whoever waits for it finds its log
            gate.write(b"\n")
            gate.flush()
        with suppress(BrokenPipeError):
            gate.close()

    def stop(self, name: str, *, kill: bool = False, limit_s: float = 60) -> None:
        """End a daemon: by SIGTERM, after `limit_s` by SIGKILL; absent is fine.

        Raises:
            TimedOut: not even SIGKILL ended it.
        """
        pid = self.pid(name)
        if pid and not kill:
            send([pid], signal.SIGTERM)
            with suppress(TimedOut):
                wait_until(lambda: not self.pid(name), name, limit_s, step_s=0.02)
        if pid and self.pid(name):
            send([pid], signal.SIGKILL)
            wait_until(lambda: not self.pid(name), f"the end of {name}", 60, step_s=0.02)
        self._reap(name)
        self._record(name).unlink(missing_ok=True)

    def wait_ready(self, name: str, ask: Callable[[], object], limit_s: float = 180) -> None:
        """Wait for a daemon that was just started.

        Raises:
            RemudaError: it ended; the message has the end of its log.
            TimedOut: it lives and is not ready.
        """

        def ready() -> object:
            if not self.pid(name):
                raise RemudaError(f"{name} ended as soon as it was started:\n{self.last_words(name)}")
            return ask()

        try:
            wait_until(ready, f"{name} is ready", limit_s)
        except TimedOut as error:
            raise TimedOut(f"{error}\n{self.last_words(name)}") from error

    def last_words(self, name: str, lines: int = 12) -> str:
        """The end of a daemon's logs."""
        texts = []
        for suffix in ("log", "out"):
            with suppress(OSError):
                texts += (self._root / "log" / f"{name}.{suffix}").read_text(errors="replace").splitlines()[-lines:]
        return "\n".join(texts)
