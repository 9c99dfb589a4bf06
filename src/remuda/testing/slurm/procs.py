"""The processes of this machine, as tests look at them: states, trees, environments, open files."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK = "REMUDA_SLURM_BED"
"""In the environment of a bed's daemons, and of what they start: names its directory."""


def state(pid: int) -> str:
    """One letter, as in `ps`: `T` is stopped by a signal; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def pids() -> Iterator[int]:
    """All processes of this machine."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            yield int(entry.name)


def children() -> dict[int, list[int]]:
    """Living processes by their parent."""
    found: dict[int, list[int]] = {}
    for pid in pids():
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found.setdefault(int(fields[1]), []).append(pid)
    return found


def tree(roots: Iterable[int]) -> list[int]:
    """The roots and all below them, parents first."""
    below, found, waiting = children(), [], list(roots)
    while waiting:
        pid = waiting.pop(0)
        if pid not in found:
            found.append(pid)
            waiting += below.get(pid, [])
    return found


def environment(pid: int) -> bytes:
    """A process's environment, `NAME=value` between zero bytes; empty when it cannot be read."""
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def has_open(pid: int, files: set[str]) -> bool:
    """Whether a process has one of the files open."""
    try:
        return any(str(entry.readlink()) in files for entry in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def program(pid: int) -> str:
    """Name of the file that a process runs; empty when it cannot be read."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""
