"""Bytes of requests and answers, and what becomes of them at the relay: one line for each case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Case:
    """What a client says on one connection."""

    name: str
    data: bytes
    told: tuple[int, ...]
    """Statuses that it is told, in order; ()s: it is waited for."""
    seen: tuple[bytes, ...]
    """Targets and bodies of what the router gets."""
    later: bytes = b""
    """What it says when the first was answered."""

    @property
    def closes(self) -> bool:
        """Whether the relay refuses, and closes the connection."""
        return len(self.told) > len(self.seen)


H: Final = b"Host: h\r\n"
END: Final = b"\r\n"
NEXT: Final = b"GET /n HTTP/1.1\r\n" + H + END
EVIL: Final = b"GET /evil HTTP/1.1\r\n" + H + END
TE: Final = b"Transfer-Encoding: chunked\r\n"


def post(*lines: bytes, body: bytes = b"", version: bytes = b"1.1", after: bytes = NEXT) -> bytes:
    """A POST to `/p`, and what stands behind it."""
    return b"POST /p HTTP/" + version + END + H + b"".join(line + END for line in lines) + END + body + after


def chunks(body: bytes, *lines: bytes, after: bytes = NEXT) -> bytes:
    """One with a chunked body."""
    return post(b"Transfer-Encoding: chunked", *lines, body=body, after=after)


def get(*lines: bytes, first: bytes = b"GET /p HTTP/1.1", after: bytes = NEXT) -> bytes:
    """One without a body."""
    return first + END + H + b"".join(line + END for line in lines) + END + after


def _bad(name: str, data: bytes, status: int = 400) -> Case:
    """The connection is over with it: nothing of it reaches the router whole."""
    return Case(name, data, (status,), ())


def _good(name: str, data: bytes, *seen: bytes) -> Case:
    """Whoever keeps the connection says the next request when the first was answered."""
    later = NEXT if len(seen) > 1 else b""
    return Case(name, data.removesuffix(later), (200,) * len(seen), seen, later)


_FRAMING: Final = (
    _bad("CL and TE", post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n", after=EVIL)),
    _bad("TE and CL", post(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"0\r\n\r\n", after=EVIL)),
    _bad("two CLs", post(b"Content-Length: 1", b"Content-Length: 2", body=b"ab")),
    _bad("two equal CLs", post(b"Content-Length: 1", b"Content-Length: 1", body=b"a")),
    _bad("CL list", post(b"Content-Length: 1, 1", body=b"a")),
    _bad("CL plus", post(b"Content-Length: +1", body=b"a")),
    _bad("CL minus", post(b"Content-Length: -1", body=b"a")),
    _bad("CL hex", post(b"Content-Length: 0x1", body=b"a")),
    _bad("CL underscore", post(b"Content-Length: 1_0", body=b"a" * 10)),
    _bad("CL words", post(b"Content-Length: 1 1", body=b"a")),
    _bad("CL empty", post(b"Content-Length:")),
    _bad("CL of 19 digits", post(b"Content-Length: " + b"9" * 19, body=b"a")),
    _bad("CL of 30 digits", post(b"Content-Length: " + b"9" * 30, body=b"a")),
    _good("CL zeros", post(b"Content-Length: 0003", body=b"abc"), b"/p abc", b"/n"),
    _good("CL 0", post(b"Content-Length: 0"), b"/p", b"/n"),
    _good("CL spaces", post(b"Content-Length: \t 3 \t", body=b"abc"), b"/p abc", b"/n"),
    _good("CL of a GET", get(b"Content-Length: 3", after=b"abc" + NEXT), b"/p abc", b"/n"),
    _bad("TE gzip", post(b"Transfer-Encoding: gzip", body=b"a"), 501),
    _bad("TE gzip, chunked", post(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), 501),
    _bad("TE chunked, gzip", post(b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n")),
    _bad("TE twice", chunks(b"0\r\n\r\n", b"Transfer-Encoding: chunked")),
    _bad("TE identity", post(b"Transfer-Encoding: identity"), 501),
    _bad("TE xchunked", post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), 501),
    _bad("TE quoted", post(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"), 501),
    _bad("TE with VT", post(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n")),
    _bad("TE with a space before the colon", post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n")),
    _bad("TE of HTTP/1.0", post(b"Transfer-Encoding: chunked", version=b"1.0", body=b"0\r\n\r\n"), 501),
    _good("TE in capitals", post(b"TRANSFER-ENCODING: CHUNKED", body=b"1\r\na\r\n0\r\n\r\n"), b"/p a", b"/n"),
)
_CHUNKS: Final = (
    _good("chunks", chunks(b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n"), b"/p abc", b"/n"),
    _good("chunk size with zeros", chunks(b"0003\r\nabc\r\n000\r\n\r\n"), b"/p abc", b"/n"),
    _good("chunk size hex", chunks(b"0A\r\n0123456789\r\n0\r\n\r\n"), b"/p 0123456789", b"/n"),
    _good("chunk extension", chunks(b"1;a=b\r\na\r\n0;c\r\n\r\n"), b"/p a", b"/n"),
    _good("chunk extension quoted", chunks(b'1;a="b;c"\r\na\r\n0\r\n\r\n'), b"/p a", b"/n"),
    _bad("chunk extension with CR", chunks(b"1;a\rb\r\na\r\n0\r\n\r\n")),
    _bad("chunk extension with LF", chunks(b"1;a\nb\r\na\r\n0\r\n\r\n")),
    _bad("chunk extension with NUL", chunks(b"1;a=\0\r\na\r\n0\r\n\r\n")),
    _bad("chunk extension without end", chunks(b"1;" + b"x" * 70_000)),
    _bad("chunk size with a space", chunks(b"1 \r\na\r\n0\r\n\r\n")),
    _bad("chunk size none", chunks(b"\r\na\r\n0\r\n\r\n")),
    _bad("chunk size minus", chunks(b"-1\r\na\r\n0\r\n\r\n")),
    _bad("chunk size 0x", chunks(b"0x1\r\na\r\n0\r\n\r\n")),
    _bad("chunk size no hex", chunks(b"g\r\na\r\n0\r\n\r\n")),
    _bad("chunk size of 17 digits", chunks(b"1" * 17 + b"\r\na\r\n0\r\n\r\n")),
    Case("chunk size huge", chunks(b"f" * 15 + b"\r\na\r\n0\r\n\r\n"), (), ()),
    _bad("chunk size with LF alone", chunks(b"1\na\r\n0\r\n\r\n")),
    _bad("chunk too long", chunks(b"1\r\nab\r\n0\r\n\r\n")),
    _bad("chunk too short", chunks(b"3\r\nab\r\n0\r\n\r\n")),
    _bad("chunk end with LF alone", chunks(b"1\r\na\n0\r\n\r\n")),
    _good("trailer", chunks(b"1\r\na\r\n0\r\nSum: 1\r\n\r\n"), b"/p a", b"/n"),
    _bad("trailer with CL", chunks(b"1\r\na\r\n0\r\nContent-Length: 30\r\n\r\n", after=EVIL)),
    _bad("trailer with TE", chunks(b"1\r\na\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", after=EVIL)),
    _bad("trailer with LF alone", chunks(b"0\r\nA: b\n\r\n")),
    _bad("trailer folded", chunks(b"0\r\nA: b\r\n c\r\n\r\n")),
    _bad("trailer without a colon", chunks(b"0\r\nA\r\n\r\n")),
    _bad("trailer too long", chunks(b"0\r\n" + b"A: b\r\n" * 4000 + b"\r\n")),
)
_HEADS: Final = (
    _bad("LF alone", b"GET /p HTTP/1.1\nHost: h\n\n"),
    _bad("LF alone after a header", b"GET /p HTTP/1.1\r\nHost: h\n\r\n"),
    _bad("CR alone", get(b"A: b\rX: y")),
    _bad("CR alone before the end", b"GET /p HTTP/1.1\r\nHost: h\r\r\n\r\n"),
    _bad("header folded", get(b"A: b", b" c")),
    _bad("header folded with a tab", get(b"A: b", b"\tc")),
    _bad("first header with a space", b"GET /p HTTP/1.1\r\n Host: h\r\n\r\n"),
    _bad("NUL in a value", get(b"A: \0")),
    _bad("NUL in a name", get(b"A\0: b")),
    _bad("NUL in a target", get(first=b"GET /\0 HTTP/1.1")),
    _bad("control in a value", get(b"A: \x01")),
    _bad("header without a name", get(b": b")),
    _bad("header without a colon", get(b"A")),
    _bad("head too long", get(b"A: " + b"x" * 70_000), 431),
    _bad("target too long", get(first=b"GET /" + b"x" * 70_000 + b" HTTP/1.1"), 431),
    _bad("many headers", get(*[b"A: b"] * 14_000), 431),
    _bad("no host", b"GET /p HTTP/1.1\r\n\r\n"),
    _bad("two hosts", get(b"Host: i")),
    _bad("two hosts of HTTP/1.0", get(b"Host: i", first=b"GET /p HTTP/1.0")),
    *(_bad(f"host {host!r}", b"GET /p HTTP/1.1\r\nHost: " + host + b"\r\n\r\n") for host in (
        b"h i", b"h, i", b"http://h", b"h/p", b"me@h", b"h:80a", b"h:1:2", b"[::1", b"::1", b"%zz", b"h\xc3\xa9",
    )),
    _bad("host of HTTP/1.0 malformed", b"GET /p HTTP/1.0\r\nHost: h/p\r\n\r\n"),
    *(_good(f"host {host!r}", b"GET /p HTTP/1.1\r\nHost:" + host + b"\r\n\r\n" + NEXT, b"/p", b"/n") for host in (
        b"", b"h:", b" h:80 ", b"10.0.0.1:9000", b"[::1]:80", b"[fe80::1%25eth0]", b"my_node.x-y.z", b"a%20b", b"H.",
    )),
    _bad("RTSP", get(first=b"GET /p RTSP/1.0"), 505),
    _bad("RTSP/1.1", get(first=b"OPTIONS * RTSP/1.1"), 505),
    _bad("RTSP with a target of HTTP", get(first=b"GET /HTTP/1.1 RTSP/1.0"), 505),
    _bad("ICE", get(first=b"SOURCE /p ICE/1.0"), 505),
    _bad("HTTP/0.9", b"GET /p\r\n\r\n"),
    _bad("HTTP/1.2", get(first=b"GET /p HTTP/1.2")),
    _bad("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    _bad("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    _bad("CONNECT", get(first=b"CONNECT h:1 HTTP/1.1"), 405),
    _bad("unknown method", get(first=b"GETS /p HTTP/1.1")),
    _good("empty lines first", b"\r\n\r\n\r\n" + get(), b"/p", b"/n"),
    _good("spaces in the request line", get(first=b"GET   /p   HTTP/1.1"), b"/p", b"/n"),
    _good("absolute form", get(first=b"GET http://h/p HTTP/1.1"), b"http://h/p", b"/n"),
    _good("asterisk form", get(first=b"OPTIONS * HTTP/1.1"), b"*", b"/n"),
    _good("HEAD", get(first=b"HEAD /p HTTP/1.1"), b"/p", b"/n"),
    _good("close", get(b"Connection: close", after=EVIL), b"/p"),
    _good("HTTP/1.0", b"GET /p HTTP/1.0\r\n\r\n" + EVIL, b"/p"),
    _good("HTTP/1.0 kept", get(b"Connection: keep-alive", first=b"GET /p HTTP/1.0"), b"/p", b"/n"),
    _good("HTTP/1.0 with a body", post(b"Content-Length: 1", version=b"1.0", body=b"a", after=EVIL), b"/p a"),
    _good("expect", post(b"Expect: 100-continue", b"Content-Length: 1", body=b"a"), b"/p a", b"/n"),
    _good("upgrade", get(b"Connection: Upgrade", b"Upgrade: websocket"), b"/p", b"/n"),
    _good("upgrade with CL", post(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 3", body=b"abc"),
          b"/p abc", b"/n"),
    _good("upgrade with chunks", chunks(b"1\r\na\r\n0\r\n\r\n", b"Connection: Upgrade", b"Upgrade: h2c"),
          b"/p a", b"/n"),
    Case("garbage after an answer", get(after=b""), (200, 400), (b"/p",), b"\x00\x00"),
    Case("bad second", get(after=b""), (200, 400), (b"/p",), post(b"Content-Length: x")),
    Case("half a head", b"GET /p HTTP/1.1\r\nHo", (), ()),
    Case("half a body", post(b"Content-Length: 9", body=b"abc", after=b""), (), ()),
)  # fmt: skip
REQUESTS: Final = (*_FRAMING, *_CHUNKS, *_HEADS)


@dataclass(frozen=True)
class Reply:
    """What a router says to a request."""

    name: str
    data: bytes
    told: tuple[int, bytes] | None
    """Status and body for the client; None: it is broken off, as nothing else tells that some is missing."""
    method: bytes = b"GET"
    keeps: bool = True
    """Whether the router's connection serves the next request."""


