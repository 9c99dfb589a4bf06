"""The bytes of an object: 1,024 bytes of JSON, then sections that each prove themselves.

A section is read alone, by its range: its 64 bytes of seal say which one it is and what its payload's checksum is.

    0   4   b"RMS1"
    4   4   shard (uint32)
    8   4   round (int32)
    12  4   rank (int32), -1 where it belongs to none
    16  8   elements (uint64)
    24  8   weight (float64)
    32  32  SHA-256 of the 32 bytes before and the payload

All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from remuda.gang.errors import Damaged
from remuda.gang.objects import codec as codecs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.gang.objects.codec import Floats, Octets

HEAD: Final = 1024
SEAL: Final = 64
FORMAT: Final = "remuda-gang-1"
NOBODY: Final = -1
_MARK: Final = b"RMS1"
_FIELDS: Final = struct.Struct("<4sIiiQd")


@dataclass(frozen=True)
class Section:
    """What a seal says."""

    shard: int
    round: int
    rank: int
    elements: int
    weight: float


def section_bytes(codec: str, elements: int) -> int:
    """Bytes of a section with its seal."""
    return SEAL + codecs.size(codec, elements)


def object_bytes(codec: str, elements: Sequence[int]) -> int:
    """Bytes of an object whose sections have so many values each."""
    return HEAD + sum(section_bytes(codec, count) for count in elements)


def place(codec: str, elements: Sequence[int], section: int) -> tuple[int, int]:
    """First and last byte (exclusive) of a section in its object."""
    start = object_bytes(codec, elements[:section])
    return start, start + section_bytes(codec, elements[section])


def write_seal(section: Section, raw: Octets) -> bytes:
    """Seal a section whose payload stands in `raw[SEAL:]`; gives the seal."""
    said = _FIELDS.pack(_MARK, section.shard, section.round, section.rank, section.elements, section.weight)
    seal = said + _checksum(said, raw[SEAL:])
    raw[:SEAL] = np.frombuffer(seal, np.uint8)
    return seal


def read_section(raw: Octets, codec: str, elements: int, what: str) -> Section:
    """What the seal of a section says; its payload is `raw[SEAL:]`.

    Raises:
        Damaged: it is shorter or longer than `elements` values make it, or its checksum is another.
    """
    expected = section_bytes(codec, elements)
    if len(raw) != expected:
        raise Damaged(f"{what} has {len(raw):,} bytes instead of {expected:,}")
    said = raw[: _FIELDS.size].tobytes()
    mark, shard, round_, rank, count, weight = _FIELDS.unpack(said)
    if mark != _MARK or count != elements or raw[_FIELDS.size : SEAL].tobytes() != _checksum(said, raw[SEAL:]):
        raise Damaged(f"the checksum of {what} is not that of its bytes")
    return Section(shard, round_, rank, count, weight)


def _checksum(said: bytes, payload: Octets) -> bytes:
    digest = hashlib.sha256(said)
    digest.update(payload.data)
    return digest.digest()


def write_head(fields: dict[str, Any], raw: Octets) -> None:
    """The JSON at the front of an object, padded with spaces; its checksum is that of all seals behind it."""
    text = json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()
    if len(text) >= HEAD:
        raise ValueError(f"a head of {len(text)} bytes")
    raw[:HEAD] = np.frombuffer(text.ljust(HEAD - 1) + b"\n", np.uint8)


def write_object(codec: str, section: Section, values: Floats, fields: dict[str, Any]) -> tuple[Octets, bytes]:
    """An object of one section, and that section's seal; `fields` stand first in its head."""
    raw: Octets = np.empty(object_bytes(codec, [len(values)]), np.uint8)
    codecs.encode(codec, values, raw[HEAD + SEAL :])
    seal = write_seal(section, raw[HEAD:])
    about = {"elements": len(values), "dtype": codec, "checksum": hashlib.sha256(seal).hexdigest()}
    write_head({**fields, **about}, raw)
    return raw, seal


def read_head(raw: Octets, what: str) -> dict[str, Any]:
    """The JSON at the front of an object.

    Raises:
        Damaged: there is none, or it is of another format.
    """
    try:
        fields = json.loads(raw[:HEAD].tobytes())
    except ValueError as error:
        raise Damaged(f"{what} does not begin with JSON") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise Damaged(f"{what} is not an object of format {FORMAT}")
    return fields


def seals_checksum(raw: Octets, codec: str, elements: Sequence[int]) -> str:
    """SHA-256 of all seals of an object, one behind the other: proves the whole without reading payloads twice."""
    digest = hashlib.sha256()
    for section in range(len(elements)):
        start, _ = place(codec, elements, section)
        digest.update(raw[start : start + SEAL].tobytes())
    return digest.hexdigest()


def is_whole(raw: Octets, codec: str, elements: Sequence[int], what: str) -> bool:
    """Whether every byte of an object is as it was written."""
    try:
        fields = read_head(raw, what)
        if len(raw) != object_bytes(codec, elements):
            return False
        for section, count in enumerate(elements):
            start, stop = place(codec, elements, section)
            read_section(raw[start:stop], codec, count, what)
    except Damaged:
        return False
    return bool(fields.get("checksum") == seals_checksum(raw, codec, elements))
