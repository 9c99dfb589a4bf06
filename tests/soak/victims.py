"""What may be killed: the host, the program beside an allocation, and what that program runs."""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.conftest import Home

_FOLDER = re.compile(r"/(?P<workload>[^/]+)/(?P<group>[a-z0-9_]+)-(?P<index>\d+)/attempt-(?P<attempt>\d+)-")


class Part(NamedTuple):
    """One allocation, as people name it."""

    workload: str
    task: str
    attempt: int


@dataclass(frozen=True)
class Victim:
    """A process that may be killed."""

    kind: str
    """`host`, `program` or `child`."""
    pid: int
    part: Part | None = None


def victims(home: Home) -> list[Victim]:
    """All that live now. Cost: one scan of /proc."""
    words: dict[int, list[str]] = {}
    parents: dict[int, int] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                words[int(entry.name)] = Path(entry.path, "cmdline").read_bytes().decode(errors="replace").split("\0")
                stat = Path(entry.path, "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(entry.name)] = -1 if stat[0] == "Z" else int(stat[1])
    programs = {pid: part for pid, argv in words.items() if (part := _part_of(home, argv)) is not None}
    found = [Victim("program", pid, part) for pid, part in programs.items() if parents.get(pid, -1) >= 0]
    found += [Victim("child", pid, programs[parent]) for pid, parent in parents.items() if parent in programs]
    return found


def host(home: Home) -> Victim | None:
    """The host, if it answers."""
    try:
        return Victim("host", home.host_pid())
    except Exception:  # noqa: BLE001 - whatever it says, there is none to kill now
        return None


def kill(victim: Victim) -> bool:
    """SIGKILL; False when it was gone already."""
    try:
        os.kill(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _part_of(home: Home, argv: list[str]) -> Part | None:
    """Whose program this command line starts; None for all others."""
    if "child" not in argv:
        return None
    for word in argv:
        if word.startswith(f"{home.paths.workloads}/") and (found := _FOLDER.search(word)):
            return Part(found["workload"], f"{found['group']}/{found['index']}", int(found["attempt"]))
    return None
