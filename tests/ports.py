"""Ports for servers that tests start themselves."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

#: Below those that the kernel gives to connections, and beside those that remuda chooses from.
FIRST, COUNT = 10_000, 10_000
_turns = count(os.getpid() * 37)


def free_port() -> int:
    """A port of this machine that nobody has: neither a connection nor another process of tests takes it meanwhile.

    It stays this process's until that ends, so a test may come back to it.
    """
    for turn in _turns:
        port = FIRST + turn % COUNT
        if not _is_ours(port):
            continue
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("count ends")


@cache
def _locks() -> int:
    """A file of which each process of this user's tests locks the byte of each of its ports."""
    path = Path(tempfile.gettempdir()) / f"remuda-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_ours(port: int) -> bool:
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True
