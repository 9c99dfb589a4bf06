"""Where a message ends, in every way that it may be cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.serving.framing import (
    LINE_LIMIT,
    TRAILER_LIMIT,
    Body,
    Ends,
    Framing,
    Malformed,
    answer_head,
    forwarded,
    parse_answer,
    parse_request,
    request_head,
)


def request(*lines: str, first: str = "POST /v1/x HTTP/1.1", host: str = "Host: h") -> bytes:
    return "\r\n".join([first, *([host] if host else []), *lines]).encode()


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
        (b"GET  / HTTP/1.1\r\nHost: h", 400, "request line"),
        (b"G\x00T / HTTP/1.1\r\nHost: h", 400, "request line"),
        (b"\x16\x03\x01\x02\x00", 400, "request line"),
        (request(first="GET /a\tb HTTP/1.1"), 400, "request line"),
        (request(first="GET / FTP/1.1"), 400, "no version"),
        (request(first="GET / HTTP/2.0"), 505, "only HTTP/1.0"),
        (request(first="CONNECT a:1 HTTP/1.1"), 405, "CONNECT"),
        (request(host=""), 400, "one Host"),
        (request("Host: other"), 400, "one Host"),
        (request("Name : value"), 400, "NAME: VALUE"),
        (request("no colon"), 400, "NAME: VALUE"),
        (request("A: b", " folded"), 400, "NAME: VALUE"),
        (request("A: b\nEvil: c"), 400, "NAME: VALUE"),
        (request("A: b\rEvil: c"), 400, "NAME: VALUE"),
        (request("A: \x00"), 400, "NAME: VALUE"),
        (request("Content-Length: 1", "Content-Length: 1"), 400, "one number"),
        (request("Content-Length: 1, 2"), 400, "one number"),
        (request("Content-Length: +1"), 400, "one number"),
        (request("Content-Length: -1"), 400, "one number"),
        (request("Content-Length: 0x1"), 400, "one number"),
        (request("Content-Length: " + "9" * 19), 400, "one number"),
        (request("Content-Length:"), 400, "is empty"),
        (request("Content-Length: 1", "Transfer-Encoding: chunked"), 400, "not both"),
        (request("Transfer-Encoding: gzip, chunked"), 501, "chunked"),
        (request("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 501, "chunked"),
        (request("Transfer-Encoding: chunked", first="POST / HTTP/1.0"), 501, "chunked"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(head: bytes, status: int, why: str) -> None:
    with pytest.raises(Malformed, match=why) as caught:
        parse_request(head)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("head", "method", "ends", "keeps"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"GET", Ends.LENGTH, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3", b"HEAD", Ends.AT_ONCE, True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", b"POST", Ends.CHUNKED, True),
        (b"HTTP/1.1 200 OK", b"GET", Ends.CLOSE, False),
        (b"HTTP/1.1 204 No Content", b"GET", Ends.AT_ONCE, True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9", b"GET", Ends.AT_ONCE, True),
        (b"HTTP/1.1 100 Continue", b"POST", Ends.AT_ONCE, True),
        (b"HTTP/1.1 200 \r\nContent-Length: 0\r\nConnection: Keep-Alive, Close", b"GET", Ends.AT_ONCE, False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3", b"GET", Ends.LENGTH, False),
        (b"HTTP/1.1 200", b"GET", Ends.CLOSE, False),
    ],
)
def test_where_an_answer_ends(head: bytes, method: bytes, ends: Ends, keeps: bool) -> None:
    answer = parse_answer(head, method)
    assert (answer.framing.ends, answer.keep_alive) == (ends, keeps)


@pytest.mark.parametrize("head", [b"HTTP/1.1 2OO OK", b"HTTP/2 200 OK", b"hello", b"HTTP/1.1 200 OK\r\nA", b""])
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


pieces = st.lists(st.integers(1, 7), min_size=1, max_size=200)
chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=6)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    found, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return found


def taken(body: Body, data: bytes, sizes: list[int]) -> int:
    total = 0
    for piece in cut(data, sizes):
        used = body.feed(piece)
        total += used
        if body.done:
            return total
        assert used == len(piece)
    return total


@given(chunks, pieces, st.binary(max_size=20), st.sampled_from([b"", b";ext=1", b" "]), st.booleans())
def test_a_chunked_body_ends_where_it_ends(
    parts: list[bytes], sizes: list[int], after: bytes, extension: bytes, trailer: bool
) -> None:
    data = b"".join(b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)
    data += b"0%s\r\n%s\r\n" % (extension, b"Sum: 1\r\n" if trailer else b"")
    body = Body(Framing(Ends.CHUNKED))
    assert taken(body, data + after, sizes) == len(data)
    assert body.done


@given(st.integers(1, 60), pieces, st.binary(max_size=20))
def test_a_body_of_known_length(length: int, sizes: list[int], after: bytes) -> None:
    body = Body(Framing(Ends.LENGTH, length))
    assert taken(body, b"x" * length + after, sizes) == length
    assert body.done


@given(pieces)
def test_a_body_that_ends_with_its_connection(sizes: list[int]) -> None:
    body = Body(Framing(Ends.CLOSE))
    assert taken(body, b"x" * 50, sizes) == 50
    assert not body.done


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"1\na\r\n",
        b"2\r\nabX\r\n0\r\n\r\n",
        b"2\r\nab\rX0\r\n\r\n",
        b"1" * 17 + b"\r\n",
        b"1;" + b"x" * LINE_LIMIT,
        b"0\r\n" + b"A: b\r\n" * TRAILER_LIMIT,
        b"0x1\r\na\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 10_000_000])
def test_chunks_that_are_none(data: bytes, size: int) -> None:
    body = Body(Framing(Ends.CHUNKED))
    with pytest.raises(Malformed):
        taken(body, data, [size])
