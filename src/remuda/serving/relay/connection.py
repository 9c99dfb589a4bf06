"""One client of the relay: its requests, one after the other, each to the router that is in front at that moment."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any, Final, cast

from remuda.serving.relay.exchange import HOLD_S, Exchange, RelayCounters
from remuda.serving.relay.http_framing import Ends, Malformed, RequestHead
from remuda.serving.relay.reading import Event, RequestReader
from remuda.serving.relay.upstream import watch_line
from remuda.wire import peer

if TYPE_CHECKING:
    from remuda.serving.relay.descriptors import Room
    from remuda.serving.relay.replay import Budget
    from remuda.serving.relay.upstream import RouterConnections

LINGER_S: Final = 2.0
"""For the client to read its answer: closing on what is not read of it would take that away."""
OWN: Final = b"/-/relay/"
PROBE_S: Final = 1.0
"""After so long, whoever has ended its own side and waits is asked whether it still does."""
LOOKS: Final = frozenset({b"GET", b"HEAD"})
REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 505: "HTTP Version Not Supported",
}  # fmt: skip


class ClientConnection(asyncio.Protocol):
    """A connection from a client.

    Args:
        pool: where its requests go.
        counters: of the relay.
        room: of all clients.
        address: that it comes from.
        budget: for what is kept of its requests.
        hold_s: how long a request waits for a router.
    """

    def __init__(
        self,
        pool: RouterConnections,
        counters: RelayCounters,
        room: Room,
        address: str,
        budget: Budget,
        hold_s: float = HOLD_S,
    ) -> None:
        self.pool = pool
        self.counters = counters
        self.address = address
        self.budget = budget
        self.hold_s = hold_s
        self.is_known = False
        """Whether it has asked for something."""
        self._room = room
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader()
        self._exchange: Exchange | None = None
        self._lingers = False
        self._is_held = False
        self._is_full = False
        """It reads more slowly than answers come."""
        self._has_ended = False
        """It says no more, and waits for answers."""
        self._watching: asyncio.TimerHandle | None = None

    @property
    def owes(self) -> bool:
        """Whether the rest of what it began to say is waited for."""
        if self._exchange is None:
            return self._reader.in_head
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
        self._reader.close()
        exchange, self._exchange = self._exchange, None
        if self._watching is not None:
            self._watching.cancel()
        if exchange is not None:
            exchange.drop()

    def eof_received(self) -> bool:
        """It says no more; whether it may wait for an answer to what it has said, or is gone."""
        exchange = self._exchange
        if self._lingers or exchange is None or not exchange.request_done:
            return False
        exchange.keeps, self._has_ended = False, True
        if self._watching is None and self._transport is not None:
            watch_line(self._transport.get_extra_info("socket"), unsent=False)
            self._watch_half(told=False)
        return True

    def _watch_half(self, *, told: bool) -> None:
        """Find out whether somebody is left: closing one's own side only, and leaving, look the same from here."""
        self._watching = None
        transport = self._transport
        if transport is None or self._lingers:
            return
        line: socket.socket = transport.get_extra_info("socket")
        if line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.send_away()
            return
        self._watching = asyncio.get_running_loop().call_later(PROBE_S, self._probe, told)

    def _probe(self, told: bool) -> None:
        exchange = self._exchange
        if not told and exchange is not None and exchange.request.minor and not exchange.is_answered:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")  # who is gone answers this with a reset
            told = True
        self._watch_half(told=told)

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

    def data_received(self, data: bytes) -> None:
        """Bytes of a request. What comes before the last answer was read is thrown away: that answer is the last."""
        if self._exchange is None and self._is_full and not self._lingers:
            self.close()
        at = 0
        while at < len(data) and not self._lingers:
            if self._exchange is not None and self._exchange.request_done:
                self._exchange.keeps = False
                return
            step = self._reader.step
            self._reader.feed(data[at : at + step])
            at += step
            self._advance()

    def _advance(self) -> None:
        """Do what can be done with what was read."""
        events = self._reader.events
        while events and not self._lingers:
            if self._exchange is None:
                self._begin(events.popleft())
            else:
                self._feed(self._exchange, events.popleft())
            if self._exchange is not None and self._exchange.request_done:
                # Only the connection's end counts until it is answered, and that is seen by reading on.
                self._exchange.keeps &= not self._has_more()
                events.clear()
                self.pause(pause=False)
        if self._lingers or not self.owes:
            return
        self._room.tells(self, anew=self._exchange is not None)

    def _has_more(self) -> bool:
        return bool(self._reader.events) or self._reader.in_head

    def _begin(self, event: Event) -> None:
        """Begin to answer."""
        if isinstance(event, Malformed):
            self.refuse(event.status, str(event), head_only=self._reader.method == b"HEAD")
            return
        assert isinstance(event, RequestHead)
        if event.path.startswith(OWN):
            self._answer_own(event)
            return
        first, self.is_known = not self.is_known, True
        if not self._room.asks(self, looks=event.method in LOOKS, first=first):
            self.refuse(503, "as many requests are under way as the limit of open files allows; ask again", "busy",
                        head_only=event.method == b"HEAD")  # fmt: skip
            return
        if event.expects_continue and not self._reader.events:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._exchange = Exchange(self, event)
        self._exchange.start()

    def _feed(self, exchange: Exchange, event: Event) -> None:
        if isinstance(event, bytes):
            exchange.take(event)
        elif not isinstance(event, Malformed):
            exchange.end_request()
        else:
            self._exchange = None
            exchange.drop()
            if exchange.is_answered:
                self.cut()
            else:
                self.refuse(event.status, str(event), head_only=exchange.request.method == b"HEAD")

    def _answer_own(self, request: RequestHead) -> None:
        """The relay's own paths."""
        keep = request.keep_alive and request.framing.ends is Ends.AT_ONCE and not self._has_more()
        bare = request.method == b"HEAD"
        name = request.path.removeprefix(OWN)
        if name == b"health":
            self._say(200, {"status": "ok"}, keep=keep, head_only=bare)
        elif name == b"stats" and self._is_near():
            current = self.pool.routers.current
            numbers = {**vars(self.counters), "router": current.url if current else ""}
            self._say(200, numbers, keep=keep, head_only=bare)
        else:
            self._say(404, _error("the relay has no such path", 404), keep=keep, head_only=bare)
        self._room.rests(self)

    def _is_near(self) -> bool:
        """Whether the client is a program of this user on this machine."""
        line = self._transport.get_extra_info("socket") if self._transport is not None else None
        return line is not None and peer.of(line) is peer.Whose.OURS

    def refuse(self, status: int, why: str, code: str = "", *, head_only: bool = False) -> None:
        """Answer with an error and close: where the next request begins is not known."""
        self._say(status, _error(why, status, code), keep=False, head_only=head_only)

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
            self.close()

    def fail(self, exchange: Exchange, status: int, why: str) -> None:
        """The request gets no answer from a router."""
        self._exchange = None
        keep = exchange.keeps and exchange.request_done
        self._say(status, _error(why, status), keep=keep, head_only=exchange.request.method == b"HEAD")
        self._room.rests(self)

    def finished(self, *, keep: bool) -> None:
        """The answer is written; `keep`: the next request may come."""
        self._exchange = None
        if not keep:
            self.close()
        self._room.rests(self)

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
        pause = pause and self._exchange is not None and not self._exchange.request_done
        if pause is self._is_held or self._has_ended or self._transport is None or self._transport.is_closing():
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

    def close(self) -> None:
        """Close it when everything is written and the client has read it; what that still sends is thrown away."""
        transport = self._transport
        if transport is None:
            return
        self._lingers = True
        self._room.rests(self)
        if self._has_ended or not transport.can_write_eof():
            transport.close()
            return
        self.pause(pause=False)
        transport.write_eof()
        self._watching = asyncio.get_running_loop().call_later(LINGER_S, transport.close)


def _error(why: str, status: int, code: str = "") -> dict[str, Any]:
    """As OpenAI's servers say it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = code or {502: "router_lost", 503: "no_router"}.get(status, "")
    return {"error": {"message": why, "type": kind, "param": None, "code": code or None}}
