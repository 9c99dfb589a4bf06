"""Where a message ends, in every way that it may be cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.serving.relay.http_framing import HEAD_LIMIT, QUIET_LIMIT, Malformed, RequestHead
from remuda.serving.relay.reading import END, AnswerReader, RequestReader

CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
NEXT = b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
pieces = st.lists(st.integers(1, 7), min_size=1, max_size=200)
chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
fewer = pytest.mark.parametrize("size", [1, 3, 4096])


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    found, at, turn = [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return found


def read(data: bytes, sizes: list[int]) -> RequestReader:
    reader = RequestReader()
    for piece in cut(data, sizes):
        reader.feed(piece)
    return reader


def targets(reader: RequestReader) -> list[bytes]:
    return [event.target for event in reader.events if isinstance(event, RequestHead)]


def body(reader: RequestReader) -> bytes:
    return b"".join(event for event in reader.events if isinstance(event, bytes))


def chunked(parts: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    data = b"".join(b"%X%s\r\n%s\r\n" % (len(part), extension, part) for part in parts)
    return data + b"0%s\r\n%s\r\n" % (extension, trailer)


def unchunked(data: bytes) -> bytes:
    """What is in chunks that we wrote ourselves."""
    content = b""
    while data[:1] != b"0":
        size, _, data = data.partition(b"\r\n")
        content, data = content + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return content


@given(chunks, pieces, st.sampled_from([b"", b";ext=1", b';a="b;c"']), st.booleans())
def test_a_chunked_body_ends_where_it_ends(
    parts: list[bytes], sizes: list[int], extension: bytes, trailer: bool
) -> None:
    reader = read(CHUNKED + chunked(parts, extension, b"Sum: 1\r\n" if trailer else b"") + NEXT, sizes)
    assert targets(reader) == [b"/", b"/next"]
    assert reader.events[-2] is END
    assert unchunked(body(reader)) == b"".join(parts)
    assert body(reader).endswith(b"0\r\nSum: 1\r\n\r\n" if trailer else b"0\r\n\r\n")
    assert b";" not in body(reader) or b";" in b"".join(parts), "extensions go no further"


@given(st.integers(1, 60), pieces)
def test_a_body_of_known_length(length: int, sizes: list[int]) -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % length
    reader = read(head + b"x" * length + NEXT, sizes)
    assert targets(reader) == [b"/", b"/next"]
    assert reader.events[-2] is END
    assert body(reader) == b"x" * length


@given(pieces, st.sampled_from([b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b""]))
def test_a_wish_for_another_protocol_changes_no_end(sizes: list[int], framing: bytes) -> None:
    """As Java's clients wish it with their first request, a body behind it."""
    sent = {b"C": b"hello", b"T": chunked([b"hello"]), b"": b""}[framing[:1]]
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" + framing + b"\r\n"
    reader = read(2 * (head + sent) + NEXT, sizes)
    assert targets(reader) == [b"/a", b"/a", b"/next"]
    assert not [event for event in reader.events if isinstance(event, Malformed)]
    assert body(reader).replace(b"\r\n", b"").count(b"o") == (2 if framing else 0)


@given(pieces)
def test_a_body_that_ends_with_its_connection(sizes: list[int]) -> None:
    reader = AnswerReader(b"GET")
    assert b"".join(reader.feed(piece) for piece in cut(OK + b"\r\n" + b"x" * 50, sizes)) == b"x" * 50
    assert not reader.is_done


@given(chunks, pieces, st.sampled_from([b"", b"x", b"HTTP/1.1 200 OK\r\n\r\n"]))
def test_an_answer_in_chunks(parts: list[bytes], sizes: list[int], after: bytes) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"
    data = early + OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(parts, b";x", b"Sum: 1\r\n")
    reader = AnswerReader(b"GET")
    got = b"".join(reader.feed(piece) for piece in cut(data + after, sizes))
    assert unchunked(got) == b"".join(parts)
    assert got.endswith(b"0\r\nSum: 1\r\n\r\n")
    assert reader.is_done
    assert reader.is_clean is not bool(after)


@pytest.mark.parametrize("after", [b"", b"surprise"])
@fewer
def test_nothing_follows_an_answer_to_head(after: bytes, size: int) -> None:
    reader = AnswerReader(b"HEAD")
    assert not b"".join(reader.feed(piece) for piece in cut(OK + b"Content-Length: 8\r\n\r\n" + after, [size]))
    assert reader.is_done
    assert reader.is_clean is not bool(after)


BROKEN = [
    b"x\r\n", b"\r\n", b"-1\r\n", b"1\na\r\n", b"2\r\nabX\r\n0\r\n\r\n", b"2\r\nab\rX0\r\n\r\n", b"1" * 17 + b"\r\n",
    b"0x1\r\na\r\n", b"1;x\ry\r\na\r\n0\r\n\r\n", b"1;x\ny\r\na\r\n", b"1 \r\na\r\n", b"1\r\na\n0\r\n\r\n",
    b"1;\x00\r\na\r\n", b"0\r\nA\r\n\r\n", b"0\r\nA : b\r\n\r\n", b"0\r\nA: b\n\r\n", b"0\r\n A: b\r\n\r\n",
    b"0\r\nContent-Length: 3\r\n\r\n", b"0\r\nTransfer-Encoding: chunked\r\n\r\n", b"0\r\nA: b\r\n c\r\n\r\n",
    b"1;" + b"x" * QUIET_LIMIT * 2, b"0\r\n" + b"A: b\r\n" * QUIET_LIMIT, b"0\r\nA: " + b"b" * QUIET_LIMIT * 2,
]  # fmt: skip


@pytest.mark.parametrize("data", BROKEN, ids=lambda data: repr(data[:24]))
@fewer
def test_chunks_that_are_none(data: bytes, size: int) -> None:
    """Neither from a client, nor from a router."""
    last = read(CHUNKED + data, [size]).events[-1]
    assert isinstance(last, Malformed)
    with pytest.raises(Malformed):
        feed_all(AnswerReader(b"GET"), cut(OK + b"Transfer-Encoding: chunked\r\n\r\n" + data, [size]))


def feed_all(reader: AnswerReader, parts: list[bytes]) -> None:
    for part in parts:
        reader.feed(part)


@pytest.mark.parametrize("line", [b"GET /" + b"x" * HEAD_LIMIT, b"GET / HTTP/1.1\r\nA: " + b"x" * HEAD_LIMIT])
@fewer
def test_a_head_that_does_not_end(line: bytes, size: int) -> None:
    for before in (b"", CHUNKED + chunked([b"a"])):
        last = read(before + line + b"x" * 4096, [size]).events[-1]
        assert isinstance(last, Malformed)
        assert last.status == 431


def test_a_long_head_is_no_harm() -> None:
    line = b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * (HEAD_LIMIT - 100) + b"\r\n\r\n"
    for size in (1, 4096):
        assert targets(read(CHUNKED + chunked([b"a" * 4000]) + line + NEXT, [size])) == [b"/", b"/", b"/next"]
