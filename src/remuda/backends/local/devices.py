"""Which GPUs of this machine go to which task. Pure, but for asking the machine what it has."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from remuda.base.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def assign(
    needs: Mapping[str, tuple[int, int]], present: Sequence[str], taken: Mapping[str, str], none: str = ""
) -> dict[str, list[list[str]]]:
    """Give every task its own GPUs.

    Args:
        needs: group -> (number of tasks, GPUs per task).
        present: ids of the GPUs of this machine.
        taken: id -> name of the workload that has it.
        none: how to ask for no GPUs, for a hint.

    Returns:
        group -> one list of ids per task, in index order; groups without GPUs are left out.

    Raises:
        Conflict: there are not enough free ones; says who has the others.
    """
    total = sum(count * gpus for count, gpus in needs.values())
    free = [device for device in present if device not in taken]
    if total > len(free):
        holders = ", ".join(sorted({taken[device] for device in present if device in taken}))
        raise Conflict(
            f"{total} GPUs are needed and {len(free)} of this machine's {len(present)} are free",
            hint=f"in use by: {holders}" if holders else f"to run without GPUs: {none or 'gpus_per_replica: 0'}",
        )
    supply = iter(free)
    return {
        group: [[next(supply) for _ in range(gpus)] for _ in range(count)]
        for group, (count, gpus) in needs.items()
        if gpus
    }


def present_gpus() -> tuple[str, ...]:
    """Ids of this machine's NVIDIA GPUs: `CUDA_VISIBLE_DEVICES` where set, else what nvidia-smi lists, else none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(part.strip() for part in visible.split(",") if part.strip() not in ("", "-1", "NoDevFiles"))
    return tuple(line for line in _nvidia_smi("index") if line.isdigit())


def gpu_type() -> str:
    """What this machine's GPUs are, as the maker names them; empty where there are several kinds, or none."""
    names = set(_nvidia_smi("name"))
    return names.pop() if len(names) == 1 else ""


def _nvidia_smi(field: str) -> list[str]:
    """One word or name per GPU; none where there is no such program, or it does not answer."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, f"--query-gpu={field}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode != 0:
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]
