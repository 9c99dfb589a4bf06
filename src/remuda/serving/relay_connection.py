"""One client of the relay: its requests, one after the other, each to the router that is in front at that moment."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.serving.framing import HEAD_LIMIT, Ends, Malformed, Request, parse_request
from remuda.serving.near import is_own
from remuda.serving.relay_exchange import HOLD_S, Counters, Exchange

if TYPE_CHECKING:
    from remuda.serving.guard import Door
    from remuda.serving.relay_room import Room
    from remuda.serving.relay_upstream import Pool

LINGER_S: Final = 2.0
"""An answer that came before the end of its request is read by the client before the connection is closed."""
OWN: Final = b"/-/relay/"
LOOKS: Final = frozenset({b"GET", b"HEAD"})
REASONS: Final = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
}  # fmt: skip


class Client(asyncio.Protocol):
    """A connection from a client.

    Args:
        pool: where its requests go.
        counters: of the relay.
        room: of all clients.
        address: that it comes from.
        hold_s: how long a request waits for a router.
        door: who may come in; None: everybody.
    """

    def __init__(
        self,
        pool: Pool,
        counters: Counters,
        room: Room,
        address: str,
        hold_s: float = HOLD_S,
        door: Door | None = None,
    ) -> None:
        self.pool = pool
        self.counters = counters
        self.address = address
        self.hold_s = hold_s
        self.is_known = False
        """Whether it has asked for something; where there is a door, with a key."""
        self._door = door
        self._room = room
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._exchange: Exchange | None = None
        self._lingers = False
        self._is_held = False
        self._is_full = False
        """It reads more slowly than answers come."""

    @property
    def owes(self) -> bool:
        """Whether the rest of what it began to say is waited for."""
        if self._exchange is None:
            return bool(self._buffer)
        return not (self._exchange.request_done or self._exchange.is_answered or self._is_held)

    @property
    def is_busy(self) -> bool:
        """Whether it has asked for something."""
        return self._exchange is not None

    @property
    def reads(self) -> bool:
        """Whether it has not got all yet that was written to it."""
        return self._transport is not None and self._transport.get_write_buffer_size() > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come; it may have had to go for others already."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        if self._lingers:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, and nobody wants its answer."""
        del exc
        self._room.gone(self)
        self._transport = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.drop()

    def eof_received(self) -> bool:
        """It is about to be gone: clients close both directions at once."""
        return False

    def pause_writing(self) -> None:
        """The client reads more slowly than the router writes."""
        self._is_full = True
        if self._exchange is not None:
            self._exchange.hold_answer(hold=True)

    def resume_writing(self) -> None:
        """It reads again."""
        self._is_full = False
        if self._exchange is not None:
            self._exchange.hold_answer(hold=False)
        elif not self._lingers:
            self.pause(pause=False)
            self.advance()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self._lingers:
            return
        self._buffer += data
        self.advance()

    def advance(self) -> None:
        """Do what can be done with the bytes that are there."""
        while self._transport is not None and not self._lingers:
            if self._exchange is None:
                if self._is_full:  # answers to more requests would pile up here
                    self.pause(pause=True)
                    return
                if not self._begin():
                    return
            elif self._exchange.request_done:
                # What comes after the end of a request is the next one's, which waits.
                if len(self._buffer) > HEAD_LIMIT:
                    self.pause(pause=True)
                return
            elif self._buffer:
                self._feed(self._exchange)
            else:
                if self.owes:
                    self._room.tells(self, anew=True)
                return

    def _begin(self) -> bool:
        """Read a head; False when it is not whole yet, or the connection is over."""
        while self._buffer[:2] == b"\r\n":
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n", 0, HEAD_LIMIT + 4)
        if end < 0:
            if len(self._buffer) > HEAD_LIMIT:
                self.refuse(431, f"the request's head is longer than {HEAD_LIMIT} bytes")
            elif self._buffer:
                self._room.tells(self, anew=False)
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        try:
            request = parse_request(head)
        except Malformed as error:
            self.refuse(error.status, str(error))
            return False
        return self._take(request)

    def _take(self, request: Request) -> bool:
        """Begin to answer; whether the connection goes on."""
        first = not self.is_known
        if self._door is not None:
            if not self._door.lets_in(request):
                self.refuse(401, "the API key is missing or wrong: send it as `Authorization: Bearer KEY`")
                return False
            self.is_known = not first or self._door.knows(request)
            self.pool, request = self._door.leads(request)
        elif request.path.startswith(OWN):
            return self._answer_own(request)
        else:
            self.is_known = True
        if not self._room.asks(self, looks=request.method in LOOKS, first=first):
            self.refuse(503, "as many requests are under way as the limit of open files allows; ask again", "busy")
            return False
        if request.expects_continue and not self._buffer:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._exchange = Exchange(self, request)
        self._exchange.start()
        return True

    def _feed(self, exchange: Exchange) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        try:
            taken = exchange.body.feed(data)
        except Malformed as error:
            self._exchange = None
            exchange.drop()
            if exchange.is_answered:
                self.cut()
                return
            self.refuse(error.status, str(error))
            return
        self._buffer += data[taken:]
        exchange.take(data[:taken])

    def _answer_own(self, request: Request) -> bool:
        """The relay's own paths; whether the connection goes on."""
        keep = request.keep_alive and request.framing.ends is Ends.AT_ONCE
        name = request.path.removeprefix(OWN)
        if name == b"health":
            self._say(200, {"status": "ok"}, keep=keep)
        elif name == b"stats" and self._is_near():
            current = self.pool.routers.current
            numbers = {**vars(self.counters), "router": current.url if current else ""}
            self._say(200, numbers, keep=keep)
        else:
            self._say(404, _error("the relay has no such path", 404), keep=keep)
        self._room.rests(self)
        return keep

    def _is_near(self) -> bool:
        """Whether the client is a program of this user on this machine."""
        if self._transport is None:
            return False
        peer, here = self._transport.get_extra_info("peername"), self._transport.get_extra_info("sockname")
        return bool(peer and here) and is_own(peer[:2], here[:2])

    def refuse(self, status: int, why: str, code: str = "") -> None:
        """Answer with an error and close: where the next request begins is not known."""
        self._say(status, _error(why, status, code), keep=False)

    def _say(self, status: int, document: dict[str, Any], *, keep: bool, head_only: bool = False) -> None:
        data = json.dumps(document).encode()
        retry = "Retry-After: 2\r\n" if status == 503 else ""
        close = "" if keep else "Connection: close\r\n"
        head = (
            f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{retry}{close}\r\n"
        )
        self.write(head.encode() + (b"" if head_only else data))
        if not keep:
            self.close(linger=True)

    def fail(self, exchange: Exchange, status: int, why: str) -> None:
        """The request gets no answer from a router."""
        self._exchange = None
        keep = exchange.request.keep_alive and exchange.request_done
        self._say(status, _error(why, status), keep=keep, head_only=exchange.request.method == b"HEAD")
        self._go_on(keep=keep)

    def finished(self, *, keep: bool, linger: bool = False) -> None:
        """The answer is written; `keep`: the next request may come."""
        self._exchange = None
        if not keep:
            self.close(linger=linger)
        self._go_on(keep=keep)

    def _go_on(self, *, keep: bool) -> None:
        self._room.rests(self)
        if keep:
            self.pause(pause=False)
            if self._buffer:
                self.advance()

    def cut(self) -> None:
        """Break the connection off, so that the client sees that its answer is not whole."""
        self._exchange = None
        self._lingers = True
        self._room.gone(self)
        if self._transport is not None:
            self._transport.abort()

    def send_away(self) -> None:
        """Break it off for others, or because its time is over."""
        exchange = self._exchange
        self.cut()
        if exchange is not None:
            exchange.drop()

    def write(self, data: bytes) -> None:
        """Bytes of an answer."""
        if self._transport is not None:
            self._transport.write(data)

    def pause(self, *, pause: bool) -> None:
        """Read no more of the request for now, or go on."""
        if pause is self._is_held or self._transport is None or self._transport.is_closing():
            return
        self._is_held = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
        if self._exchange is None or self._exchange.request_done:
            return
        if self.owes:
            self._room.tells(self, anew=True)
        elif pause:
            self._room.waits(self)

    def close(self, *, linger: bool) -> None:
        """Close it when everything is written; with `linger` what the client still sends is read and thrown away."""
        transport = self._transport
        if transport is None:
            return
        self._lingers = True
        self._room.rests(self)
        if not linger or not transport.can_write_eof():
            transport.close()
            return
        self.pause(pause=False)
        transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, transport.close)


def _error(why: str, status: int, code: str = "") -> dict[str, Any]:
    """As OpenAI's servers say it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = code or {401: "invalid_api_key", 502: "router_lost", 503: "no_router"}.get(status, "")
    return {"error": {"message": why, "type": kind, "param": None, "code": code or None}}
