"""Whose connection it is: for connections within one machine the kernel's table says it."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))


def is_own(peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """Whether the other end of a connection, at `peer`, is a process of this machine and of this user.

    Args:
        peer: address and port of the other end.
        here: of this one.
    """
    wanted = (_shown(*peer), _shown(*here))
    for table in TABLES:
        with suppress(OSError):
            for row in map(str.split, table.read_text().splitlines()[1:]):
                if (row[1], row[2]) == wanted:
                    return int(row[7]) == os.getuid()
    return False


def _shown(host: str, port: int) -> str:
    """An address as the table has it: words of 32 bits in the machine's own order."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    raw = socket.inet_pton(family, host)
    words = struct.unpack(f"={len(raw) // 4}I", raw)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
