"""What the driver wrote: of a union the bytes of the value's type count, the others are whatever was there. Pure."""

from __future__ import annotations

import struct

DOUBLE, UNSIGNED, LONG, LONG_LONG, SIGNED_LONG_LONG, SIGNED, SHORT = range(7)
"""Types of a value, as NVML numbers them; a C `long` has 8 bytes on the machines that have a driver."""
LOST, RESET_REQUIRED = 15, 16
"""Return codes of a GPU that is gone until the machine, or the GPU, is restarted."""
_MASKS = {UNSIGNED: (1 << 32) - 1, LONG: (1 << 64) - 1, LONG_LONG: (1 << 64) - 1, SHORT: (1 << 16) - 1}
_SIGNED_BITS = {SIGNED_LONG_LONG: 64, SIGNED: 32}


def number(kind: int, raw: int) -> int | None:
    """The whole number in a union's 8 bytes; None for what cannot be recorded: a negative one, or an unknown type.

    Args:
        kind: type of the value.
        raw: the bytes, little endian.
    """
    mask = _MASKS.get(kind)
    if mask is not None:
        return raw & mask
    if kind == DOUBLE:
        (found,) = struct.unpack("<d", raw.to_bytes(8, "little"))
        return round(found) if 0 <= found < 1 << 63 else None
    bits = _SIGNED_BITS.get(kind)
    if bits is None:
        return None
    low = raw & (1 << bits) - 1
    return None if low >> (bits - 1) else low


def share(percent: float) -> int | None:
    """A share in 0.01 % of one in %; None for what is none: it was measured over no time."""
    return round(percent * 100) if 0 <= percent <= 1000 else None


def pci(text: str) -> str:
    """A PCI address as faults name it: `0000:3b:00` of `00000000:3B:00.0`."""
    domain, _, rest = text.lower().partition(".")[0].partition(":")
    return f"{domain[-4:]}:{rest}" if rest else domain
