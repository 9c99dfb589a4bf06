"""HTTP/1.1 as far as a relay needs it: where a message ends, and which of its headers are for one hop only. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD_LIMIT: Final = 64 << 10
"""Longest head of a request or an answer, in bytes."""
LINE_LIMIT: Final = 4 << 10
"""Longest line of a chunked body: sizes with their extensions."""
TRAILER_LIMIT: Final = 16 << 10
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_TARGET: Final = re.compile(rb"[\x21-\x7e\x80-\xff]+")
_VERSION: Final = re.compile(rb"HTTP/(\d)\.(\d)")
_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"upgrade", b"transfer-encoding"}
)
"""Headers that are said again, or not, on the other side."""

Header = tuple[bytes, bytes]
"""Name as it was written, value without the spaces around it."""


class Malformed(Exception):
    """A message that is no HTTP/1.1, or too long; `status` is what a client is told."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


class Ends(Enum):
    """How the end of a body is known."""

    AT_ONCE = "no body"
    LENGTH = "content-length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Framing:
    """Where a body ends."""

    ends: Ends
    length: int = 0
    """In bytes, of `Ends.LENGTH`."""


NO_BODY: Final = Framing(Ends.AT_ONCE)


@dataclass(frozen=True, slots=True)
class Request:
    """Head of a request."""

    method: bytes
    target: bytes
    minor: int
    """0 of HTTP/1.0, 1 of HTTP/1.1."""
    headers: tuple[Header, ...]
    framing: Framing
    keep_alive: bool
    """The client wants to send more on this connection."""
    expects_continue: bool

    @property
    def path(self) -> bytes:
        """The target without its query."""
        return self.target.partition(b"?")[0]


@dataclass(frozen=True, slots=True)
class Answer:
    """Head of an answer."""

    status: int
    line: bytes
    """Status and reason, as they came."""
    headers: tuple[Header, ...]
    framing: Framing
    keep_alive: bool


def parse_request(head: bytes) -> Request:
    """Read a request's head.

    Args:
        head: all lines up to the empty one, without that.

    Raises:
        Malformed: it is none; two readers could see different ends of it; or its version is another.
    """
    first, *rest = head.split(b"\r\n")
    parts = first.split(b" ")
    if len(parts) != 3 or not _TOKEN.fullmatch(parts[0]) or not _TARGET.fullmatch(parts[1]):
        raise Malformed("the request line is not METHOD TARGET HTTP/1.1")
    version = _VERSION.fullmatch(parts[2])
    if version is None:
        raise Malformed("the request line names no version of HTTP")
    if version.group(1) != b"1":
        raise Malformed("only HTTP/1.0 and HTTP/1.1 are spoken here", 505)
    if parts[0] == b"CONNECT":
        raise Malformed("CONNECT is not for this address", 405)
    minor = min(1, int(version.group(2)))
    headers = _headers(rest)
    if minor and len(_values(headers, b"host")) != 1:
        raise Malformed("an HTTP/1.1 request has one Host header")
    framing = _framing(headers, minor) or NO_BODY
    expects = minor > 0 and b"100-continue" in _words(headers, b"expect") and framing.ends is not Ends.AT_ONCE
    return Request(parts[0], parts[1], minor, headers, framing, _keeps_alive(headers, minor), expects)


def parse_answer(head: bytes, method: bytes) -> Answer:
    """Read an answer's head; `method` is that of the request.

    Raises:
        Malformed: it is none.
    """
    first, *rest = head.split(b"\r\n")
    name, _, line = first.partition(b" ")
    version = _VERSION.fullmatch(name)
    if version is None or version.group(1) != b"1" or not line[:3].isdigit() or line[3:4] not in (b"", b" "):
        raise Malformed("the answer has no status line")
    status, minor = int(line[:3]), min(1, int(version.group(2)))
    headers = _headers(rest)
    framing: Framing | None = NO_BODY
    if status >= 200 and status not in (204, 304) and method != b"HEAD":
        framing = _framing(headers, 1)
    keep = _keeps_alive(headers, minor) and framing is not None
    return Answer(status, line, headers, framing or Framing(Ends.CLOSE), keep)


def _headers(lines: Sequence[bytes]) -> tuple[Header, ...]:
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        value = value.strip(b" \t")
        # This refuses also a space before the colon and a line that goes on with the one before.
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Malformed("a header is not NAME: VALUE")
        headers.append((name, value))
    return tuple(headers)


