"""Ports of this machine that take connections from one program only, whoever else the machine has.

Everybody on a machine reaches its loopback addresses. Linux signs TCP segments where it is asked to (RFC 2385, made for
routers of the internet): what comes to such a port without the signature is thrown away by the kernel, and only who
knows the key can sign.
"""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from remuda.wire import peer

LOOPBACK: Final = "127.0.0.1"
KEY_BYTES: Final = 40
_MD5SIG, _MD5SIG_EXT, _PREFIX = 14, 32, 1
_LOOK_S: Final = 0.01
_LOOKS: Final = 20
"""For those who were quicker."""


def make_key() -> bytes:
    """A key; empty where the kernel signs nothing."""
    key = os.urandom(KEY_BYTES)
    with socket.socket() as probe:
        try:
            sign_all(probe, key)
        except OSError:
            return b""
    return key


def sign(line: socket.socket, key: bytes) -> None:
    """Sign what `line` is about to send to loopback, and take nothing else from there.

    Raises:
        OSError: the kernel does not do that.
    """
    line.setsockopt(socket.IPPROTO_TCP, _MD5SIG, _request(LOOPBACK, key, 0, 0))


def sign_all(listener: socket.socket, key: bytes) -> None:
    """Take connections from nobody who does not sign, whatever the address.

    Raises:
        OSError: the kernel does not do that.
    """
    listener.setsockopt(socket.IPPROTO_TCP, _MD5SIG_EXT, _request("0.0.0.0", key, _PREFIX, 0))  # noqa: S104


def _request(address: str, key: bytes, flags: int, prefix: int) -> bytes:
    """`struct tcp_md5sig`."""
    peer = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(address)).ljust(128, b"\0")
    return peer + struct.pack("=BBHI", flags, prefix, len(key), 0) + key.ljust(80, b"\0")


async def connect(port: int, key: bytes) -> socket.socket:
    """A signed connection to a port of this machine.

    Raises:
        OSError: nobody listens, or not for this key; without a key: or a process of another user.
    """
    import asyncio

    line = socket.socket()
    try:
        line.setblocking(False)
        if key:
            sign(line, key)
        await asyncio.get_running_loop().sock_connect(line, (LOOPBACK, port))
        if not key:
            _refuse_strangers(line)
    except BaseException:
        line.close()
        raise
    return line


def _refuse_strangers(line: socket.socket) -> None:
    if why_not := peer.refusal(line):
        raise OSError(f"port {line.getpeername()[1]}: {why_not}")


def close_to_others(ports: frozenset[int], key: bytes) -> None:
    """Wait until this process listens on all of `ports`, and let only who signs connect from then on.

    Who was quicker than that is hung up on.
    """
    left = set(ports) if key else set()
    while left:
        for line in _sockets():
            with line, suppress(OSError):
                if line.getsockname()[1] in left and line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    sign_all(line, key)
                    left.discard(line.getsockname()[1])
        time.sleep(_LOOK_S)
    for _ in range(_LOOKS if key else 0):  # counted: a process that stood still has not looked
        for line in _sockets():
            with line, suppress(OSError):
                if line.getsockname()[1] in ports and not line.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    line.shutdown(socket.SHUT_RDWR)
        time.sleep(_LOOK_S)


def _sockets() -> list[socket.socket]:
    """Copies of this process's IPv4 sockets."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not stat.S_ISSOCK(entry.stat().st_mode):
                continue
            line = socket.socket(fileno=os.dup(int(entry.name)))
            if line.family == socket.AF_INET and line.type == socket.SOCK_STREAM:
                found.append(line)
            else:
                line.close()
    return found
