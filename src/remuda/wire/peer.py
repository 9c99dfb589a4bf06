"""Whose program listens on a port of this machine, or has the other end of a connection, as the kernel tells (Linux).

On a machine that others use, too, a port belongs to whoever was there first. Before a key goes over a connection, and
before an answer counts, it is asked whose process is there. Python 3.9, standard library only.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLES = Path("/proc/self/net")
ESTABLISHED, SYN_RECV, LISTEN = 1, 3, 10
"""States of a connection that somebody has, that is about to be made, and of a port that takes them."""
_BLOCK_BYTES = 65536
_DIAG, _BY_FAMILY, _DONE_BADLY, _REQUEST = 4, 20, 2, 1
_WAIT_S = 1.0


class Whose(Enum):
    """Who is on a port, or at the other end of a connection."""

    OURS = "ours"
    """A process of this user."""
    FOREIGN = "foreign"
    """A process of somebody else."""
    NOBODY = "nobody"
    """It is seen that there is nobody."""
    UNKNOWN = "unknown"
    """It cannot be seen: another machine or network namespace, no /proc, or root, who may act for this user."""


class Socket(NamedTuple):
    """One socket of this machine."""

    state: int
    uid: int
    inode: int
    """0 for a connection that its listener has not accepted yet."""


def of(line: socket.socket) -> Whose:
    """Whose the other end of a connection is; UNKNOWN where that is on another machine.

    What is seen is the connection itself, not only its port: whoever accepted it and let go of the port is seen, too.
    """
    try:
        here, there = _plain(line.getsockname()), _plain(line.getpeername())
        if here == there:
            return Whose.NOBODY  # nobody listened, and the kernel had given this connection that very port
        end = _end(there, here)
        if end is not None and not end.inode and _by_uid(end) is not Whose.FOREIGN:
            # Not accepted. Its listener is whoever listened before it was seen like that once more.
            listening = listener(*there)
            end = _end(there, here)
            if end is not None and not end.inode and _by_uid(end) is not Whose.FOREIGN:
                return listening
    except OSError as error:
        return Whose.NOBODY if error.errno == errno.ENOTCONN else Whose.UNKNOWN
    return Whose.UNKNOWN if end is None else _by_uid(end)


def refusal(line: socket.socket) -> str:
    """Why nothing may be said over a connection; empty when nothing speaks against it."""
    found = of(line)
    if found is Whose.FOREIGN:
        return "a process of another user answers there, and nothing was sent to it"
    return "it hung up" if found is Whose.NOBODY else ""


def listener(host: str, port: int, tables: Path = TABLES) -> Whose:
    """Whose the socket is that gets a connection to `host:port`; `host` is an address."""
    return whose(listeners(host, port, tables))


def whose(found: list[Socket] | None) -> Whose:
    """Whose sockets are that were found; None: nothing could be seen."""
    if found is None:
        return Whose.UNKNOWN
    verdicts = {_by_uid(one) for one in found}
    for worst in (Whose.FOREIGN, Whose.UNKNOWN, Whose.OURS):
        if worst in verdicts:
            return worst
    return Whose.NOBODY


def listeners(host: str, port: int, tables: Path = TABLES) -> list[Socket] | None:
    """The sockets that get a connection to `host:port`, of all users; None where that cannot be seen.

    The kernel's order: those of IPv4 before those of IPv6 that take both, and of these who is bound to the very address
    before who is bound to all.
    """
    exact, names = _as_kernel(host), (("tcp6",) if ":" in host else ("tcp", "tcp6"))
    for to_the_end in (False, True):
        for name in names:
            found = _listening(tables / name, port, to_the_end=to_the_end)
            if found is None:
                if name == names[0] or (tables / name).exists():
                    return None
                break  # a machine without IPv6
            best = [one for address, one in found if address in exact]
            best = best or [one for address, one in found if not address.strip(b"0")]
            if best:
                return best
    return []


def _by_uid(one: Socket) -> Whose:
    if one.state not in (ESTABLISHED, SYN_RECV, LISTEN):
        return Whose.NOBODY  # it is being closed
    if one.uid in (os.geteuid(), os.getuid()):
        return Whose.OURS
    return Whose.UNKNOWN if one.uid == 0 else Whose.FOREIGN


# --- tables of /proc -------------------------------------------------------------------------------------------------


def _listening(table: Path, port: int, *, to_the_end: bool) -> list[tuple[bytes, Socket]] | None:
    """Addresses and sockets that listen on `port`; None where the table cannot be read.

    Linux lists those that listen before connections by the ten thousand: unless `to_the_end`, these are not read.
    """
    wanted, found = b"%04X" % port, []
    try:
        for fields in _rows(table):
            state = int(fields[3], 16)
            if state != LISTEN and not to_the_end:
                break
            address, _, number = fields[1].partition(b":")
            if state == LISTEN and number == wanted:
                found.append((address, _socket(fields)))
    except (OSError, ValueError, IndexError):
        return None
    return found


def _rows(table: Path) -> Iterator[list[bytes]]:
    """Fields of all lines but the heading.

    Raises:
        ValueError: it has none, so it is no such table.
    """
    with open(table, "rb", buffering=0) as file:  # noqa: PTH123 - asked after every probe
        rest, is_heading = b"", True
        while block := file.read(_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            for text in lines:
                if not is_heading:
                    yield text.split()
                is_heading = False
    if is_heading:
        raise ValueError(f"{table} is empty")


def _socket(fields: list[bytes]) -> Socket:
    return Socket(int(fields[3], 16), int(fields[7]), int(fields[9]))


def _as_kernel(host: str) -> set[bytes]:
    """`host` as /proc/net writes it: 32-bit words in the machine's byte order; IPv4 also mapped into IPv6."""

    def words(packed: bytes) -> bytes:
        groups = [packed[at : at + 4] for at in range(0, len(packed), 4)]
        ordered = [group[::-1] if sys.byteorder == "little" else group for group in groups]
        return b"".join(ordered).hex().upper().encode()

    if ":" in host:
        return {words(socket.inet_pton(socket.AF_INET6, host))}
    four = socket.inet_pton(socket.AF_INET, host)
    return {words(four), words(b"\0" * 10 + b"\xff\xff" + four)}


