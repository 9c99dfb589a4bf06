"""Takes the reports of node programs over TCP: many connections, each a key and then one JSON object a line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.wire.report import MAX_LINE_BYTES, Key, Report, parse_line

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger("remuda.host.reports")
_KEY_TIMEOUT_S = 10.0


@dataclass
class Counts:
    """What came in since the host started."""

    connections: int = 0
    reports: int = 0
    malformed: int = 0
    refused: int = 0


class ReportServer:
    """A listening socket; `take` is called with every good report."""

    def __init__(self, key: str, take: Callable[[Report], None]) -> None:
        self.counts = Counts()
        self._key = key
        self._take = take
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self, host: str = "127.0.0.1") -> int:
        """Listen on a free port of the address `host`, and return it.

        Raises:
            OSError: it is not an address of this machine.
        """
        self._server = await asyncio.start_server(self._serve, host, 0, limit=MAX_LINE_BYTES)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Close the socket and all connections; node programs try again until there is a host."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._open):
                writer.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts.connections += 1
        self._open.add(writer)
        try:
            if await self._is_known(reader):
                await self._read(reader)
            else:
                self.counts.refused += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _is_known(self, reader: asyncio.StreamReader) -> bool:
        try:
            first = parse_line(await asyncio.wait_for(reader.readline(), _KEY_TIMEOUT_S))
        except (TimeoutError, ValueError):
            return False
        return isinstance(first, Key) and first.matches(self._key)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await reader.readline()
            except ValueError:
                # Longer than a report can be: whatever it is, it is not one of ours.
                self.counts.malformed += 1
                return
            if not line:
                return
            said = parse_line(line)
            if isinstance(said, Report):
                self.counts.reports += 1
                self._take(said)
            else:
                self.counts.malformed += 1
