"""What the driver's answers say about a GPU's health: findings, of which none ends anything. Pure.

Counts of memory errors are information: what they mean for a GPU the driver says itself, by its recovery action.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.node.gpu.decoding import LOST, RESET_REQUIRED
from remuda.node.script.patterns import XIDS
from remuda.wire.fault import APPLICATION, INFO, MAX_LINE, NODE, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.wire.recording import Gpu

#: Errors of the program that runs on the GPU; the sampler sees them without the program's output beside them.
OF_PROGRAMS = frozenset((13, 31, 43, 45))
#: Recovery action -> (name, what to do), as the driver numbers them.
RECOVERIES = {
    1: ("recovery-reset", "reset the GPU"),
    2: ("recovery-reboot", "reboot the node"),
    3: ("recovery-drain", "drain what runs over its links"),
    4: ("recovery-drain-reset", "drain it and reset the GPU"),
}
_GONE = {
    LOST: ("gpu-lost", "the driver says that the GPU is lost"),
    RESET_REQUIRED: ("gpu-reset-required", "the driver says that the GPU must be reset"),
}


def of_code(gpu: Gpu, code: int, at: float) -> list[Fault]:
    """What a return code of a call on a GPU says of it."""
    if code not in _GONE:
        return []
    name, text = _GONE[code]
    return [_fault(NODE, name, text, gpu, at)]


def of_values(gpu: Gpu, values: Mapping[str, int], at: float) -> list[Fault]:
    """What the values of `nvml.SLOW` say; a missing one says nothing."""
    found = []
    if values.get("remap_failed"):
        found.append(_fault(NODE, "remap-failed", "a row of the GPU's memory could not be remapped", gpu, at))
    if values.get("remap_pending"):
        found.append(_fault(INFO, "remap-pending", "a row of memory is remapped at the next reset", gpu, at))
    if values.get("ecc_uncorrected"):
        text = f"{values['ecc_uncorrected']} memory errors that could not be corrected since the driver was loaded"
        found.append(_fault(INFO, "ecc-uncorrected", text, gpu, at))
    action = values.get("recovery", 0)
    if action:
        name, text = RECOVERIES.get(action, (f"recovery-{action}", f"do what it calls action {action}"))
        kind = NODE if action in RECOVERIES else INFO
        found.append(_fault(kind, name, f"the driver asks to {text}", gpu, at))
    return found


def of_xid(gpu: Gpu, number: int, at: float) -> Fault:
    """What an error number says that came as an event."""
    known = XIDS.get(number)
    kind = APPLICATION if number in OF_PROGRAMS else INFO if known is None else known.kind
    return _fault(kind, f"xid-{number}", f"Xid {number} on GPU {gpu.index} ({gpu.name})", gpu, at)


def of_silence(gpu: Gpu, at: float) -> Fault:
    """A call that has not come back."""
    return _fault(NODE, "gpu-silent", "the driver does not answer for the GPU", gpu, at)


def _fault(kind: str, name: str, line: str, gpu: Gpu, at: float) -> Fault:
    return Fault(kind, name, line[:MAX_LINE], gpu.pci or gpu.uuid or str(gpu.index), at)