# --- one connection --------------------------------------------------------------------------------------------------


def _plain(name: tuple[object, ...]) -> tuple[str, int]:
    """Address and port of a socket's name; an IPv4 address in IPv6 is one of IPv4.

    Raises:
        OSError: it is no address of TCP.
    """
    if len(name) < 2 or not isinstance(name[0], str) or not isinstance(name[1], int):
        raise OSError(errno.EAFNOSUPPORT, "no TCP")
    address = name[0].partition("%")[0]
    four = address[len("::ffff:") :] if address.startswith("::ffff:") else ""
    return (four if "." in four else address), name[1]


def _end(local: tuple[str, int], remote: tuple[str, int]) -> Socket | None:
    """The socket at one end of a connection; None when that is not on this machine.

    Raises:
        OSError: the kernel does not tell.
    """
    found = _ask(local, remote)
    if found is not None or _ask(remote, local) is not None:  # our own end is there, so it does tell
        return found
    return _end_in_tables(local, remote)


def _ask(local: tuple[str, int], remote: tuple[str, int]) -> Socket | None:
    """Ask the kernel for one socket (sock_diag(7)): the cost does not depend on how many there are."""
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    ends = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (local, remote))
    ports = struct.pack("!HH", local[1], remote[1])
    question = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + ports + ends
    question += struct.pack("=I8s", 0, b"\xff" * 8)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAG) as kernel:
            kernel.settimeout(_WAIT_S)
            kernel.send(struct.pack("=IHHII", 16 + len(question), _BY_FAMILY, _REQUEST, 1, 0) + question)
            answer = kernel.recv(_BLOCK_BYTES)
    except (OSError, AttributeError):  # not Linux, or a sandbox
        return None
    if len(answer) < 16 + 72 or struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return None
    uid, inode = struct.unpack_from("=II", answer, 16 + 64)
    return Socket(answer[16 + 1], uid, inode)


def _end_in_tables(local: tuple[str, int], remote: tuple[str, int]) -> Socket | None:
    """The same where the kernel answers no questions.

    Raises:
        OSError: there are no tables.
    """
    wanted = {(a + b":%04X" % local[1], b + b":%04X" % remote[1]) for a, b in _pairs(local[0], remote[0])}
    names = ("tcp6",) if ":" in local[0] else ("tcp", "tcp6")
    # What comes and goes while they are read may hide a line, hardly twice.
    tables = [TABLES / name for name in names * 2 if name == names[0] or (TABLES / name).exists()]
    try:
        rows = (fields for table in tables for fields in _rows(table))
        return next((_socket(fields) for fields in rows if (fields[1], fields[2]) in wanted), None)
    except (ValueError, IndexError) as error:
        raise OSError(errno.EIO, str(error)) from error


def _pairs(local: str, remote: str) -> list[tuple[bytes, bytes]]:
    """Both addresses as the tables write them: in IPv4, and in IPv6."""
    return list(zip(sorted(_as_kernel(local), key=len), sorted(_as_kernel(remote), key=len)))
