"""Allocations on this machine found by their marks alone: whoever started them, and from whatever home."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from remuda.backends.base import Life, Stray, is_token
from remuda.backends.local.processes import kill_token, signal_process, tokens_by_pid
from remuda.backends.rundir import home_of
from remuda.wire.process import identify

_RUN_DIR = b"REMUDA_RUN_DIR="
_OF_OTHERS = (b"SLURM_JOB_ID=", b"REMUDA_NODE=")
_CHILD = b"child"


def list_all() -> list[Stray]:
    """Every allocation of this user of which a process lives here, but for those in jobs of Slurm and in pods.

    Cost: one or two small files read per process of the user.
    """
    return [stray for token, pids in _pids().items() if (stray := _stray(token, pids)) is not None]


def remove(stray: Stray, *, force: bool) -> None:
    """Ask the node program to end it; where there is none any more, or by `force`, kill all of its processes."""
    pids = _pids().get(stray.token, [])
    programs = [pid for pid in pids if _folder_of_program(pid)]
    if not force and programs:
        for pid in programs:
            signal_process(identify(pid), signal.SIGTERM)
    else:
        kill_token(stray.token, dict.fromkeys(pids, stray.token))


def _pids() -> dict[str, list[int]]:
    """Token -> its living processes."""
    found: dict[str, list[int]] = {}
    for pid, token in tokens_by_pid().items():
        if is_token(token) and identify(pid).start:
            found.setdefault(token, []).append(pid)
    return found


def _stray(token: str, pids: list[int]) -> Stray | None:
    """None where a process of it is inside a job of Slurm or a pod, which others have to name."""
    homes = [""]
    for pid in pids:
        variables = _read(pid, "environ").split(b"\0")
        if any(variable.startswith(_OF_OTHERS) for variable in variables):
            return None
        folders = [_folder_of_program(pid)]
        folders += [variable.removeprefix(_RUN_DIR) for variable in variables if variable.startswith(_RUN_DIR)]
        homes += [home_of(Path(os.fsdecode(folder)), token) for folder in folders if folder]
    return Stray(
        token,
        ",".join(map(str, sorted(pids))),
        Life.RUNNING,
        node=os.uname().nodename,
        since=min(filter(None, map(_began, pids)), default=0.0),
        home=next(filter(None, homes), ""),
    )


def _folder_of_program(pid: int) -> bytes:
    """Directory of the allocation whose node program this process is; empty when it is none."""
    words = _read(pid, "cmdline").rstrip(b"\0").split(b"\0")
    is_program = len(words) > 2 and words[-2] == _CHILD and words[-1].endswith(b"/child.json")
    return os.path.dirname(words[-1]) if is_program else b""  # noqa: PTH120 - bytes


def _began(pid: int) -> float:
    """When a process was started, 0 if it is no more. The times of its folder in /proc are those of a look at it."""
    ticks = identify(pid).start
    if not ticks.isdigit():
        return 0.0
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
