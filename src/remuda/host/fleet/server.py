"""The HTTPS server that nodes of a fleet talk to. Before their key they are strangers, who get little (`wire.gate`)."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aiohttp import web

from remuda.base.errors import NotFound, Rejected, RemudaError, Unavailable, to_json
from remuda.host.reports import most_lines
from remuda.wire import carrying
from remuda.wire.accepting import Strangers
from remuda.wire.fleet import MOST_BYTES, PATH
from remuda.wire.gate import Limits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

_LOG = logging.getLogger("remuda.host.fleet")
LIMITS = Limits()
MOST_OF_ONE = 4
"""Connections of one member; the oldest goes for a fifth."""
_IDLE_S = 60.0
"""A node that says nothing for so long has to connect again."""


class HttpsLine:
    """One connection: a stranger until it has said a member's key, or a token that opens."""

    def __init__(self, connection: socket.socket, protocol: asyncio.Protocol) -> None:
        self.socket = connection
        self.protocol = protocol
        self.member = ""
        self.greeting: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None


class FleetServer:
    """Listens, and gives each request of somebody known to `answer`.

    Args:
        certificate: file with key and certificate.
        known: who says an `Authorization`: the member's name, or empty for a token that opens; else it raises.
        answer: verb, name, `Authorization` and body to the answer's text.
    """

    def __init__(
        self, certificate: Path, known: Callable[[str], str], answer: Callable[[str, str, str, bytes], Awaitable[str]]
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.load_cert_chain(certificate)
        self._known, self._answer = known, answer
        self._strangers = Strangers(LIMITS, self._came, self._begin, self._close, _tell_of_pause)
        self._lines: dict[Any, HttpsLine] = {}
        self._members: dict[str, dict[HttpsLine, None]] = {}
        """Lines of each, the longest unused first."""
        self._server = _Server(self._handle, self._ended)

    def open(self, address: str, port: int) -> None:
        """Begin to listen.

        Raises:
            OSError: it cannot be listened there.
        """
        self._strangers.listen(socket.create_server((address, port), backlog=128))

    async def close(self) -> None:
        """Close the socket and all connections."""
        self._strangers.close()
        for line in list(self._lines.values()):
            self._close(line)
        await self._server.shutdown(1.0)

    # --- connections -------------------------------------------------------------------------------------------------

    def _came(self, connection: socket.socket) -> HttpsLine:
        protocol = self._server()
        line = self._lines[protocol] = HttpsLine(connection, protocol)
        return line

    def _begin(self, line: HttpsLine) -> None:
        line.greeting = asyncio.get_running_loop().create_task(self._greet(line))

    async def _greet(self, line: HttpsLine) -> None:
        """Speak TLS with it."""
        loop = asyncio.get_running_loop()
        try:
            line.transport, _ = await loop.connect_accepted_socket(
                lambda: line.protocol, line.socket, ssl=self._context, ssl_handshake_timeout=LIMITS.seconds,
                ssl_shutdown_timeout=1.0,
            )  # fmt: skip
        except (TimeoutError, OSError):
            self._close(line)

    def _close(self, line: HttpsLine) -> None:
        self._strangers.gate.leave(line)
        self._lines.pop(line.protocol, None)
        self._members.get(line.member, {}).pop(line, None)
        if line.transport is not None:
            line.transport.abort()
            return
        if line.greeting is not None:
            line.greeting.cancel()
        with suppress(OSError):
            line.socket.close()

    def _ended(self, protocol: object) -> None:
        if protocol in self._lines:
            self._close(self._lines[protocol])

    def _admitted(self, line: HttpsLine, name: str) -> None:
        """It has said who it is: a member has few connections, one of its client and those of its user's commands."""
        lines = self._members.setdefault(name, {})
        lines.pop(line, None)
        for old in [*lines][: -MOST_OF_ONE + 1]:
            self._close(old)
        if len(self._lines) >= most_lines():
            raise Unavailable("the head has as many connections of nodes as it can hold")
        lines[line], line.member = None, name
        self._strangers.gate.leave(line)

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        line = self._lines.get(request.protocol)
        if line is None:
            raise ConnectionResetError
        is_closed = True
        try:
            said = request.headers.get("Authorization", "")
            name = self._known(said)
            if name:
                self._admitted(line, name)
                is_closed = False
                request = request.clone(client_max_size=carrying.MOST_BYTES)
            verb = request.path.removeprefix(f"{PATH}/")
            if request.method != "POST" or not request.path.startswith(f"{PATH}/"):
                raise Rejected(f"there is no {request.method} {request.path[:80]} here")
            async with asyncio.timeout(LIMITS.seconds):
                body = await request.read()
            response = web.Response(text=await self._answer(verb, name, said, body), content_type="application/json")
        except RemudaError as error:
            passes = isinstance(error, Unavailable)  # asked a little later, it may be answered
            response = _refused(error, 404 if isinstance(error, NotFound) else 503 if passes else 403)
        except web.HTTPException:  # it says more than it may
            response = _refused(RemudaError(f"a request has {MOST_BYTES:,} bytes at most"), 413)
        except (ValueError, TimeoutError) as error:
            response = _refused(RemudaError(f"the request cannot be read: {error}"), 400)
        if is_closed or response.status in (400, 413):
            response.force_close()
        return response


def _refused(error: RemudaError, status: int) -> web.Response:
    return web.Response(text=json.dumps({"error": to_json(error)}), status=status, content_type="application/json")


class _Server(web.Server):
    """Tells of connections that have ended."""

    def __init__(self, handle: Any, ended: Callable[[object], None]) -> None:
        super().__init__(
            handle, request_factory=_request, keepalive_timeout=_IDLE_S, access_log=None, auto_decompress=False
        )
        self._tell = ended

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        """A connection is gone."""
        super().connection_lost(handler, exc)
        self._tell(handler)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MOST_BYTES)


def _tell_of_pause(why: str) -> None:
    _LOG.warning("no new connections of nodes for a moment: %s", why)