def _values(headers: Sequence[Header], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


def _words(headers: Sequence[Header], name: bytes) -> list[bytes]:
    """Comma-separated words of all headers of that name, in lower case."""
    return [word.strip().lower() for value in _values(headers, name) for word in value.split(b",") if word.strip()]


def _framing(headers: Sequence[Header], minor: int) -> Framing | None:
    """What the headers say of the body's end; None when they say nothing.

    Raises:
        Malformed: they say two things, or something else than a number.
    """
    codings, lengths = _words(headers, b"transfer-encoding"), _words(headers, b"content-length")
    if codings:
        if lengths:
            raise Malformed("a message has Content-Length or Transfer-Encoding, not both")
        if codings != [b"chunked"] or not minor:
            raise Malformed("the only transfer coding spoken here is chunked, of HTTP/1.1", 501)
        return Framing(Ends.CHUNKED)
    if not lengths:
        if _values(headers, b"content-length"):
            raise Malformed("Content-Length is empty")
        return None
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise Malformed("Content-Length is one number")
    length = int(lengths[0])
    return Framing(Ends.LENGTH, length) if length else NO_BODY


def _keeps_alive(headers: Sequence[Header], minor: int) -> bool:
    words = _words(headers, b"connection")
    return b"close" not in words and (minor > 0 or b"keep-alive" in words)


def forwarded(headers: Sequence[Header], framing: Framing) -> bytes:
    """The header lines for the other side: without those of one hop and those that `Connection` names."""
    named = {*_words(headers, b"connection"), *_HOP} - {b"content-length", b"host", b"authorization"}
    lines = [b"%s: %s\r\n" % header for header in headers if header[0].lower() not in named]
    if framing.ends is Ends.CHUNKED:
        lines.append(b"Transfer-Encoding: chunked\r\n")
    return b"".join(lines)


def request_head(request: Request) -> bytes:
    """A request's head for the router. One of HTTP/1.0 stays one: its answer must not be chunked."""
    headers = tuple(header for header in request.headers if header[0].lower() != b"expect")
    lines = forwarded(headers, request.framing)
    closes = b"" if request.minor else b"Connection: close\r\n"
    return b"%s %s HTTP/1.%d\r\n%s%s\r\n" % (request.method, request.target, request.minor, lines, closes)


def answer_head(answer: Answer, *, minor: int, close: bool) -> bytes:
    """An answer's head for a client that speaks HTTP/1.`minor`."""
    said = b"Connection: close\r\n" if close else b"" if minor else b"Connection: keep-alive\r\n"
    return b"HTTP/1.1 %s\r\n%s%s\r\n" % (answer.line, forwarded(answer.headers, answer.framing), said)


class Body:
    """Follows a body to its end. The bytes are passed on as they are; only their end is looked for."""

    __slots__ = ("_chunked", "_close", "_left", "_line", "_trailer", "done")

    def __init__(self, framing: Framing) -> None:
        self.done = framing.ends is Ends.AT_ONCE
        self._chunked = framing.ends is Ends.CHUNKED
        self._close = framing.ends is Ends.CLOSE
        self._left = framing.length
        """Bytes that are still to come: of the body, or of the chunk with the CRLF after it."""
        self._line = bytearray()
        self._trailer = -1
        """Bytes of the trailer so far; -1 before it."""

    def feed(self, data: bytes) -> int:
        """Take what came; how many of these bytes are of this body.

        Raises:
            Malformed: a chunk has no size, or a line is too long.
        """
        if self._chunked:
            return self._feed_chunks(data)
        if self._close:
            return len(data)
        taken = min(self._left, len(data))
        self._left -= taken
        self.done = self._left == 0
        return taken

    def _feed_chunks(self, data: bytes) -> int:
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                taken = min(self._left, len(data) - at)
                if self._left - taken < 2:
                    self._check_end(data[at : at + taken])
                self._left -= taken
                at += taken
                continue
            end = data.find(b"\n", at)
            upto = len(data) if end < 0 else end + 1
            self._line += data[at:upto]
            at = upto
            if len(self._line) > LINE_LIMIT:
                raise Malformed("a line of a chunked body is too long")
            if end >= 0:
                line, self._line = bytes(self._line), bytearray()
                self._take_line(line)
        return at

    def _check_end(self, taken: bytes) -> None:
        """A chunk ends with CRLF, else the two sides have lost each other. `taken` reaches into these two bytes."""
        expected = b"\r\n"[2 - min(2, self._left) : 2 - min(2, self._left - len(taken))]
        if not taken.endswith(expected):
            raise Malformed("a chunk is longer than it says")

    def _take_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise Malformed("a line of a chunked body ends with LF alone")
        if self._trailer >= 0:
            self._trailer += len(line)
            if self._trailer > TRAILER_LIMIT:
                raise Malformed("the trailer of a chunked body is too long")
            self.done = line == b"\r\n"
            return
        size = line[:-2].partition(b";")[0].rstrip(b" \t")
        if not size or len(size) > 15 or not all(digit in b"0123456789abcdefABCDEF" for digit in size):
            raise Malformed("a chunk has no size")
        number = int(size, 16)
        if number:
            self._left = number + 2
        else:
            self._trailer = 0
