"""What this machine brings into a fleet. GPUs are asked for in a process of their own: a lost one hangs who asks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from remuda.base.errors import InputError
from remuda.fleet.conf import gpus_of
from remuda.plan.placing.gpus import gpu_named

_WAIT_S = 20.0


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_mib() -> int:
    """Memory of the machine."""
    return (
        int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line).split()[1])
        >> 10
    )


def free_bytes(folder: Path) -> int:
    """Room on the disk that a folder is on; 0 where that cannot be told."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def name() -> str:
    """What the machine is called as a node unless its user says otherwise."""
    return os.uname().nodename.partition(".")[0] or "node"


def gpus() -> str:
    """`TYPE:COUNT` of the GPUs that the NVIDIA driver knows; empty without one."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "remuda.fleet.machine"], capture_output=True, text=True, timeout=_WAIT_S,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        names = [str(one) for one in json.loads(done.stdout)]
    except (OSError, subprocess.TimeoutExpired, ValueError, TypeError):
        return ""
    return said(names)


def gpus_left(joined: str) -> str:
    """Of the GPUs that a node joined with those that are still there, as `COUNT`."""
    _, count = gpus_of(joined)
    there = sum(Path(f"/dev/nvidia{number}").is_char_device() for number in range(count))
    answering = gpus_of(gpus())[1]
    return str(min(count, answering or there))


def said(names: list[str]) -> str:
    """Names of GPUs as Slurm has them: `h100:2`. Of several kinds only the number. Pure."""
    kinds = Counter(kind_of(one) for one in names)
    if not kinds:
        return ""
    kind, count = next(iter(kinds.items()))
    return f"{kind}:{count}" if len(kinds) == 1 and kind else str(len(names))


def kind_of(name: str) -> str:
    """`NVIDIA H100 80GB HBM3` as a type of Slurm: `h100`; one that is not known by its own words. Pure."""
    known = gpu_named(name)
    plain = known.name if known is not None else name.lower().removeprefix("nvidia ")
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def checked(text: str) -> str:
    """GPUs that a user says this machine has.

    Raises:
        InputError: that is no `TYPE:COUNT`, or one of them has no device here.
    """
    _, count = gpus_of(text)
    for number in range(count):
        if not Path(f"/dev/nvidia{number}").is_char_device():
            raise InputError(f"this machine has no /dev/nvidia{number}", hint="say fewer GPUs, or none", where="--gpus")
    return text


def _names() -> list[str]:
    from remuda.node.gpu.nvml import Failed, Nvml

    try:
        library = Nvml()
        return [library.describe(index, library.open(index)).name for index in range(library.count())]
    except Failed:
        return []


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_names()))
