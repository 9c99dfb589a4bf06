"""What the relay passes on of a head, and as what."""

from __future__ import annotations

import pytest

from remuda.serving.relay.http_framing import (
    Ends,
    Framing,
    Malformed,
    RequestHead,
    ResponseHead,
    answer_head,
    forwarded,
    last_chunk,
    request_head,
)
from remuda.serving.relay.reading import AnswerReader, RequestReader


def request(*lines: str, first: str = "POST /v1/x HTTP/1.1", host: str = "Host: h") -> bytes:
    return "\r\n".join([first, *([host] if host else []), *lines]).encode()


def parse_request(head: bytes) -> RequestHead:
    reader = RequestReader()
    reader.feed(head + b"\r\n\r\n")
    event = reader.events[0]
    if isinstance(event, Malformed):
        raise event
    assert isinstance(event, RequestHead)
    return event


def parse_answer(head: bytes, method: bytes) -> ResponseHead:
    reader = AnswerReader(method)
    reader.feed(head + b"\r\n\r\n")
    assert reader.answer is not None
    return reader.answer


@pytest.mark.parametrize(
    ("head", "ends", "length"),
    [
        (request(), Ends.AT_ONCE, 0),
        (request("Content-Length: 0"), Ends.AT_ONCE, 0),
        (request("Content-Length: 12"), Ends.LENGTH, 12),
        (request("content-LENGTH:   7\t"), Ends.LENGTH, 7),
        (request("Transfer-Encoding: Chunked"), Ends.CHUNKED, 0),
    ],
)
def test_where_a_request_ends(head: bytes, ends: Ends, length: int) -> None:
    assert parse_request(head).framing == Framing(ends, length)


@pytest.mark.parametrize(
    ("head", "status", "why"),
    [
        (b"GET /\r\nHost: h", 400, "request line"),
        (b"G\x00T / HTTP/1.1\r\nHost: h", 400, "method"),
        (b"\x16\x03\x01\x02\x00", 400, "method"),
        (request(first="GET /a\tb HTTP/1.1"), 400, "url"),
        (request(first="GET / FTP/1.1"), 400, "HTTP/"),
        (request(first="GET / HTTP/2.0"), 505, "only HTTP/1.0"),
        (request(first="CONNECT a:1 HTTP/1.1"), 405, "CONNECT"),
        (request(host=""), 400, "one Host"),
        (request("Host: other"), 400, "one Host"),
        (request("Name : value"), 400, "header"),
        (request("no colon"), 400, "header"),
        (request("A: b", " folded"), 400, "header"),
        (request("A: b\nEvil: c"), 400, "header"),
        (request("A: b\rEvil: c"), 400, "header"),
        (request("A: \x00"), 400, "header"),
        (request("Content-Length: 1", "Content-Length: 1"), 400, "Content-Length"),
        (request("Content-Length: 1, 2"), 400, "Content-Length"),
        (request("Content-Length: +1"), 400, "Content-Length"),
        (request("Content-Length: -1"), 400, "Content-Length"),
        (request("Content-Length: 0x1"), 400, "Content-Length"),
        (request("Content-Length: " + "9" * 19), 400, "one number"),
        (request("Content-Length:"), 400, "Content-Length"),
        (request("Content-Length: 1", "Transfer-Encoding: chunked"), 400, "Content-Length"),
        (request("Transfer-Encoding: chunked", "Content-Length: 1"), 400, "Content-Length"),
        (request("Transfer-Encoding: gzip, chunked"), 501, "chunked"),
        (request("Transfer-Encoding: chunked, gzip"), 400, "Transfer-Encoding"),
        (request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400, "Transfer-Encoding"),
        (request("Transfer-Encoding: chunked", first="POST / HTTP/1.0"), 501, "chunked"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(head: bytes, status: int, why: str) -> None:
    with pytest.raises(Malformed, match=why) as caught:
        parse_request(head)
    assert caught.value.status == status


def test_a_request_line_is_written_anew() -> None:
    """More spaces than one are no harm when nobody else sees them."""
    assert request_head(parse_request(b"GET  /a   HTTP/1.1\r\nHost: h")) == b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "method", "ends", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"GET", Ends.LENGTH, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"HEAD", Ends.AT_ONCE, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", b"POST", Ends.CHUNKED, True),
        (b"HTTP/1.1 200 OK", b"GET", Ends.CLOSE, False),
        (b"HTTP/1.1 204 No Content", b"GET", Ends.AT_ONCE, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9", b"GET", Ends.AT_ONCE, True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X", b"POST", Ends.AT_ONCE, True),
        (b"HTTP/1.1 200 \r\nContent-Length: 0\r\nConnection: Keep-Alive, Close", b"GET", Ends.AT_ONCE, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3", b"GET", Ends.LENGTH, False),
        (b"HTTP/1.1 200", b"GET", Ends.CLOSE, False),
    ],
)
def test_where_an_answer_ends(head: bytes, method: bytes, ends: Ends, keeps: bool) -> None:
    answer = parse_answer(head, method)
    assert (answer.framing.ends, answer.keep_alive) == (ends, keeps)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 2OO OK", b"HTTP/2 200 OK", b"HTTP/2.0 200 OK", b"HTTP/0.9 200 OK", b"hello", b"HTTP/1.1 000 X",
        b"HTTP/1.1 200 OK\r\nA", b"HTTP/1.1 200 a\x00b", b"HTTP/1.1 200 a\x0bb", b"HTTP/1.1 103 X\r\nContent-Length: 1",
        b"HTTP/1.1 101 X", b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
    ],
)  # fmt: skip
def test_what_is_no_answer(head: bytes) -> None:
    with pytest.raises(Malformed):
        parse_answer(head, b"GET")


