"""The child as the kernel sees it: start, signal, measure, and make sure that nothing of it stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Callable, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from remuda.node.child.launch import Launch

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
SWEEP_S = 5.0
_SPARED: set[int] = set()


class Cleanup(NamedTuple):
    """What the kernel is asked to do when this program ends without a word."""

    prctl: Callable[[int, int], int] | None

    def bind(self, parent: int) -> None:
        """In a child, before it begins: it is killed when this program, whose pid is `parent`, ends."""
        if self.prctl is not None:
            self.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the kernel was told
                os._exit(1)


def adopt_orphans() -> Cleanup:
    """Become the parent of descendants whose parent ends, so that none escapes; Linux only, elsewhere nothing."""
    if not sys.platform.startswith("linux"):
        return Cleanup(None)
    try:
        import ctypes

        libc = ctypes.CDLL(None)
        function = libc.prctl
    except (ImportError, OSError, AttributeError):
        return Cleanup(None)

    def prctl(option: int, value: int) -> int:
        return int(function(option, value, 0, 0, 0))

    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return Cleanup(prctl)


class Child:
    """One running child, the leader of its own process group.

    The kernel kills it when this program dies (`PR_SET_PDEATHSIG`). Its own children do not inherit that: whoever
    started this program cleans up its session too.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process  # kept: its destructor would otherwise complain about a running child

    def signal_group(self, number: int) -> None:
        """Send a signal to the process group; nobody left is fine."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def ended(self, code: int) -> None:
        """Note that the process was reaped; `code` as `Popen.returncode`."""
        self._process.returncode = code


def spawn(launch: Launch, cwd: str, stdin_file: str, outputs: tuple[int, int], cleanup: Cleanup) -> Child:
    """Start the child with stdout and stderr going to `outputs`.

    Raises:
        OSError: the program, its directory or its input cannot be used, or there are no processes left.
        subprocess.SubprocessError: the kernel refused the process group.
    """
    parent = os.getpid()

    def in_child() -> None:
        os.setpgid(0, 0)
        cleanup.bind(parent)

    stdin = os.open(stdin_file or os.devnull, os.O_RDONLY)
    try:
        process = subprocess.Popen(
            launch.argv,
            env=launch.env,
            cwd=cwd or None,
            stdin=stdin,
            stdout=outputs[0],
            stderr=outputs[1],
            preexec_fn=in_child,  # noqa: PLW1509 - this program has one thread
        )
    finally:
        os.close(stdin)
    return Child(process)


def reap() -> list[tuple[int, int]]:
    """Take in all children that have ended: (pid, code as `Popen.returncode`)."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def spare(pid: int) -> None:
    """This program's own helper: neither it nor what it starts is the child's, or is swept away with it."""
    _SPARED.add(pid)


def spared(parents: Mapping[int, int]) -> set[int]:
    """Pids among `parents` (pid -> parent) of helpers and of what they started."""
    return {pid for pid in parents if any(pid == one or _descends(pid, one, parents) for one in _SPARED)}


def descendants() -> dict[int, float]:
    """Living processes started by this program, directly or not -> CPU seconds used, reaped children included.

    Its helpers (`spare`) are left out. Empty where there is no /proc.
    """
    parents: dict[int, int] = {}
    cpu: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for pid in pids():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - called for every process of the machine
                fields = file.read().rpartition(b") ")[2].split()
        except OSError:
            continue
        if len(fields) > 14 and fields[0] not in (b"Z", b"X"):
            parents[pid] = int(fields[1])
            cpu[pid] = sum(int(value) for value in fields[11:15]) / tick
    own = os.getpid()
    kept = {own, *spared(parents)}
    return {pid: cpu[pid] for pid in parents if pid not in kept and _descends(pid, own, parents)}


def pids() -> list[int]:
    """All processes that are seen; empty where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    for _ in range(len(parents)):
        pid = parents.get(pid, 0)
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
    return False


def terminate_strays(child: Child, kept: Container[int] = ()) -> None:
    """SIGTERM to everything that this program started and that is not in the child's process group, but for `kept`."""
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid not in kept and os.getpgid(pid) != child.pid:
                os.kill(pid, signal.SIGTERM)


def kill_descendants() -> None:
    """SIGKILL to everything that this program started, in whatever group or session it hides."""
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def sweep(child: Child) -> None:
    """After the child has ended: kill what it left behind, and wait until it is gone (at most `SWEEP_S`)."""
    child.signal_group(signal.SIGKILL)
    end = time.monotonic() + SWEEP_S
    pause = 0.001
    while time.monotonic() < end:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if _SPARED and not descendants():
                return  # only helpers are left
            kill_descendants()
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
