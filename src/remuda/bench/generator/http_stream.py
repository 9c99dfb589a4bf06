"""One connection, and when each piece of an answer came: stamped at the read, before anything is parsed."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic_ns
from typing import Final, cast
from urllib.parse import urlsplit

import httptools

from remuda.wire import peer

_CONNECT_S: Final = 10.0
#: Bytes of an answer, framing included, and more for each token asked for: with log probabilities one has 3 KB.
SMALL: Final = 1 << 20
_A_TOKEN: Final = 16 << 10
#: Pieces of an answer, and more for each token. Servers send one a token, and a proxy may split it.
_PIECES, _PIECES_A_TOKEN = 1024, 8
#: Reads of an answer in chunks that are parsed together: one by one, each would begin with cold caches.
_TOGETHER: Final = 16
#: What the end of an answer in chunks ends with, and a piece of a stream of events seldom does.
_BLANK: Final = b"\r\n\r\n"
#: Informational answers (HTTP 1xx) before the real one.
_MOST_HINTS: Final = 8


def words_of(error: OSError) -> str:
    """What went wrong, in plain words: asyncio adds addresses, and OpenSSL and resolvers have numbers of their own."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message.rstrip('.') or 'it cannot be checked'}"
    if isinstance(error, ssl.SSLError):
        return f"there is no TLS with it: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, socket.gaierror):
        return f"its name is not known: {error.strerror}"
    return os.strerror(error.errno) if error.errno else str(error)


@lru_cache
def tls(*, verify: bool, ca_file: str) -> ssl.SSLContext:
    """How a certificate is checked. Made once: reading the system's certificates takes longer than a handshake.

    Raises:
        OSError: the file cannot be read, or holds no certificate.
    """
    made = ssl.create_default_context(cafile=ca_file or None)
    if not verify:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


@dataclass(slots=True)
class TimedAnswer:
    """One exchange, all times in ns of CLOCK_MONOTONIC; 0 where that did not come."""

    sent: int = 0
    ended: int = 0
    status: int = 0
    error: str = ""
    """Why there is no whole answer; empty when there is."""
    is_unheard: bool = False
    """The connection was closed before a byte of it came."""
    stamps: list[int] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    """The body, as it was read; `stamps[i]` is when `pieces[i]` came."""


@dataclass(frozen=True)
class RequestTarget:
    """Where requests go, and what stands in each of them.

    Attributes:
        base: URL without `/v1`.
        key: of the endpoint; goes into a header and nowhere else.
        headers: more of them.
        is_own: a swarm of this user: nothing is said to another user's program on its port.
        verify: whether a certificate is checked.
        ca_file: by which (PEM); empty: by the system's.
    """

    base: str
    key: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = ()
    is_own: bool = False
    verify: bool = True
    ca_file: str = ""

    def head(self, method: str, path: str) -> bytes:
        """The head of a request, but for its length."""
        parts = urlsplit(self.base)
        lines = [
            f"{method} {parts.path}{path} HTTP/1.1", f"Host: {parts.netloc}", "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in self.headers),
            *([f"Authorization: Bearer {self.key}"] if self.key else []),
        ]  # fmt: skip
        return ("\r\n".join(lines) + "\r\n").encode()

    def request(self, path: str, body: bytes | None = None) -> bytes:
        """A whole request: POST of JSON with a body, else GET."""
        if body is None:
            return self.head("GET", path) + b"\r\n"
        return b"%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
            self.head("POST", path), len(body), body,
        )  # fmt: skip