def test_headers_of_one_hop_stay_on_it() -> None:
    head = request_head(parse_request(request(
        "Connection: close, X-Mine", "X-Mine: 1", "Keep-Alive: 5", "Upgrade: h2c", "TE: trailers",
        "Expect: 100-continue", "Authorization: Bearer k", "Content-Length: 2", "X-Other: a  b",
    )))  # fmt: skip
    assert head == (
        b"POST /v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer k\r\nContent-Length: 2\r\nX-Other: a  b\r\n\r\n"
    )
    evil = parse_request(request("Connection: authorization, content-length, host", "Authorization: k"))
    assert b"Authorization: k\r\n" in forwarded(evil.headers, evil.framing), "nobody takes the key out of a request"


def test_an_old_request_gets_an_answer_that_it_understands() -> None:
    old = parse_request(request("Connection: keep-alive", first="GET / HTTP/1.0", host=""))
    assert old.keep_alive
    assert request_head(old) == b"GET / HTTP/1.0\r\nConnection: close\r\n\r\n"
    answer = parse_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close", b"GET")
    assert answer_head(answer, minor=0, close=False).endswith(b"Content-Length: 1\r\nConnection: keep-alive\r\n\r\n")
    assert answer_head(answer, minor=1, close=False) == b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"
    assert b"Connection: close\r\n" in answer_head(answer, minor=1, close=True)


def test_only_who_waits_for_it_is_told_to_go_on() -> None:
    assert parse_request(request("Expect: 100-Continue", "Content-Length: 1")).expects_continue
    assert not parse_request(request("Expect: 100-continue")).expects_continue
    assert not parse_request(
        request("Expect: 100-continue", "Content-Length: 1", first="POST / HTTP/1.0")
    ).expects_continue


def test_a_trailer_adds_nothing_that_belongs_into_a_head() -> None:
    fields = [(b"Sum", b"1"), (b"Authorization", b"k"), (b"Host", b"h"), (b"Connection", b"close"), (b"Cookie", b"c")]
    assert last_chunk(fields) == b"0\r\nSum: 1\r\n\r\n"
