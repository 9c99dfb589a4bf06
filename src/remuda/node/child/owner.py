"""Whether the server that answers on a port is the child, or a stranger who was there before (Linux; best effort)."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Callable

from remuda.node.child.process import pids
from remuda.wire import peer
from remuda.wire.peer import Whose

if TYPE_CHECKING:
    from collections.abc import Iterable

    Pids = Callable[[], Iterable[int]]


class PortOwner:
    """Asked after every probe that went well: an answer counts only if the child may have given it.

    Args:
        pids: the child and all that it started.
        is_watched: False for a child whose server is started by others, and so is found nowhere below it.
    """

    def __init__(self, pids: Pids, *, is_watched: bool) -> None:
        self._pids = pids
        self._is_watched = is_watched
        self.was_ours = False
        """Whether the server on the port was once seen to be this very child."""

    def why_not(self, host: str, port: int) -> str:
        """Why the answer does not count; empty when it does."""
        if not self._is_watched:
            return ""
        whose = owner_of(host, port, self._pids, is_known=self.was_ours)
        if whose is Whose.FOREIGN:
            return f"another process answers on port {port}"
        if whose is Whose.NOBODY:
            return f"what answered on port {port} does not listen there any more"
        self.was_ours = True
        return ""


def owner_of(host: str, port: int, pids: Pids, *, is_known: bool = False) -> Whose:
    """Whose the server is that gets connections to `host:port`.

    Args:
        host: address.
        port: TCP port.
        pids: processes that are ours; asked only where it matters, since that reads all of /proc.
        is_known: one of them was seen to listen there before; then a process of this user is enough.
    """
    found = peer.listeners(host, port)
    whose = peer.whose(found)
    if whose is Whose.OURS and not is_known:
        return _holder({str(one.inode) for one in found or ()}, pids())
    if whose is Whose.NOBODY and not (_sees_ours(host) and _are_here(list(pids()))):
        return Whose.UNKNOWN
    return whose


def who_listens(host: str, port: int) -> str:
    """Who has a port, in words. Reads all of /proc, so it is for telling why something was refused."""
    found = peer.listeners({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port) or []  # noqa: S104 - read
    inodes = {str(one.inode) for one in found}
    for pid in pids() if inodes else ():
        if (_sockets(pid) or set()) & inodes:
            return f"process {pid}"
    return f"a process of user {found[0].uid}" if found else "another process"


def _holder(inodes: set[str], pids: Iterable[int]) -> Whose:
    """Whether one of `pids` holds a socket that listens; UNKNOWN where we may not look."""
    whose = Whose.FOREIGN
    for pid in pids:
        held = _sockets(pid)
        if held is None:
            whose = Whose.UNKNOWN
        elif held & inodes:
            return Whose.OURS
    return whose


def _sees_ours(host: str) -> bool:
    """Whether the tables name who listens, tried with a port of our own."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.bind((host, 0))
            trial.listen(1)
            return peer.listener(host, trial.getsockname()[1]) is Whose.OURS
    except OSError:
        return False


def _are_here(pids: list[int]) -> bool:
    """Whether `pids`, as far as they are seen, use this network: the ports of another one are in other tables."""
    places = {_network(pid) for pid in pids} - {""}
    return not pids or places == {_network(os.getpid())}


def _network(pid: int) -> str:
    """Network namespace of a process; empty when it is gone or we may not look."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115 - no path, and asked of many
    except OSError:
        return ""


def _sockets(pid: int) -> set[str] | None:
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
                found.add(target[8:-1])
    except FileNotFoundError:
        return set()
    except OSError:
        return None
    return found
