"""Small JSON objects of the protocol: one line of JSON, and one with its SHA-256 in hexadecimal."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from remuda.gang.errors import Damaged
from remuda.gang.frame import FORMAT

if TYPE_CHECKING:
    from remuda.gang.codec import Octets


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
    fields = json.loads(line)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise Damaged(f"{what} is no document of format {FORMAT}")
    return fields
