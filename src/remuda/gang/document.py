"""Small JSON objects of the protocol: one line of JSON, and one with its SHA-256 in hexadecimal."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from remuda.gang.errors import Damaged
from remuda.gang.frame import FORMAT

if TYPE_CHECKING:
    from remuda.gang.codec import Octets


#: Of a run; each of them is a shard.
MOST_RANKS: Final = 65_536


def write(fields: dict[str, Any]) -> bytes:
    """The bytes of a document; the same for the same fields."""
    line = json.dumps({"format": FORMAT, **fields}, separators=(",", ":")).encode()
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def read(raw: Octets | bytes, what: str) -> dict[str, Any]:
    """The fields of a document.

    Raises:
        Damaged: it is not whole, or of another format.
    """
    line, _, rest = bytes(raw).partition(b"\n")
    if rest.strip() != hashlib.sha256(line).hexdigest().encode():
        raise Damaged(f"the checksum of {what} is not that of its bytes")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{what} is not JSON") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise Damaged(f"{what} is no document of format {FORMAT}")
    if not _is_good(what.rpartition("/")[2], fields):
        raise Damaged(f"{what} has what no worker writes there: {str(fields)[:200]}")
    return fields


def _is_good(name: str, fields: dict[str, Any]) -> bool:
    """Whether what is used of a document is of its kind, by the last part of its key."""
    ranks, arrays = fields.get("ranks"), fields.get("arrays")
    match name:
        case "RUN.json":
            size, elements = fields.get("world_size"), fields.get("elements")
            is_size = type(size) is int and 1 <= size <= MOST_RANKS
            return is_size and type(elements) is int and isinstance(fields.get("codec"), str)
        case "manifest" | "COMMIT":
            return isinstance(ranks, list) and ranks != [] and all(type(one) is int and one >= 0 for one in ranks)
        case "state":
            return isinstance(arrays, list) and all(isinstance(one, str) for one in arrays) and "nonce" in fields
    return True
