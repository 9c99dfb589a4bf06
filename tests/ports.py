"""Ports for servers that tests start themselves."""

from __future__ import annotations

import os
import socket
from itertools import count

#: Below those that the kernel gives to connections, and beside those that remuda chooses from.
FIRST, COUNT = 10_000, 10_000
_turns = count(os.getpid() * 37)


def free_port() -> int:
    """A port of this machine that nobody has: neither a connection nor another process of tests takes it meanwhile."""
    for turn in _turns:
        port = FIRST + turn % COUNT
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