OK: Final = b"HTTP/1.1 200 OK\r\n"


def _answer(name: str, data: bytes, body: bytes = b"", status: int = 200, **more: bool) -> Reply:
    return Reply(name, data, (status, body), **more)  # type: ignore[arg-type]


def _broken(name: str, data: bytes) -> Reply:
    return Reply(name, data, (502, b""), keeps=False)


ANSWERS: Final = (
    _answer("CL", OK + b"Content-Length: 2\r\n\r\nab", b"ab"),
    _answer("chunks", OK + TE + b"\r\n1;x\r\na\r\n1\r\nb\r\n0\r\nSum: 1\r\n\r\n", b"ab"),
    _answer("100 first", b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", b"a"),
    _answer("103 first", b"HTTP/1.1 103 X\r\nLink: y\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", b"a"),
    _answer("204", b"HTTP/1.1 204 No Content\r\n\r\n", status=204),
    _answer("204 with a body", b"HTTP/1.1 204 X\r\nContent-Length: 1\r\n\r\na", status=204, keeps=False),
    _answer("304 with CL", b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n", status=304),
    _answer("no reason", b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", b"a"),
    _answer("more than CL", OK + b"Content-Length: 1\r\n\r\nab", b"a", keeps=False),
    _answer("a second answer", 2 * (OK + b"Content-Length: 1\r\n\r\na"), b"a", keeps=False),
    _answer("close", OK + b"Connection: close\r\nContent-Length: 1\r\n\r\na", b"a", keeps=False),
    _answer("HTTP/1.0", b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", b"a", keeps=False),
    _answer("upgrade required", b"HTTP/1.1 426 X\r\nUpgrade: h2\r\nConnection: Upgrade\r\nContent-Length: 0\r\n\r\n",
            status=426),
    Reply("HEAD", OK + b"Content-Length: 5\r\n\r\n", (200, b""), b"HEAD"),
    Reply("HEAD with chunks", OK + TE + b"\r\n", (200, b""), b"HEAD"),
    Reply("HEAD with a body", OK + b"Content-Length: 1\r\n\r\na", (200, b""), b"HEAD", keeps=False),
    Reply("HEAD refused", b"nonsense\r\n\r\n", (502, b""), b"HEAD", keeps=False),
    _broken("no HTTP", b"nonsense\r\n\r\n"),
    _broken("HTTP/2", b"HTTP/2.0 200 OK\r\n\r\n"),
    _broken("HTTP/0.9", b"HTTP/0.9 200 OK\r\n\r\n"),
    _broken("status of two digits", b"HTTP/1.1 99 X\r\n\r\n"),
    _broken("status of letters", b"HTTP/1.1 2OO X\r\n\r\n"),
    _broken("NUL in the reason", b"HTTP/1.1 200 a\0\r\n\r\n"),
    _broken("101", b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
    _broken("100 with a body", b"HTTP/1.1 100 X\r\nContent-Length: 1\r\n\r\na" + OK + b"\r\n"),
    _broken("LF alone", b"HTTP/1.1 200 OK\nContent-Length: 1\n\na"),
    _broken("CR alone", OK + b"A: b\rc\r\n\r\n"),
    _broken("folded", OK + b"A: b\r\n c\r\n\r\n"),
    _broken("NUL in a header", OK + b"A: \0\r\n\r\n"),
    _broken("CL and TE", OK + TE + b"Content-Length: 1\r\n\r\n0\r\n\r\n"),
    _broken("two CLs", OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na"),
    _broken("CL of letters", OK + b"Content-Length: a\r\n\r\n"),
    _broken("TE gzip", OK + b"Transfer-Encoding: gzip\r\n\r\na"),
    _broken("head too long", OK + b"A: " + b"x" * 70_000 + b"\r\n\r\n"),
)  # fmt: skip
CUT_OFF: Final = (
    Reply("chunk size of letters", OK + TE + b"\r\n1\r\na\r\nzz\r\n", None, keeps=False),
    Reply("chunk too long", OK + TE + b"\r\n1\r\na\r\n1\r\nabc\r\n", None, keeps=False),
    Reply("chunk extension with CR", OK + TE + b"\r\n1\r\na\r\n1;x\ry\r\nb\r\n0\r\n\r\n", None, keeps=False),
    Reply("trailer with CL", OK + TE + b"\r\n1\r\na\r\n0\r\nContent-Length: 3\r\n\r\n", None, keeps=False),
    Reply("trailer with TE", OK + TE + b"\r\n1\r\na\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n", None, keeps=False),
)
"""Said in two pieces, of which the first is a head and a chunk."""
