"""The endpoint's port: chosen once, when the workload is accepted, so that the address stays."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from typing import TYPE_CHECKING

from remuda.base.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.plan.model import Listen

_TRIES = 500


def choose_port(listen: Listen, used: Mapping[int, str], host: str, locks: Path) -> int:
    """The first free port from the preferred one on, or exactly that when it is fixed.

    Args:
        listen: what the front task asks for; port 0 means from 9000 on.
        used: endpoints of other workloads, which own their port even while their router is being restarted.
        host: address that it will be bound to.
        locks: directory of the machine's port locks, which node programs hold while they use one.

    Raises:
        Conflict: a fixed port is taken; or none of the next 500 is free.
    """
    first = listen.port or 9000
    if listen.fixed:
        holder = used.get(first)
        if holder is not None:
            raise Conflict(f"port {first} belongs to {holder!r}", hint="choose another endpoint.port, or leave it out")
        if not _is_free(first, host, locks):
            raise Conflict(
                f"port {first} on {host} is in use by another program",
                hint="choose another endpoint.port, or leave it out",
            )
        return first
    for port in range(first, min(first + _TRIES, 65536)):
        if port not in used and _is_free(port, host, locks):
            return port
    raise Conflict(f"none of the ports {first} to {first + _TRIES - 1} is free on {host}")


def _is_free(port: int, host: str, locks: Path) -> bool:
    return not _is_locked(locks / f"{port}.lock") and _can_bind(port, host)


def _is_locked(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _can_bind(port: int, host: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