class HttpStream(asyncio.Protocol):
    """A keep-alive connection; one request at a time."""

    def __init__(self) -> None:
        self.is_open = False
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: TimedAnswer | None = None
        self._done: asyncio.Future[TimedAnswer] | None = None
        self._now = 0
        self._size = self._largest = self._pieces = 0
        self._hints = 0
        self._coding = b""
        self._is_chunked = self._is_bounded = self._is_heard = False
        self._unparsed: list[tuple[int, bytes]] = []
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def connect(cls, place: RequestTarget) -> HttpStream:
        """A new connection.

        Raises:
            OSError: there is none; the text says why.
        """
        loop = asyncio.get_running_loop()
        parts = urlsplit(place.base)
        secure = tls(verify=place.verify, ca_file=place.ca_file) if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(_CONNECT_S):
                transport, line = await loop.create_connection(cls, parts.hostname or "", port, ssl=secure)
        except TimeoutError:
            raise OSError(f"no connection within {_CONNECT_S:.0f} s") from None
        if place.is_own and (words := peer.refusal(transport.get_extra_info("socket"))):
            line.close()
            raise OSError(words)
        return line

    def start(
        self, request: bytes, timeout_s: float, tokens: int = 0, largest: int = SMALL
    ) -> asyncio.Future[TimedAnswer]:
        """Send a whole request; the future holds the answer when it is whole, or why it is not. It never raises.

        Nothing is kept of an answer beyond `largest` bytes and what `tokens` that were asked for take.
        """
        loop = asyncio.get_running_loop()
        answer = self._answer = TimedAnswer()
        done = self._done = loop.create_future()
        self._size = self._hints = 0
        self._largest, self._pieces = largest + tokens * _A_TOKEN, _PIECES + tokens * _PIECES_A_TOKEN
        self._coding, self._is_chunked, self._is_bounded, self._is_heard = b"", False, False, False
        self._timer = loop.call_later(timeout_s, self._expire, f"no whole answer within {timeout_s:g} s")
        answer.sent = monotonic_ns()
        if self._transport is None or not self.is_open:
            self._fail("the connection was closed")
        else:
            self._transport.write(request)
        return done

    def close(self) -> None:
        """End it."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own class does not inherit from it.
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        """A read: stamped now. Where it cannot be the end of an answer it is parsed later, together with others."""
        self._unparsed.append((monotonic_ns(), data))
        self._is_heard = True
        self._size += len(data)
        if self._size > self._largest:
            self._refuse(f"the answer is longer than {self._largest >> 10:,} KB")
        elif not self._is_chunked or len(data) < 4 or data.endswith(_BLANK) or len(self._unparsed) >= _TOGETHER:
            self._parse()

    def _parse(self) -> None:
        reads, self._unparsed = self._unparsed, []
        for self._now, data in reads:
            if self._answer is None:  # Nobody asked for this.
                self.close()
                return
            try:
                self._parser.feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                self._fail(f"the answer is not HTTP: {str(error)[:200]}")
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side has ended it, or we have."""
        self.is_open = False
        self._parse()
        if self._answer is None:
            return
        if self._answer.status >= 200 and not self._is_bounded and exc is None:
            self.on_message_complete()  # A body without a length ends with its connection.
            return
        self._answer.is_unheard = not self._is_heard
        words = "the answer broke off" if self._is_heard else "the server closed it without an answer"
        self._fail(f"{words}: {exc}" if exc and str(exc) else words)

    # What the parser calls.

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        if self._answer is None:  # Nobody asked for this one.
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        if name == b"content-encoding":
            self._coding = value.lower()
        elif name == b"transfer-encoding":
            self._is_bounded = self._is_chunked = value.lower().endswith(b"chunked")
        elif name == b"content-length":
            self._is_bounded = True

    def on_headers_complete(self) -> None:
        """The head is there."""
        assert self._answer is not None
        self._answer.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        answer = self._answer
        if answer is None:
            return
        answer.stamps.append(self._now)
        answer.pieces.append(data)
        if len(answer.pieces) > self._pieces:
            self._refuse(f"the answer comes in more than {self._pieces:,} pieces")

    def on_message_complete(self) -> None:
        """The answer is whole."""
        answer, done = self._answer, self._done
        if answer is None or done is None:
            return
        if 100 <= answer.status < 200:
            self._hints += 1
            if self._hints > _MOST_HINTS or answer.status == 101:
                self._fail(f"HTTP {answer.status}, {self._hints} times, instead of an answer")
            answer.status = 0
            return
        answer.ended = self._now
        if self._coding not in (b"", b"identity"):
            answer.error = (
                f"the answer is compressed ({self._coding.decode('latin-1')[:20]}) although that was not asked for"
            )
        self._end(answer, done, keep=self._parser.should_keep_alive())

    def _expire(self, words: str) -> None:
        self._parse()
        self._fail(words)

    def _refuse(self, words: str) -> None:
        self._unparsed = []
        if self._answer is not None:
            self._answer.pieces, self._answer.stamps = [], []
        self._fail(words)

    def _fail(self, words: str) -> None:
        answer, done = self._answer, self._done
        if answer is None or done is None:
            return
        answer.error, answer.ended = words, monotonic_ns()
        self._end(answer, done, keep=False)

    def _end(self, answer: TimedAnswer, done: asyncio.Future[TimedAnswer], *, keep: bool) -> None:
        self._answer = None
        if self._timer is not None:
            self._timer.cancel()
        if not keep:
            self.close()
        if not done.done():
            done.set_result(answer)
