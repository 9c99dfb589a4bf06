"""One connection, without a network: what is read off it, whatever the other side does."""

from __future__ import annotations

import asyncio
from time import monotonic_ns

import pytest

from remuda.bench.generator.http_stream import HttpStream, TimedAnswer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"
HINT = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
SSE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Wire(asyncio.Transport):
    """What is written, and whether it was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.is_ended = True


def line() -> tuple[HttpStream, Wire]:
    made, wire = HttpStream(), Wire()
    made.connection_made(wire)
    return made, wire


async def answer_of(
    reads: list[bytes], *, is_closed: bool = False, timeout_s: float = 60
) -> tuple[TimedAnswer, HttpStream]:
    made, _ = line()
    done = made.start(b"GET / HTTP/1.1\r\n\r\n", timeout_s)
    for data in reads:
        made.data_received(data)
    if is_closed:
        made.connection_lost(None)
    return await done, made


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("reads", "body"),
    [
        pytest.param([SIZED + b"hello"], b"hello", id="with a length"),
        pytest.param([SIZED[:20], SIZED[20:] + b"he", b"llo"], b"hello", id="in pieces"),
        pytest.param([CHUNKED + chunk(b"hello") + LAST], b"hello", id="in chunks"),
        pytest.param([CHUNKED, *(chunk(b"x") for _ in range(50)), LAST], b"x" * 50, id="many chunks"),
        pytest.param([CHUNKED, chunk(b"hello"), b"0\r\n", b"\r\n"], b"hello", id="its end in two reads"),
        pytest.param([CHUNKED, chunk(b"hello"), b"0\r\n\r", b"\n"], b"hello", id="one byte later"),
        pytest.param([CHUNKED, chunk(b"hello") + b"0\r", b"\n\r\n"], b"hello", id="cut in its end"),
        pytest.param([CHUNKED, chunk(b"a\r\n\r\n"), chunk(b"b"), LAST], b"a\r\n\r\nb", id="blank lines in the body"),
        pytest.param([CHUNKED, chunk(b"hello"), b"0\r\nX-Cost: 1\r\n\r\n"], b"hello", id="with a trailer"),
        pytest.param([HINT, HINT + SIZED + b"hello"], b"hello", id="hints before it"),
        pytest.param([*[bytes([one]) for one in CHUNKED + chunk(b"hello") + LAST]], b"hello", id="byte by byte"),
    ],
)
async def test_whole_answers(reads: list[bytes], body: bytes) -> None:
    answer, made = await answer_of(reads)
    assert (answer.error, answer.status, b"".join(answer.pieces)) == ("", 200, body)
    assert made.is_open
    assert len(answer.stamps) == len(answer.pieces)
    assert answer.sent <= answer.stamps[0] <= answer.ended
    assert answer.stamps == sorted(answer.stamps)


async def test_a_stamp_is_when_a_piece_came_and_not_when_it_was_parsed() -> None:
    made, _ = line()
    done = made.start(b"", 60)
    made.data_received(CHUNKED)
    between = []
    for _ in range(40):
        made.data_received(chunk(b"x"))
        between.append(monotonic_ns())
    made.data_received(LAST)
    answer = await done
    assert len(set(answer.stamps)) == 40
    assert all(stamp <= at for stamp, at in zip(answer.stamps, between, strict=True))


async def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    answer, made = await answer_of([OPEN, b"hel", b"lo"], is_closed=True)
    assert (answer.error, b"".join(answer.pieces)) == ("", b"hello")
    assert not made.is_open


@pytest.mark.parametrize(
    ("reads", "says", "is_unheard"),
    [
        pytest.param([], "the server closed it without an answer", True, id="nothing"),
        pytest.param([SIZED + b"he"], "the answer broke off", False, id="half of it"),
        pytest.param([CHUNKED, chunk(b"hello")], "the answer broke off", False, id="without the last chunk"),
        pytest.param([HINT], "the answer broke off", False, id="a hint only"),
        pytest.param([HINT] * 9, "instead of an answer", False, id="hints without end"),
        pytest.param([b"HTTP/1.1 101 Switching\r\n\r\n"], "HTTP 101", False, id="another protocol"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], "not HTTP", False, id="no HTTP"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"],
            "compressed",
            False,
            id="compressed",
        ),
    ],
)
async def test_no_whole_answer(reads: list[bytes], says: str, *, is_unheard: bool) -> None:
    answer, _ = await answer_of(reads, is_closed=True)
    assert says in answer.error
    assert answer.is_unheard == is_unheard


LAST_SIZE = b"0\r\n"


@pytest.mark.parametrize(
    ("reads", "says"),
    [
        pytest.param([chunk(b"x" * 60_000)] * 40, "the answer is longer than 1,024 KB", id="long"),
        pytest.param([chunk(b"xy") * 100] * 20, "the answer comes in more than 1,024 pieces", id="crumbs"),
        pytest.param([b"1;%s\r\nx\r\n" % (b"e" * 60_000)] * 40, "longer than", id="extensions of chunks"),
        pytest.param([LAST_SIZE, *[b"X-Cost: %s\r\n" % (b"1" * 60_000)] * 40], "longer than", id="trailers"),
    ],
)
async def test_nothing_is_kept_of_an_answer_without_end(reads: list[bytes], says: str) -> None:
    answer, made = await answer_of([CHUNKED, *reads])
    assert says in answer.error
    assert (answer.pieces, answer.stamps) == ([], [])
    assert not made.is_open


async def test_who_asked_for_many_tokens_takes_many_pieces() -> None:
    made, _ = line()
    done = made.start(b"", 60, 200)
    for data in (CHUNKED, *([chunk(b"x" * 2000)] * 1200), LAST):
        made.data_received(data)
    answer = await done
    assert (answer.error, len(answer.pieces)) == ("", 1200)


async def test_a_late_answer_keeps_what_came() -> None:
    answer, made = await answer_of([CHUNKED, chunk(b"hello")], timeout_s=0.01)
    assert answer.error == "no whole answer within 0.01 s"
    assert answer.pieces == [b"hello"]
    assert not made.is_open


@pytest.mark.parametrize("more", [b"HTTP/1.1 200 OK\r\n", b"rubbish", SIZED + b"again"])
async def test_what_nobody_asked_for_ends_a_connection(more: bytes) -> None:
    for reads in ([SIZED + b"hello" + more], [SIZED + b"hello", more]):
        answer, made = await answer_of(reads)
        assert (answer.error, answer.pieces) == ("", [b"hello"])
        assert not made.is_open


async def test_a_server_that_says_so_closes() -> None:
    _, made = await answer_of([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"])
    assert not made.is_open


async def test_one_answer_after_the_other() -> None:
    made, wire = line()
    for n in range(3):
        done = made.start(b"%d" % n, 60)
        made.data_received((CHUNKED + chunk(b"a") + LAST) if n % 2 else (SIZED + b"hello"))
        assert (await done).error == ""
    assert wire.written == b"012"
