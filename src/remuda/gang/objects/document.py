"""Small JSON objects of the protocol: one line of JSON, and one with its SHA-256 in hexadecimal."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from remuda.gang.errors import Damaged
from remuda.gang.objects.frame import FORMAT

if TYPE_CHECKING:
    from remuda.gang.objects.codec import Octets


#: Of a run; each of them is a shard.
MOST_RANKS: Final = 65_536
#: What is used of a document, by the last part of its key.
_KINDS: Final[dict[str, dict[str, type]]] = {
    "RUN.json": {"world_size": int, "elements": int, "codec": str}, "manifest": {"ranks": list},
    "COMMIT": {"ranks": list}, "state": {"nonce": str, "arrays": list},
}  # fmt: skip


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
        raise Damaged(f"{what} is not a document of format {FORMAT}")
    kinds = _KINDS.get(what.rpartition("/")[2], {})
    good = all(type(fields.get(name)) is kind for name, kind in kinds.items())
    if good and "ranks" in kinds:
        good = bool(fields["ranks"]) and all(type(one) is int and one >= 0 for one in fields["ranks"])
    if not good or ("world_size" in kinds and not 1 <= fields["world_size"] <= MOST_RANKS):
        raise Damaged(f"{what} has what no worker writes there: {str(fields)[:200]}")
    return fields
