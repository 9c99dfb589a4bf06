"""What is known of the GPUs before a script starts: how many are visible, and what a failed test says. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from remuda.node.gpu.decoding import pci
from remuda.node.gpu.smoke import OK
from remuda.node.script.patterns import CUDA_CODES
from remuda.wire.fault import MAX_LINE, NODE, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.node.gpu.smoke import GpuSmokeResult

#: Lists of devices, most binding first: what a library obeys stands before what the scheduler says.
LISTS = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "GPU_DEVICE_ORDINAL",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
)
COUNT = "SLURM_GPUS_ON_NODE"
_NOTHING = ("", "-1", "NoDevFiles", "void", "none")


class Visible(NamedTuple):
    """How many GPUs a program sees."""

    number: int | None
    """None when nothing tells."""
    source: str = ""
    """`NAME=value` of the variable that tells."""


def visible(env: Mapping[str, str]) -> Visible:
    """How many GPUs an environment gives to a program."""
    for name in LISTS:
        if name in env:
            return Visible(_listed(env[name]), f"{name}={env[name]}")
    if env.get(COUNT, "").isdigit():
        return Visible(int(env[COUNT]), f"{COUNT}={env[COUNT]}")
    return Visible(None)


def are_given(env: Mapping[str, str]) -> bool:
    """Whether the scheduler says that it gave GPUs."""
    listed = any(_listed(env[name]) > 0 for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS") if name in env)
    return listed or (env.get(COUNT, "").isdigit() and int(env[COUNT]) > 0)


def missing(asked: int, seen: Visible) -> str:
    """Why there are too few, in one sentence; empty when there are enough or nothing tells."""
    if seen.number is None or seen.number >= asked:
        return ""
    verb = "is" if seen.number == 1 else "are"
    return f"{asked} {_were(asked)} asked for and {seen.number} {verb} visible ({seen.source})"


def missing_in(asked: int, result: GpuSmokeResult) -> str:
    """The same for what CUDA itself sees."""
    if result.outcome != OK or len(result.devices) >= asked:
        return ""
    return f"{asked} {_were(asked)} asked for and CUDA sees {len(result.devices)}"


def missing_fault(sentence: str, at: float) -> Fault:
    """The evidence that GPUs are missing."""
    return Fault(kind=NODE, name="gpu-missing", line=sentence[:MAX_LINE], at=at)


def broken_fault(result: GpuSmokeResult, at: float) -> Fault:
    """The evidence of a failed test."""
    kind = CUDA_CODES[result.code].kind if result.code in CUDA_CODES else NODE
    bad = next((device for device in result.devices if not device["ok"]), None)
    device = (pci(bad["address"]) or str(bad["index"])) if bad is not None else ""
    return Fault(kind=kind, name=result.fault, line=result.error[:MAX_LINE], device=device, at=at)


def _were(count: int) -> str:
    return "GPU was" if count == 1 else "GPUs were"


def _listed(text: str) -> int:
    """How many devices a list names: `0,1`, `0-3,5`, UUIDs; the scheduler's words for none count as none."""
    total = 0
    for word in text.split(","):
        word = word.strip()
        if word in _NOTHING:
            break  # as CUDA does: what follows an invalid entry is not visible
        span = re.fullmatch(r"(\d+)-(\d+)", word)
        total += int(span.group(2)) - int(span.group(1)) + 1 if span else 1
    return total
