"""Whose process runs on a GPU: the task whose token it carries, else its container, else nobody knows."""

from __future__ import annotations

import re
from typing import NamedTuple

from remuda.wire.recording import CONTAINER, TASK

_CONTAINER = re.compile(r"(?:docker|libpod|cri-containerd|crio|containerd|kubepods)[^\n]*?([0-9a-f]{64})")
_TOKEN = b"REMUDA_TOKEN="


class Owner(NamedTuple):
    """One process, for people."""

    name: str
    """Of its program; empty where it is gone, or another machine's."""
    owner: str
    """`task:TOKEN`, `container:ID`, or empty."""


def owner_of(environ: bytes | None, cgroup: str) -> str:
    """Whose a process is. Pure.

    Args:
        environ: as in `/proc/PID/environ`; None where that may not be read, as another user's.
        cgroup: as in `/proc/PID/cgroup`; empty where it cannot be read.
    """
    for pair in (environ or b"").split(b"\0"):
        if pair.startswith(_TOKEN) and len(pair) > len(_TOKEN):
            return TASK + pair[len(_TOKEN) :].decode(errors="replace")
    found = _CONTAINER.search(cgroup)
    return CONTAINER + found.group(1)[:12] if found is not None else ""


class Owners:
    """Answers for the processes of the last look without looking again: their ids are not given to others meanwhile."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, Owner] = {}

    def of(self, pids: set[int]) -> dict[int, Owner]:
        """The owner of each."""
        self._known = {pid: self._known[pid] if pid in self._known else self._look(pid) for pid in pids}
        return self._known

    def _look(self, pid: int) -> Owner:
        environ = self._read(pid, "environ")
        name = (self._read(pid, "comm") or b"").decode(errors="replace").strip()
        cgroup = (self._read(pid, "cgroup") or b"").decode(errors="replace")
        return Owner(name, owner_of(environ, cgroup))

    def _read(self, pid: int, what: str) -> bytes | None:
        try:
            with open(f"{self._proc}/{pid}/{what}", "rb") as file:  # noqa: PTH123 - called for many processes
                return file.read(1 << 20)
        except OSError:
            return None
