"""What stands for the input of a row: the same value, the same digest, whatever file it came from."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from remuda.batch.input.source import Chunk

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def content_digest(item: Any) -> bytes:
    """8 bytes that stand for the input of a row."""
    try:
        raw = orjson.dumps(item, option=_OPTIONS, default=repr)
    except TypeError:
        # What JSON of this library cannot say: integers above 64 bits, hundreds of levels.
        raw = repr(item).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=8).digest()


def content_digests(chunk: Chunk, column: str) -> list[bytes]:
    """One digest per row of a chunk. A line that could not be read has that of its bytes."""
    found = [content_digest(value) for value in chunk.values(column)]
    for number, bad in chunk.bad.items():
        found[number] = content_digest(repr(bad.raw))
    return found
