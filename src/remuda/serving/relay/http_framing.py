"""HTTP/1.1 as far as a relay decides it: what it passes on of a message that was read, and as what. Pure.

Messages are taken apart by `reading`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD_LIMIT: Final = 64 << 10
"""Longest head of a request or an answer, in bytes."""
QUIET_LIMIT: Final = 16 << 10
"""Bytes of a chunked body in a row that are none of its content: sizes, their extensions, the trailer."""
VERSIONS: Final = {"1.0": 0, "1.1": 1}
_HOST: Final = re.compile(rb"(\[[\w:.%~-]+\]|([\w.~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:[0-9]*)?")
"""A name or an address, which may be empty, and a port (RFC 9110, 7.2)."""
_REASON: Final = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"te", b"upgrade", b"transfer-encoding"}
)
"""Headers that are said again, or not, on the other side."""
_END_TO_END: Final = frozenset({b"content-length", b"host", b"authorization"})
"""That nobody takes out of a message by naming them in `Connection`."""
_NO_TRAILER: Final = _HOP | {
    b"authorization", b"content-encoding", b"content-length", b"content-range", b"content-type", b"cookie", b"expect",
    b"host", b"trailer",
}  # fmt: skip
"""Fields that are not to come after a body: whoever reads them there could take them for the head's."""

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
class RequestHead:
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
class ResponseHead:
    """Head of an answer."""

    status: int
    line: bytes
    """Status and reason."""
    headers: tuple[Header, ...]
    framing: Framing
    keep_alive: bool


def make_request(method: bytes, target: bytes, version: str, headers: Sequence[Header]) -> RequestHead:
    """Read a request's head, which the parser has taken apart.

    Raises:
        Malformed: it is not for a relay; two readers could see different ends of it; or its version is another.
    """
    if version == "0.9":
        raise Malformed("the request line names no version of HTTP")
    if version not in VERSIONS:
        raise Malformed("only HTTP/1.0 and HTTP/1.1 are spoken here", 505)
    if method == b"CONNECT":
        raise Malformed("CONNECT is not for this address", 405)
    minor = VERSIONS[version]
    found = _by_name(headers)
    hosts = found.get(b"host", [])
    if len(hosts) > 1 or (minor and not hosts) or not all(map(_HOST.fullmatch, hosts)):
        raise Malformed("a request has one Host header, which names a host; it may have none in HTTP/1.0")
    framing = _framing(found, minor) or NO_BODY
    waits = minor > 0 and b"expect" in found and framing.ends is not Ends.AT_ONCE
    expects = waits and b"100-continue" in _words(found[b"expect"])
    return RequestHead(method, target, minor, tuple(headers), framing, _keeps_alive(found, minor), expects)


def make_answer(status: int, reason: bytes, version: str, headers: Sequence[Header], method: bytes) -> ResponseHead:
    """Read an answer's head, which the parser has taken apart; `method` is that of the request.

    Raises:
        Malformed: it is none.
    """
    if version not in VERSIONS or not 100 <= status <= 999 or not _REASON.fullmatch(reason):
        raise Malformed("the answer has no status line of HTTP/1.1")
    found = _by_name(headers)
    framing: Framing | None = NO_BODY
    if status >= 200 and status not in (204, 304) and method != b"HEAD":
        framing = _framing(found, 1)
    elif status < 200 and _framing(found, 1) is not None:
        raise Malformed("an answer before the answer has no body")
    keep = _keeps_alive(found, VERSIONS[version]) and framing is not None
    line = b"%d %s" % (status, reason)
    return ResponseHead(status, line, tuple(headers), framing or Framing(Ends.CLOSE), keep)


def _by_name(headers: Sequence[Header]) -> dict[bytes, list[bytes]]:
    """Values by their name in lower case."""
    found: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    return found


def _words(values: Sequence[bytes]) -> list[bytes]:
    """Comma-separated words of all these values, in lower case."""
    return [word.strip().lower() for value in values for word in value.split(b",") if word.strip()]


def _framing(found: Mapping[bytes, Sequence[bytes]], minor: int) -> Framing | None:
    """What the headers say of the body's end; None when they say nothing.

    Raises:
        Malformed: they say two things, or something else than a number.
    """
    if b"transfer-encoding" in found:
        if b"content-length" in found:
            raise Malformed("a message has Content-Length or Transfer-Encoding, not both")
        if _words(found[b"transfer-encoding"]) != [b"chunked"] or not minor:
            raise Malformed("the only transfer coding spoken here is chunked, of HTTP/1.1", 501)
        return Framing(Ends.CHUNKED)
    lengths = found.get(b"content-length")
    if lengths is None:
        return None
    if len(lengths) != 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise Malformed("Content-Length is one number")
    length = int(lengths[0])
    return Framing(Ends.LENGTH, length) if length else NO_BODY


def _keeps_alive(found: Mapping[bytes, Sequence[bytes]], minor: int) -> bool:
    if b"connection" not in found:
        return minor > 0
    words = _words(found[b"connection"])
    return b"close" not in words and (minor > 0 or b"keep-alive" in words)


def forwarded(headers: Sequence[Header], framing: Framing, *without: bytes) -> bytes:
    """The header lines for the other side: without those of one hop and those that `Connection` names."""
    named: list[bytes] = [*without]
    lines = []
    for name, value in headers:
        lower = name.lower()
        if lower == b"connection":
            named += [word for word in _words([value]) if word not in _END_TO_END]
        elif lower not in _HOP:
            lines.append((lower, b"%b: %b\r\n" % (name, value)))
    chunked = b"Transfer-Encoding: chunked\r\n" if framing.ends is Ends.CHUNKED else b""
    return b"".join([line for name, line in lines if name not in named]) + chunked


def request_head(request: RequestHead) -> bytes:
    """A request's head for the router. One of HTTP/1.0 stays one: its answer must not be chunked."""
    lines = forwarded(request.headers, request.framing, b"expect")
    closes = b"" if request.minor else b"Connection: close\r\n"
    return b"%s %s HTTP/1.%d\r\n%s%s\r\n" % (request.method, request.target, request.minor, lines, closes)


def answer_head(answer: ResponseHead, *, minor: int, close: bool) -> bytes:
    """An answer's head for a client that speaks HTTP/1.`minor`."""
    said = b"Connection: close\r\n" if close else b"" if minor else b"Connection: keep-alive\r\n"
    return b"HTTP/1.1 %s\r\n%s%s\r\n" % (answer.line, forwarded(answer.headers, answer.framing), said)


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def last_chunk(trailer: Sequence[Header]) -> bytes:
    """The end of a chunked body."""
    lines = [b"%s: %s\r\n" % field for field in trailer if field[0].lower() not in _NO_TRAILER]
    return b"0\r\n%b\r\n" % b"".join(lines)
