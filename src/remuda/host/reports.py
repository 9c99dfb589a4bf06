"""Takes the reports of node programs over TCP: many connections, each a key and then one JSON object a line.

Before its key a connection is a stranger, and strangers get little: see `wire.gate`. After it, it may report for the
one allocation whose key that is.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.base import descriptors
from remuda.wire.accepting import Strangers
from remuda.wire.gate import Limits
from remuda.wire.report import MAX_LINE_BYTES, Key, Report, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("remuda.host.reports")
LIMITS = Limits()
MOST_LINES = 4096
RESERVE = 256
"""Descriptors that are left to the rest of the host, whatever comes in here."""
_CHUNK = 65536
_BREATH_S = 0.1
"""One that fills a whole chunk says more than reports are: it is read again after so long."""


@dataclass
class ReportCounts:
    """What came in since the host started."""

    connections: int = 0
    reports: int = 0
    malformed: int = 0
    refused: int = 0
    """Connections that did not say a key in time, or were too many."""
    foreign: int = 0
    """Reports for another allocation than the key's."""


class _Line:
    """One connection; a stranger as long as `token` is empty."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.fd = connection.fileno()
        self.token = ""
        self.buffer = b""


class ReportServer:
    """A listening socket; `take` is called with every good report.

    Args:
        secret: what the keys of allocations are made of.
        take: takes a report.
        limits: what strangers get.
        most: connections that may be open once they have said a key.
    """

    def __init__(self, secret: str, take: Callable[[Report], None], *, limits: Limits = LIMITS, most: int = 0) -> None:
        self.counts = ReportCounts()
        self._secret = secret
        self._take = take
        self._most = most or most_lines()
        self._strangers = Strangers(limits, self._came, self._begin, self._refuse, _tell_of_pause)
        self._gate = self._strangers.gate
        self._known: dict[str, _Line] = {}

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen on `port` of the address `host` if it is free, else on one that is, and return it.

        Raises:
            OSError: it is not an address of this machine.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=128)
        except OSError:
            listener = socket.create_server((host, 0), family=family, backlog=128)
        self._strangers.listen(listener)
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Close the socket and all connections; node programs try again until there is a host."""
        self._strangers.close()
        for line in (*self._gate.everybody(), *self._known.values()):
            self._close(line)

    # --- before the key ----------------------------------------------------------------------------------------------

    def _came(self, connection: socket.socket) -> _Line:
        self.counts.connections += 1
        return _Line(connection)

    def _begin(self, line: _Line) -> None:
        asyncio.get_running_loop().add_reader(line.fd, self._hear, line)
        self._hear(line)

    def _refuse(self, line: _Line) -> None:
        self.counts.refused += 1
        self._close(line)

    def _greet(self, line: _Line, first: bytes) -> bool:
        """Whether the line's first words are a key; if so it reports from now on."""
        said = parse_line(first)
        if not isinstance(said, Key) or not said.matches(self._secret):
            return False
        before = self._known.pop(said.token, None)
        if before is not None:  # its node program has come back before the end of that line was seen
            self._close(before)
        if len(self._known) >= self._most:
            _LOG.warning("%d node programs report over the line already: the others do it by files only", self._most)
            return False
        self._gate.leave(line)
        line.token = said.token
        self._known[said.token] = line
        return True

    # --- on all connections ------------------------------------------------------------------------------------------

    def _hear(self, line: _Line) -> None:
        """Read once; a connection that says much does not keep the others waiting."""
        try:
            data = line.socket.recv(_CHUNK if line.token else self._gate.limits.bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not line.token:
            self._hear_stranger(line, data)
        elif data:
            self._hear_known(line, data)
        else:
            self.counts.malformed += bool(line.buffer)
            self._close(line)

    def _hear_stranger(self, line: _Line, data: bytes) -> None:
        line.buffer += data
        first, newline, rest = line.buffer.partition(b"\n")
        if newline and self._greet(line, first):
            line.buffer = b""
            self._hear_known(line, rest)
        elif newline or not data or not self._gate.hears(line, len(data)):
            self._refuse(line)

    def _hear_known(self, line: _Line, data: bytes) -> None:
        *lines, line.buffer = (line.buffer + data).split(b"\n")
        for one in lines:
            self._read(line, one)
        if len(line.buffer) > MAX_LINE_BYTES:
            # Longer than a report can be: whatever it is, it is not one of ours.
            self.counts.malformed += 1
            self._close(line)
        elif len(data) == _CHUNK:
            loop = asyncio.get_running_loop()
            loop.remove_reader(line.fd)
            loop.call_later(_BREATH_S, self._go_on, line)

    def _go_on(self, line: _Line) -> None:
        if self._known.get(line.token) is line:
            asyncio.get_running_loop().add_reader(line.fd, self._hear, line)

    def _read(self, line: _Line, text: bytes) -> None:
        said = parse_line(text)
        if not isinstance(said, Report):
            self.counts.malformed += 1
        elif said.token != line.token:
            self.counts.foreign += 1
        else:
            self.counts.reports += 1
            self._take(said)

    def _close(self, line: _Line) -> None:
        self._gate.leave(line)
        if self._known.get(line.token) is line:
            del self._known[line.token]
        if line.socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(line.fd)
            with suppress(OSError):
                line.socket.close()


def _tell_of_pause(why: str) -> None:
    _LOG.warning("no reports over new connections for a moment: %s", why)


def most_lines() -> int:
    """Connections that node programs may hold: what this process may open, but for what the rest of it needs."""
    return max(16, min(MOST_LINES, descriptors.limit() - LIMITS.number - RESERVE))
