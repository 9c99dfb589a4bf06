"""The relay's own parts between a client's and a router's ends of wires that are in memory: bytes in, bytes out.

What the router got, and what the client is told, is read by a strict reader of its own, which shares nothing with ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda.serving.relay.connection import ClientConnection
from remuda.serving.relay.descriptors import Room
from remuda.serving.relay.exchange import RelayCounters
from remuda.serving.relay.replay import Budget
from remuda.serving.relay.upstream import RouterAt, RouterConnections, Routers, Upstream

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_FIRST: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) +([\x21-\x7e]+) +HTTP/1\.([01])")
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([1-9]\d\d) [^\x00-\x08\x0a-\x1f\x7f]*")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")


class Bad(Exception):
    """No HTTP/1.1, strictly."""


class More(Exception):
    """Not all of it is there."""


@dataclass
class Message:
    """A request, or an answer."""

    first: tuple[bytes, ...]
    """Method, target and version; or status."""
    headers: dict[bytes, bytes]
    body: bytes = b""


class Strict:
    """Reads messages, strictly, from bytes that are all there."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def line(self) -> bytes:
        """Up to the next CRLF; neither of them may stand alone."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise More
        line = self.data[self.at : end]
        if not line.endswith(b"\r") or b"\r" in line[:-1]:
            raise Bad(line)
        self.at = end + 1
        return line[:-1]

    def take(self, size: int) -> bytes:
        """So many bytes."""
        if len(self.data) - self.at < size:
            raise More
        self.at += size
        return self.data[self.at - size : self.at]

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Up to the empty line."""
        found = []
        while line := self.line():
            if not (match := _HEADER.fullmatch(line)):
                raise Bad(line)
            found.append((match[1].lower(), match[2].strip(b" \t")))
        return found

    def body(self, headers: list[tuple[bytes, bytes]], *, old: bool) -> bytes | None:
        """The body that the headers name; None: they name none."""
        lengths = [value for name, value in headers if name == b"content-length"]
        codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
        if codings:
            if codings != [b"chunked"] or lengths or old:
                raise Bad(codings)
            return self.chunks()
        if lengths:
            if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
                raise Bad(lengths)
            return self.take(int(lengths[0]))
        return None

    def chunks(self) -> bytes:
        """A chunked body with its trailer."""
        body = b""
        while True:
            line = self.line()
            if not (match := _CHUNK.fullmatch(line)):
                raise Bad(line)
            if not (size := int(match[1], 16)):
                break
            body += self.take(size)
            if self.line():
                raise Bad("a chunk is longer than it says")
        if {name for name, _ in self.headers()} & {b"content-length", b"transfer-encoding"}:
            raise Bad("framing in a trailer")
        return body


def read_requests(data: bytes) -> tuple[list[Message], str]:
    """All whole requests, and what stands after them: `more`, `bad` or `end`."""
    found: list[Message] = []
    reader = Strict(data)
    try:
        while True:
            while reader.data[reader.at : reader.at + 1] in (b"\r", b"\n"):
                reader.at += 1
            if not (match := _FIRST.fullmatch(reader.line())):
                return found, "bad"
            headers, old = reader.headers(), match[3] == b"0"
            if not old and sum(name == b"host" for name, _ in headers) != 1:
                return found, "bad"
            found.append(Message(match.groups(), dict(headers), reader.body(headers, old=old) or b""))
            said = b",".join(value for name, value in headers if name == b"connection").lower()
            words = {word.strip() for word in said.split(b",")}
            if b"close" in words or (old and b"keep-alive" not in words):
                return found, "end"
    except More:
        return found, "more"
    except Bad:
        return found, "bad"


def read_answers(data: bytes, methods: list[bytes]) -> list[Message]:
    """All answers to requests of these methods; the last may end with the connection."""
    found: list[Message] = []
    reader = Strict(data)
    while reader.at < len(data):
        if not (match := _STATUS.fullmatch(reader.line())):
            raise Bad(data)
        headers, status = reader.headers(), int(match[1])
        body: bytes | None = b""
        if status >= 200 and status not in (204, 304):
            method = methods[len(found)] if len(found) < len(methods) else b""
            # One that was refused unread may have been a HEAD.
            is_bare = method == b"HEAD" or (not method and reader.at == len(data))
            body = b"" if is_bare else reader.body(headers, old=False)
        if body is None:
            body = reader.take(len(data) - reader.at)
        if status >= 200:
            found.append(Message((match[1],), dict(headers), body))
    return found


