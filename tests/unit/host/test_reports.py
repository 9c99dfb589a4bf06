"""Reports over a real socket: from friends, from strangers, and from those who say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from remuda.host import reports
from remuda.host.reports import Counts, ReportServer
from remuda.wire.report import MAX_LINE_BYTES, Key, Report

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "sesame"


class Desk:
    """A server with what it took in, and connections to it."""

    def __init__(self) -> None:
        self.taken: list[Report] = []
        self.server = ReportServer(KEY, self.taken.append)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, first: bytes = Key(KEY).to_json().encode() + b"\n") -> Line:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        line = Line(reader, writer)
        if first:
            await line.say(first)
        return line

    async def until(self, counts: Counts) -> None:
        """Wait until the server has counted so much."""
        try:
            async with asyncio.timeout(90):
                while self.server.counts != counts:
                    await asyncio.sleep(0.001)
        except TimeoutError:
            assert self.server.counts == counts  # says what it is instead

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)
        await self.server.stop()


class Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def is_closed(self) -> bool:
        """Whether the other side ends the connection; it never says anything."""
        try:
            async with asyncio.timeout(90):
                return await self.reader.read() == b""
        except ConnectionError:
            return True


def report(seq: int = 1, token: str = "w.replica.0.1.u1") -> Report:
    return Report(token=token, attempt=1, seq=seq, at=1.0, state="ready")


def text(seq: int = 1, token: str = "w.replica.0.1.u1") -> bytes:
    return report(seq, token).to_json().encode() + b"\n"


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    one = Desk()
    one.port = await one.server.start()
    yield one
    await one.close()


async def test_reports_are_taken_in_order(desk: Desk) -> None:
    line = await desk.connect()
    await line.say(text(1) + text(2)[:20])
    await desk.until(Counts(connections=1, reports=1))
    await line.say(text(2)[20:] + text(3))
    await desk.until(Counts(connections=1, reports=3))
    assert desk.taken == [report(1), report(2), report(3)]


@pytest.mark.parametrize(
    "first",
    [
        Key("open").to_json().encode() + b"\n",
        Key("").to_json().encode() + b"\n",
        b"\n",
        b"GET / HTTP/1.1\r\n",
        text(),
        json.dumps({"key": 7}).encode() + b"\n",
        b"\xff\xfe\n",
        b"[" * 3000 + b"\n",
        b"x" * (MAX_LINE_BYTES + 10) + b"\n",
    ],
    ids=["wrong", "empty", "blank", "http", "a report", "a number", "no text", "deep", "too long"],
)
async def test_without_the_key_nothing_is_taken(desk: Desk, first: bytes) -> None:
    line = await desk.connect(first)
    with contextlib.suppress(ConnectionError):  # it may be closed by now
        await line.say(text())
    await desk.until(Counts(connections=1, refused=1))
    assert await line.is_closed()
    assert desk.taken == []


async def test_an_empty_key_of_the_server_lets_nobody_in(desk: Desk) -> None:
    shut = ReportServer("", desk.taken.append)
    desk.port = await shut.start()
    line = await desk.connect(Key("").to_json().encode() + b"\n" + text())
    assert await line.is_closed()
    assert (shut.counts.refused, desk.taken) == (1, [])
    await shut.stop()


@pytest.mark.parametrize(
    "bad",
    [b"{}\n", b"nonsense\n", b"\n", b"[1]\n", b'{"token": "w"}\n', Key(KEY).to_json().encode() + b"\n", b"\xff\n"],
)
async def test_what_is_no_report_is_counted_and_the_next_one_is_taken(desk: Desk, bad: bytes) -> None:
    line = await desk.connect()
    await line.say(bad + text(5))
    await desk.until(Counts(connections=1, reports=1, malformed=1))
    assert desk.taken == [report(5)]


async def test_a_line_that_is_too_long_ends_the_connection(desk: Desk) -> None:
    line = await desk.connect()
    await line.say(text(1))
    await line.say(b"x" * (3 * MAX_LINE_BYTES))
    assert await line.is_closed()
    await desk.until(Counts(connections=1, reports=1, malformed=1))
    other = await desk.connect()
    await other.say(text(2))
    await desk.until(Counts(connections=2, reports=2, malformed=1))


async def test_many_at_once(desk: Desk) -> None:
    lines = await asyncio.gather(*(desk.connect() for _ in range(200)))
    for seq in range(5):
        await asyncio.gather(*(line.say(text(seq, f"w.replica.{n}.1.u1")) for n, line in enumerate(lines)))
    await desk.until(Counts(connections=200, reports=1000))
    for number in range(200):
        mine = [one.seq for one in desk.taken if one.token == f"w.replica.{number}.1.u1"]
        assert mine == [0, 1, 2, 3, 4]


async def test_many_at_once_with_garbage_between(desk: Desk) -> None:
    """Strangers and broken reporters cost the others nothing, and each line that is none is counted."""
    wrong = Key("open").to_json().encode() + b"\n"
    firsts = [None if number % 4 else wrong for number in range(200)]
    lines = await asyncio.gather(*(desk.connect() if first is None else desk.connect(first) for first in firsts))
    good = [line for line, first in zip(lines, firsts, strict=True) if first is None]
    for seq in range(4):
        await asyncio.gather(
            *(line.say(b"garbage\n" + text(seq, f"w.replica.{n}.1.u1")) for n, line in enumerate(good))
        )
    await desk.until(Counts(connections=200, reports=600, malformed=600, refused=50))
    assert {(one.token, one.seq) for one in desk.taken} == {
        (f"w.replica.{n}.1.u1", seq) for n in range(150) for seq in range(4)
    }


async def test_who_says_nothing_is_sent_away(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_KEY_TIMEOUT_S", 0.05)
    silent = await desk.connect(b"")
    slow = await desk.connect(b'{"ke')
    assert await silent.is_closed()
    assert await slow.is_closed()
    await desk.until(Counts(connections=2, refused=2))


async def test_who_has_said_the_key_may_be_silent(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "_KEY_TIMEOUT_S", 0.05)
    line = await desk.connect()
    other = await desk.connect(b"")
    assert await other.is_closed()
    await line.say(text(1))
    await desk.until(Counts(connections=2, reports=1, refused=1))


async def test_the_last_words_of_one_that_hangs_up_in_the_middle(desk: Desk) -> None:
    line = await desk.connect()
    await line.say(text(1) + text(2)[:-30])
    line.writer.close()
    await desk.until(Counts(connections=1, reports=1, malformed=1))


async def test_a_stop_closes_all_connections(desk: Desk) -> None:
    lines = [await desk.connect() for _ in range(3)]
    await desk.until(Counts(connections=3))
    async with asyncio.timeout(90):
        await desk.server.stop()
    assert [await line.is_closed() for line in lines] == [True, True, True]
    with pytest.raises(ConnectionError):
        await desk.connect()
