"""A child that is a step of the scheduler's in this very job: what an earlier start has left of it is ended before.

A `srun` that is killed may leave its step, with the port and the GPUs that the next one needs. Where nobody answers,
this waits: without its controller Slurm begins no step either, and who watches the start gives it up in time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.wire.child import DEVICES, DEVICES_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

BEGUN = "step"
"""In the run directory, once a step was begun: until then there is nothing to look for."""
PAUSE_S = 1.0
KINDLY = 5
"""So often a step is asked to end before it is killed."""


def main(arguments: list[str]) -> int:
    """`step NAME RUN_DIR -- srun …`: becomes that `srun`."""
    name, begun, words = arguments[0], Path(arguments[1]) / BEGUN, arguments[3:]
    if begun.exists():
        clear(name, os.environ.get("SLURM_JOB_ID", ""))
    begun.touch()
    words = with_devices(words, os.environ)
    os.execvp(words[0], words)  # noqa: S606 - no shell is wanted


def with_devices(words: list[str], environ: Mapping[str, str]) -> list[str]:
    """The same with the GPUs of this process, which a step that overlaps others would not keep to."""
    devices = environ.get(DEVICES)
    return [word.replace(DEVICES_MARK, devices or "") for word in words if devices or DEVICES_MARK not in word]


def clear(name: str, job: str) -> None:
    """Cancel the steps of that name in a job, until the scheduler says that there is none."""
    tries = 0
    while True:
        left = _steps(name, job)
        if left == []:
            return
        if left:
            sys.stderr.write(f"remuda-node: ends what an earlier start has left: {' '.join(left)}\n")
            sys.stderr.flush()
            _ask(["scancel", *(["--signal=KILL"] if tries >= KINDLY else []), *left])
            tries += 1
        time.sleep(PAUSE_S)


def _steps(name: str, job: str) -> list[str] | None:
    """Ids of a job's steps of that name; None: nobody answers."""
    said = _ask(["squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%i %j"])
    if said is None:
        return None
    rows = [line.split(None, 1) for line in said.splitlines()]
    return [row[0] for row in rows if len(row) > 1 and row[1].strip() == name]


def _ask(words: list[str]) -> str | None:
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"remuda-node: {error}\n")
        return None
    if done.returncode:
        sys.stderr.write(f"remuda-node: {done.stderr.strip() or words[0]}\n")
    return None if done.returncode else done.stdout
