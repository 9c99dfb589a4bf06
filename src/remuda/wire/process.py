"""A process that is surely the same one: pid, start time and boot, kept in `claim.json`.

Pids are reused; a pid with the kernel's start time of the process and the boot id is not. Python 3.9, standard
library only.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class ProcessId:
    """Identity of one process for ever."""

    pid: int
    start: str
    """Start time as the kernel tells it (clock ticks since boot on Linux)."""
    boot: str
    """Boot id of the machine, empty where there is none."""
    node: str
    """Host name of the machine."""

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ProcessId:
        """Read `to_json`'s text.

        Raises:
            ValueError: something else.
        """
        try:
            return cls(**json.loads(text))  # a JSON array or number is a TypeError too
        except TypeError as error:
            raise ValueError(str(error)) from error


@cache  # a process sees one boot
def boot_id() -> str:
    """The kernel's random id of this boot, empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@cache
def _has_proc() -> bool:
    return Path("/proc/self/stat").exists()


def start_time(pid: int) -> str:
    """Start time of a living process, empty when there is none (a zombie is not living)."""
    if _has_proc():
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - once a second for every task
                stat = file.read()
        except OSError:
            return ""
        fields = stat[stat.rindex(b")") + 2 :].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    import subprocess  # only where there is no /proc

    answer = subprocess.run(  # noqa: PLW1510 - ps exits 1 for an unknown pid, which is an answer
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True
    )
    return answer.stdout.strip()


def identify(pid: int) -> ProcessId:
    """Identity of a process of this machine; `start` is empty when it does not live."""
    return ProcessId(pid=pid, start=start_time(pid), boot=boot_id(), node=os.uname().nodename)


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process lives, on this machine, in this boot."""
    return bool(process.start) and process.boot == boot_id() and start_time(process.pid) == process.start
