"""How float32 values travel: as they are, as bfloat16, or as 8-bit integers with a scale for each 256 of them.

Everything works in pieces, so that coding takes little memory beside its input and output. All is little-endian.

    fp32   4 bytes a value
    bf16   2 bytes a value: the upper half of its float32, rounded to nearest even
    int8   the scales (bfloat16, one for each block of 256 values, the last block may be shorter), then one signed byte
           a value; a value is `byte × scale`. A scale is the block's largest magnitude / 127, rounded up, so that no
           byte leaves -127..127.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Octets = NDArray[np.uint8]

BLOCK: Final = 256
"""Values that share a scale."""
PIECE: Final = BLOCK * 1024
"""Values that are coded at once."""
CODECS: Final = ("fp32", "bf16", "int8")
#: Largest finite bfloat16, as bits.
_BF16_MAX: Final = 0x7F7F


def check(codec: str) -> str:
    """The codec's name.

    Raises:
        InputError: there is none of that name.
    """
    if codec not in CODECS:
        raise InputError(f"there is no codec {codec!r}", hint=f"known: {', '.join(CODECS)}")
    return codec


def size(codec: str, elements: int) -> int:
    """Bytes of so many encoded values."""
    if codec == "int8":
        return elements + 2 * blocks(elements)
    return elements * (4 if codec == "fp32" else 2)


def blocks(elements: int) -> int:
    """Blocks of so many values."""
    return -(-elements // BLOCK)


def encode(codec: str, values: Floats, out: Octets) -> None:
    """Write `values` (n finite float32) into `out` (`size(codec, n)` bytes)."""
    for start in range(0, len(values), PIECE):
        _put(codec, values[start : start + PIECE], out, start, len(values))


def _put(codec: str, piece: Floats, out: Octets, start: int, elements: int) -> None:
    stop = start + len(piece)
    if codec == "fp32":
        out[4 * start : 4 * stop] = piece.astype("<f4", copy=False).view(np.uint8)
    elif codec == "bf16":
        out[2 * start : 2 * stop] = _nearest_bf16(piece).view(np.uint8)
    else:
        scales, quanta = _quantise(piece)
        first = 2 * (start // BLOCK)
        out[first : first + 2 * len(scales)] = scales.view(np.uint8)
        body = 2 * blocks(elements)
        out[body + start : body + stop] = quanta.view(np.uint8)


def decoded(codec: str, raw: Octets, elements: int) -> Iterator[tuple[slice, Floats]]:
    """The values in `raw`, piece by piece: where they belong among `elements`, and they themselves (float32)."""
    for start in range(0, elements, PIECE):
        stop = min(start + PIECE, elements)
        yield slice(start, stop), _get(codec, raw, start, stop, elements)


def _get(codec: str, raw: Octets, start: int, stop: int, elements: int) -> Floats:
    if codec == "fp32":
        return np.frombuffer(raw[4 * start : 4 * stop], "<f4").astype(np.float32, copy=False)
    if codec == "bf16":
        return _from_bf16(np.frombuffer(raw[2 * start : 2 * stop], "<u2"))
    first, body = start // BLOCK, 2 * blocks(elements)
    scales = _from_bf16(np.frombuffer(raw[2 * first : 2 * blocks(stop)], "<u2"))
    quanta = np.frombuffer(raw[body + start : body + stop], np.int8)
    return quanta.astype(np.float32) * np.repeat(scales, BLOCK)[: len(quanta)]


def _quantise(piece: Floats) -> tuple[NDArray[np.uint16], NDArray[np.int8]]:
    count = blocks(len(piece))
    rows: Floats = piece
    if count * BLOCK != len(piece):
        rows = np.zeros(count * BLOCK, np.float32)
        rows[: len(piece)] = piece
    rows = rows.reshape(count, BLOCK)
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    scales = _upper_bf16(largest / np.float32(127))
    steps = _from_bf16(scales)
    steps[steps == 0] = 1
    quanta = np.rint(rows / steps[:, None]).clip(-127, 127).astype(np.int8)
    return scales, quanta.reshape(-1)[: len(piece)]


def _from_bf16(bits: NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _nearest_bf16(values: Floats) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # What would round to infinity stays the largest finite value; values themselves are finite.
    overflows = (rounded & np.uint32(0x7FFF)) > _BF16_MAX
    return np.where(overflows, rounded - np.uint32(1), rounded).astype("<u2")


def _upper_bf16(magnitudes: Floats) -> NDArray[np.uint16]:
    """The smallest bfloat16 that is no less; magnitudes are finite and not negative."""
    bits = magnitudes.astype(np.float32, copy=False).view(np.uint32)
    return ((bits + np.uint32(0xFFFF)) >> np.uint32(16)).astype("<u2")
