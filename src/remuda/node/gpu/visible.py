"""Which of a machine's GPUs an environment gives to a program. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.node.gpu.gpus import LISTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.wire.recording import Gpu

NAMES = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Of NVIDIA's GPUs, most binding first."""
assert set(NAMES) <= set(LISTS)


def chosen(gpus: Sequence[Gpu], env: Mapping[str, str]) -> tuple[list[Gpu], str]:
    """The GPUs that are given, in the driver's order, and why it is none, in a sentence.

    Numbers count the GPUs that this process may use, in the driver's order: where a scheduler hides the others, both
    count anew. CUDA does so, too, unless it sorts GPUs of several kinds by speed.

    Args:
        gpus: that this process may use, in the driver's order; without a UUID where the driver did not tell it.
        env: variables of the program; without one of `NAMES` all are given.
    """
    name = next((name for name in NAMES if name in env), "")
    if not name:
        return list(gpus), ""
    picked = set()
    for word in env[name].split(","):
        found = _places(gpus, word.strip())
        if not found and all(gpu.uuid for gpu in gpus):
            break  # as CUDA does: what follows an invalid entry is not visible
        picked |= found
    why = "" if picked else f"no GPU is given to it ({name}={env[name]})"
    return [gpu for place, gpu in enumerate(gpus) if place in picked], why


def _places(gpus: Sequence[Gpu], word: str) -> set[int]:
    first, _, last = word.partition("-")
    if first.isdigit() and (not last or last.isdigit()):
        return {place for place in range(int(first), int(last or first) + 1) if place < len(gpus)}
    if not word:
        return set()
    if word.startswith("MIG-GPU-"):  # the older form: of which GPU it is a part
        return {place for place, gpu in enumerate(gpus) if word[4:].startswith(gpu.uuid) and gpu.uuid}
    if word.startswith("MIG-"):
        return {place for place, gpu in enumerate(gpus) if gpu.is_mig}
    return {place for place, gpu in enumerate(gpus) if gpu.uuid.startswith(word)}