class Wire:
    """One end of a connection: what was written to it stays here."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self.was_cut = False

    def write(self, data: bytes) -> None:
        """As a transport."""
        if not self.is_closed:
            self.data += data

    def writelines(self, pieces: tuple[bytes, ...]) -> None:
        """As a transport."""
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        """As a transport."""
        return self.is_closed

    def close(self) -> None:
        """As a transport."""
        self.is_closed = True

    def abort(self) -> None:
        """As a transport."""
        self.is_closed = self.was_cut = True

    def can_write_eof(self) -> bool:
        """It is closed at once."""
        return False

    def get_write_buffer_size(self) -> int:
        """All is read at once."""
        return 0

    def get_extra_info(self, _: str) -> Any:
        """It has no socket."""
        return None

    def pause_reading(self) -> None:
        """Who writes to it does not wait."""

    def resume_reading(self) -> None:
        """Nothing waits."""


class _Pool(RouterConnections):
    def __init__(self) -> None:
        super().__init__()
        self.opened_all: list[Upstream] = []

    def idle(self, router: RouterAt) -> Upstream:
        if (found := super().idle(router)) is not None:
            return found
        made = Upstream(self, router)
        made.connection_made(Wire())  # type: ignore[arg-type]
        self.opened_all.append(made)
        return made


def say_ok(number: int, request: Message) -> bytes:
    """An answer that names its request."""
    body = b"" if request.first[0] == b"HEAD" else b"%d" % number
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Number: %d\r\n\r\n%s" % (len(b"%d" % number), number, body)


class Sim:
    """One client of a relay, and a router that answers each request at once. Needs a running loop.

    Args:
        answer: to the request of a number.
    """

    def __init__(self, answer: Callable[[int, Message], bytes] = say_ok) -> None:
        self.pool, self.counters, self.budget = _Pool(), RelayCounters(), Budget()
        router = RouterAt("http://127.0.0.1:1", "1")
        self.pool.take(Routers(router, frozenset({"1"})))
        self.room = Room(self.counters, self.pool, 1024)
        self.client = ClientConnection(self.pool, self.counters, self.room, "here", self.budget)
        self.room.comes(self.client)
        self.wire = Wire()
        self.client.connection_made(self.wire)  # type: ignore[arg-type]
        self.seen: list[Message] = []
        """Requests that the router got whole."""
        self._answer = answer
        self._read: dict[Upstream, int] = {}

    def say(self, data: bytes, size: int = 0) -> None:
        """The client says this, in pieces of this size."""
        for at in range(0, len(data), size or len(data) or 1):
            if self.wire.is_closed:
                return
            self.client.data_received(data[at : at + (size or len(data))])
            self.serve()

    def serve(self) -> None:
        """The router reads what it got, and answers."""
        news = True
        while news:
            news = False
            for upstream in list(self.pool.opened_all):
                wire: Any = upstream.transport
                if wire.is_closed:
                    self.pool.opened_all.remove(upstream)
                    upstream.connection_lost(None)
                    continue
                found, state = read_requests(bytes(wire.data))
                assert state != "bad", f"the router got {bytes(wire.data)!r}"
                for request in found[self._read.get(upstream, 0) :]:
                    news = True
                    self._read[upstream] = self._read.get(upstream, 0) + 1
                    self.seen.append(request)
                    upstream.data_received(self._answer(len(self.seen) - 1, request))

    @property
    def answers(self) -> list[Message]:
        """What the client was told."""
        return read_answers(bytes(self.wire.data), [request.first[0] for request in self.seen])

    def end(self) -> None:
        """The client is gone."""
        self.client.connection_lost(None)
        assert self.budget.used == 0
        assert self.counters.in_flight == 0
