"""Whether the server that answers on a port is the child, or a stranger who was there before (Linux; best effort)."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LISTEN = b"0A"


def is_foreign(host: str, port: int, pids: Iterable[int]) -> bool:
    """True only when the socket that listens at `host:port` surely belongs to none of `pids`.

    What cannot be seen (no /proc, another network namespace, a process of another user) counts as ours.
    """
    inodes = _listeners(host, port)
    if not inodes:
        return False
    for pid in pids:
        held = _sockets(pid)
        if held is None or held & inodes:
            return False
    return True


def _listeners(host: str, port: int) -> set[bytes]:
    """Inodes of the sockets that get a connection to `host:port`: those bound to the very address, else wildcards."""
    exact: set[bytes] = set()
    wild: set[bytes] = set()
    wanted = _as_kernel(host)
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{name}").read_bytes().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].partition(b":")
            if fields[3] != _LISTEN or int(number, 16) != port:
                continue
            if fields[7] == b"0" and os.getuid() != 0:
                return set()  # the system's own, such as the proxy of a container engine: it may act for the child
            if address in wanted:
                exact.add(fields[9])
            elif not address.strip(b"0"):
                wild.add(fields[9])
    return exact or wild


def _as_kernel(host: str) -> set[bytes]:
    """`host` as /proc/net writes it: 32-bit words in the machine's byte order; IPv4 also mapped into IPv6."""
    import sys

    def words(packed: bytes) -> bytes:
        groups = [packed[at : at + 4] for at in range(0, len(packed), 4)]
        ordered = [group[::-1] if sys.byteorder == "little" else group for group in groups]
        return b"".join(ordered).hex().upper().encode()

    if ":" in host:
        return {words(socket.inet_pton(socket.AF_INET6, host))}
    four = socket.inet_pton(socket.AF_INET, host)
    return {words(four), words(b"\0" * 10 + b"\xff\xff" + four)}


def _sockets(pid: int) -> set[bytes] | None:
    """Inodes of the sockets that a process holds; None when we may not look, empty when it is gone."""
    found = set()
    directory = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(directory):  # noqa: PTH208 - names, not paths
            try:
                target = os.readlink(f"{directory}/{name}")  # noqa: PTH115 - may be thousands
            except FileNotFoundError:
                continue
            if target.startswith("socket:["):
                found.add(target[8:-1].encode())
    except FileNotFoundError:
        return set()
    except OSError:
        return None
    return found
