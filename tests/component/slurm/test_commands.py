"""Slurm's commands, or what a site put in their place, are run to their end or ended with all that they started."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.backends.slurm.commands import Commands, _Command
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    import subprocess

WRAPPERS = {
    "it waits": 'sleep 600 & echo $! > "$PIDS"; wait',
    "it waits for what was called": "sh -c 'sleep 600 & echo $! > \"$PIDS\"; wait'; exit 0",
    "it has ended, and what it started has not": 'sleep 600 & echo $! > "$PIDS"; echo 1; exit 0',
    "it does not want to end": 'trap "" TERM INT HUP; sleep 600 & echo $! > "$PIDS"; while :; do wait; done',
}


def wrapper(folder: Path, text: str) -> Commands:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "PIDS": str(folder / "pids")}
    return Commands(timeout_s=1.5, environ=env)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("text", WRAPPERS.values(), ids=WRAPPERS)
async def test_one_that_hangs_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    commands, pids = wrapper(tmp_path, text), tmp_path / "pids"
    start = _Command._start

    def begun(self: _Command) -> subprocess.Popen[bytes]:
        """Its time is counted from when it waits, however long the shell took to come so far."""
        process = start(self)
        until(lambda: pids.exists() and pids.read_text().strip() != "", "it has begun")
        return process

    monkeypatch.setattr(_Command, "_start", begun)
    with pytest.raises(BackendUnreachable, match=r"squeue gave no answer within 1\.5 s"):
        await commands.run(("squeue", "-h"))
    pid = int(pids.read_text())
    await asyncio.to_thread(until, lambda: not lives(pid), "what it started has ended")


async def test_one_that_nobody_waits_for_any_more_is_ended_too(tmp_path: Path) -> None:
    commands = wrapper(tmp_path, WRAPPERS["it waits"])
    commands.timeout_s = 600
    asked = asyncio.ensure_future(commands.run(("squeue", "-h")))
    pids = tmp_path / "pids"
    await asyncio.to_thread(until, lambda: pids.exists() and pids.read_text().strip() != "", "it has begun")
    pid = int(pids.read_text())
    assert lives(pid)
    asked.cancel()
    with suppress(asyncio.CancelledError):
        await asked
    await asyncio.to_thread(until, lambda: not lives(pid), "what it started has ended")
