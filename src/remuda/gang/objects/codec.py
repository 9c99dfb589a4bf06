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
PIECE: Final = BLOCK * 256
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
    scratch = np.empty(blocks(min(PIECE, len(values))) * BLOCK, np.float32)
    for start in range(0, len(values), PIECE):
        _put(codec, values[start : start + PIECE], out, start, len(values), scratch)


def _put(codec: str, piece: Floats, out: Octets, start: int, elements: int, scratch: Floats) -> None:
    stop = start + len(piece)
    if codec == "fp32":
        out[4 * start : 4 * stop] = piece.astype("<f4", copy=False).view(np.uint8)
    elif codec == "bf16":
        out[2 * start : 2 * stop] = _nearest_bf16(piece, scratch[: len(piece)].view(np.uint32)).view(np.uint8)
    else:
        first, body = 2 * (start // BLOCK), 2 * blocks(elements)
        scales = _quantise(piece, out[body + start : body + stop].view(np.int8), scratch)
        out[first : first + 2 * len(scales)] = scales.view(np.uint8)


def decoded(codec: str, raw: Octets, elements: int) -> Iterator[tuple[slice, Floats]]:
    """The values in `raw`, piece by piece: where they belong among `elements`, and they themselves (float32).

    A piece is good until the next one is asked for.
    """
    scratch = np.empty(blocks(min(PIECE, elements)) * BLOCK, np.float32)
    for start in range(0, elements, PIECE):
        stop = min(start + PIECE, elements)
        yield slice(start, stop), _get(codec, raw, start, stop, elements, scratch)


def _get(codec: str, raw: Octets, start: int, stop: int, elements: int, scratch: Floats) -> Floats:
    if codec == "fp32":
        return np.frombuffer(raw[4 * start : 4 * stop], "<f4").astype(np.float32, copy=False)
    values = scratch[: stop - start]
    if codec == "bf16":
        return _from_bf16(np.frombuffer(raw[2 * start : 2 * stop], "<u2"), values)
    first, body = start // BLOCK, 2 * blocks(elements)
    scales = _from_bf16(np.frombuffer(raw[2 * first : 2 * blocks(stop)], "<u2"))
    values[:] = np.frombuffer(raw[body + start : body + stop], np.int8)
    whole = scratch[: len(scales) * BLOCK]
    whole[len(values) :] = 0
    rows = whole.reshape(-1, BLOCK)
    np.multiply(rows, scales[:, None], out=rows)
    return values


def _quantise(piece: Floats, quanta: NDArray[np.int8], scratch: Floats) -> NDArray[np.uint16]:
    """Write the bytes of a piece; gives its scales."""
    count = blocks(len(piece))
    padded, scratch = piece, scratch[: count * BLOCK]
    if count * BLOCK != len(piece):
        padded = np.zeros(count * BLOCK, np.float32)
        padded[: len(piece)] = piece
    starts = np.arange(0, len(scratch), BLOCK)
    largest: Floats = np.maximum.reduceat(np.abs(padded, out=scratch), starts, dtype=np.float32)
    scales = _upper_bf16(np.divide(largest, np.float32(127), dtype=np.float32))
    steps = _from_bf16(scales)
    steps[steps == 0] = 1
    np.divide(padded.reshape(count, BLOCK), steps[:, None], out=scratch.reshape(count, BLOCK))
    # None is beyond ±127, because no scale is less than its block's largest / 127.
    np.copyto(quanta, np.rint(scratch, out=scratch)[: len(piece)], casting="unsafe")
    return scales


def _from_bf16(bits: NDArray[np.uint16], out: Floats | None = None) -> Floats:
    wide = np.empty(len(bits), np.uint32) if out is None else out.view(np.uint32)
    np.copyto(wide, bits)
    return np.left_shift(wide, np.uint32(16), out=wide).view(np.float32)


def _nearest_bf16(values: Floats, scratch: NDArray[np.uint32]) -> NDArray[np.uint16]:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    np.right_shift(bits, np.uint32(16), out=scratch)
    scratch &= np.uint32(1)
    scratch += np.uint32(0x7FFF)
    scratch += bits
    scratch >>= np.uint32(16)
    rounded: NDArray[np.uint16] = scratch.astype("<u2")
    # What would round to infinity stays the largest finite value; values themselves are finite.
    rounded -= (rounded & np.uint16(0x7FFF)) > _BF16_MAX
    return rounded


def _upper_bf16(magnitudes: Floats) -> NDArray[np.uint16]:
    """The smallest bfloat16 that is no less; magnitudes are finite and not negative."""
    bits = magnitudes.astype(np.float32, copy=False).view(np.uint32)
    return ((bits + np.uint32(0xFFFF)) >> np.uint32(16)).astype("<u2")
