"""Reports over a real socket: from friends, from strangers, and from those who say nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest
from tests.ports import free_port

from remuda.host import reports
from remuda.host.reports import ReportCounts, ReportServer
from remuda.wire import accepting
from remuda.wire.gate import Limits
from remuda.wire.report import MAX_LINE_BYTES, Key, Report, key_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET = "sesame"
TOKEN = "w.replica.0.1.u1"
PATIENT = Limits(number=300, seconds=600.0)


def key(token: str = TOKEN, secret: str = SECRET) -> bytes:
    return Key(key_for(secret, token), token).to_json().encode() + b"\n"


class Desk:
    """A server with what it took in, and connections to it."""

    def __init__(self, limits: Limits = PATIENT, most: int = 0) -> None:
        self.taken: list[Report] = []
        self.server = ReportServer(SECRET, self.taken.append, limits=limits, most=most)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, first: bytes = key()) -> Line:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        line = Line(reader, writer)
        if first:
            await line.say(first)
        return line

    async def until(self, counts: ReportCounts) -> None:
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


async def test_it_listens_where_it_did_if_nobody_else_does() -> None:
    first, second, third = (ReportServer(SECRET, lambda _: None) for _ in range(3))
    port = await first.start()
    assert await second.start(port=port) != port
    await first.stop()
    assert await third.start(port=port) == port
    for one in (second, third):
        await one.stop()


def report(seq: int = 1, token: str = TOKEN) -> Report:
    return Report(token=token, attempt=1, seq=seq, at=1.0, state="ready")


def text(seq: int = 1, token: str = TOKEN) -> bytes:
    return report(seq, token).to_json().encode() + b"\n"


@contextlib.asynccontextmanager
async def shop(limits: Limits = PATIENT, most: int = 0) -> AsyncIterator[Desk]:
    one = Desk(limits, most)
    one.port = await one.server.start()
    try:
        yield one
    finally:
        await one.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with shop() as one:
        yield one


async def test_reports_are_taken_in_order(desk: Desk) -> None:
    line = await desk.connect()
    await line.say(text(1) + text(2)[:20])
    await desk.until(ReportCounts(connections=1, reports=1))
    await line.say(text(2)[20:] + text(3))
    await desk.until(ReportCounts(connections=1, reports=3))
    assert desk.taken == [report(1), report(2), report(3)]


@pytest.mark.parametrize(
    "first",
    [
        key(secret="open"),
        Key("", TOKEN).to_json().encode() + b"\n",
        Key(SECRET, TOKEN).to_json().encode() + b"\n",
        Key(key_for(SECRET, TOKEN), "w.replica.1.1.u1").to_json().encode() + b"\n",
        b"\n",
        b"GET / HTTP/1.1\r\n",
        text(),
        json.dumps({"key": 7}).encode() + b"\n",
        b"\xff\xfe\n",
        b"[" * 3000 + b"\n",
        b"x" * (MAX_LINE_BYTES + 10) + b"\n",
    ],
    ids=[
        "wrong",
        "empty",
        "the secret",
        "another's",
        "blank",
        "http",
        "a report",
        "a number",
        "no text",
        "deep",
        "too long",
    ],
)
async def test_without_the_key_nothing_is_taken(desk: Desk, first: bytes) -> None:
    line = await desk.connect(first)
    with contextlib.suppress(ConnectionError):  # it may be closed by now
        await line.say(text())
    await desk.until(ReportCounts(connections=1, refused=1))
    assert await line.is_closed()
    assert desk.taken == []


async def test_an_empty_key_of_the_server_lets_nobody_in(desk: Desk) -> None:
    shut = ReportServer("", desk.taken.append)
    desk.port = await shut.start()
    line = await desk.connect(key(secret="") + text())
    assert await line.is_closed()
    assert (shut.counts.refused, desk.taken) == (1, [])
    await shut.stop()


@pytest.mark.parametrize(
    "bad",
    [b"{}\n", b"nonsense\n", b"\n", b"[1]\n", b'{"token": "w"}\n', key(), b"\xff\n"],
)
async def test_what_is_no_report_is_counted_and_the_next_one_is_taken(desk: Desk, bad: bytes) -> None:
    line = await desk.connect()
    await line.say(bad + text(5))
    await desk.until(ReportCounts(connections=1, reports=1, malformed=1))
    assert desk.taken == [report(5)]


async def test_a_line_that_is_too_long_ends_the_connection(desk: Desk) -> None:
    line = await desk.connect()
    await line.say(text(1))
    await line.say(b"x" * (3 * MAX_LINE_BYTES))
    assert await line.is_closed()
    await desk.until(ReportCounts(connections=1, reports=1, malformed=1))
    other = await desk.connect()
    await other.say(text(2))
    await desk.until(ReportCounts(connections=2, reports=2, malformed=1))


async def test_many_at_once(desk: Desk) -> None:
    lines = await asyncio.gather(*(desk.connect(key(f"w.replica.{n}.1.u1")) for n in range(200)))
    for seq in range(5):
        await asyncio.gather(*(line.say(text(seq, f"w.replica.{n}.1.u1")) for n, line in enumerate(lines)))
    await desk.until(ReportCounts(connections=200, reports=1000))
    for number in range(200):
        mine = [one.seq for one in desk.taken if one.token == f"w.replica.{number}.1.u1"]
        assert mine == [0, 1, 2, 3, 4]


async def test_many_at_once_with_garbage_between(desk: Desk) -> None:
    """Strangers and broken reporters cost the others nothing, and each line that is none is counted."""
    lines = await asyncio.gather(*(desk.connect(key(f"w.replica.{n}.1.u1")) for n in range(150)))
    wrong = asyncio.gather(*(desk.connect(key(secret="open")) for _ in range(50)))
    for seq in range(4):
        await asyncio.gather(
            *(line.say(b"garbage\n" + text(seq, f"w.replica.{n}.1.u1")) for n, line in enumerate(lines))
        )
    await wrong
    await desk.until(ReportCounts(connections=200, reports=600, malformed=600, refused=50))
    assert {(one.token, one.seq) for one in desk.taken} == {
        (f"w.replica.{n}.1.u1", seq) for n in range(150) for seq in range(4)
    }


async def test_who_says_nothing_is_sent_away() -> None:
    async with shop(Limits(seconds=0.05)) as desk:
        silent = await desk.connect(b"")
        slow = await desk.connect(b"")
        with contextlib.suppress(ConnectionError):  # it may have been too slow already
            await slow.say(b'{"ke')
        assert await silent.is_closed()
        assert await slow.is_closed()
        await desk.until(ReportCounts(connections=2, refused=2))


async def test_who_has_said_the_key_may_be_silent() -> None:
    async with shop(Limits(seconds=0.05)) as desk:
        with socket.create_connection(("127.0.0.1", desk.port)) as node:
            node.sendall(key())  # before it is accepted: however long that takes
            other = await desk.connect(b"")
            assert await other.is_closed()
            node.sendall(text(1))
            await desk.until(ReportCounts(connections=2, reports=1, refused=1))


async def test_strangers_are_so_many_and_the_oldest_goes_for_the_newest() -> None:
    async with shop(Limits(number=3, seconds=600.0)) as desk:
        strangers = []
        for count in range(1, 6):
            strangers.append(await desk.connect(b""))
            await desk.until(ReportCounts(connections=count, refused=max(0, count - 3)))
        assert await strangers[0].is_closed()
        assert await strangers[1].is_closed()
        await strangers[4].say(key() + text(1))
        await desk.until(ReportCounts(connections=5, refused=2, reports=1))


async def test_a_node_gets_in_through_a_flood_from_its_own_address() -> None:
    """Whoever has said the key before it is accepted never waits among strangers."""
    async with shop(Limits(number=2, seconds=600.0)) as desk:
        flood = [socket.create_connection(("127.0.0.1", desk.port)) for _ in range(40)]
        node = socket.create_connection(("127.0.0.1", desk.port))
        node.sendall(key() + text(1))
        flood += [socket.create_connection(("127.0.0.1", desk.port)) for _ in range(40)]
        await desk.until(ReportCounts(connections=81, refused=78, reports=1))
        for one in (*flood, node):
            one.close()


async def test_a_stranger_says_so_much_and_no_more() -> None:
    async with shop(Limits(seconds=600.0, bytes=100)) as desk:
        line = await desk.connect(b"x" * 101)
        assert await line.is_closed()
        await desk.until(ReportCounts(connections=1, refused=1))


async def test_a_key_reports_for_its_own_allocation_only(desk: Desk) -> None:
    line = await desk.connect(key("w.replica.1.1.u1"))
    await line.say(text(1) + text(2, "w.replica.1.1.u1") + text(3, "w.replica.1.2.u1"))
    await desk.until(ReportCounts(connections=1, reports=1, foreign=2))
    assert desk.taken == [report(2, "w.replica.1.1.u1")]


async def test_a_node_that_comes_back_takes_the_place_of_its_old_line(desk: Desk) -> None:
    before = await desk.connect(key() + text(1))
    await desk.until(ReportCounts(connections=1, reports=1))
    after = await desk.connect(key() + text(2))
    assert await before.is_closed()
    await after.say(text(3))
    await desk.until(ReportCounts(connections=2, reports=3))


async def test_lines_with_a_key_are_so_many(caplog: pytest.LogCaptureFixture) -> None:
    async with shop(PATIENT, most=2) as desk:
        lines = []
        for number in range(3):
            token = f"w.replica.{number}.1.u1"
            lines.append(await desk.connect(key(token) + text(1, token)))
            taken = min(2, number + 1)  # one after the other
            await desk.until(ReportCounts(connections=number + 1, reports=taken, refused=number + 1 - taken))
        assert [await line.is_closed() for line in lines[2:]] == [True]
        assert "by files only" in caplog.text
        lines[0].writer.close()
        async with asyncio.timeout(60):
            while len(desk.taken) < 3:  # until the server has seen that end
                await desk.connect(key("w.replica.7.1.u1") + text(1, "w.replica.7.1.u1"))
                await asyncio.sleep(0.01)


async def test_without_descriptors_the_listener_waits_and_all_else_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "PAUSE_S", 0.05)
    line = await desk.connect(key() + text(1))
    await desk.until(ReportCounts(connections=1, reports=1))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # nothing that other tests left gives a descriptor back meanwhile
    with socket.socket() as node:
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            node.connect(("127.0.0.1", desk.port))
            node.sendall(key("w.replica.1.1.u1") + text(1, "w.replica.1.1.u1"))
            async with asyncio.timeout(60):
                while "Too many open files" not in caplog.text:
                    await asyncio.sleep(0.001)
            await line.say(text(2))
            await desk.until(ReportCounts(connections=1, reports=2))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await desk.until(ReportCounts(connections=2, reports=3))


def test_the_rest_of_the_host_keeps_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, soft), hard))
        assert reports.most_lines() == min(1024, soft) - reports.LIMITS.number - reports.RESERVE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_one_that_never_ends_its_talk_keeps_nobody_waiting(desk: Desk) -> None:
    talker = await desk.connect()
    stop = asyncio.Event()

    async def talk() -> None:
        with contextlib.suppress(ConnectionError):
            while not stop.is_set():
                await talker.say(text(1) * 1000)

    talking = asyncio.create_task(talk())
    other = await desk.connect(key("w.replica.1.1.u1"))
    await other.say(text(7, "w.replica.1.1.u1"))
    async with asyncio.timeout(60):
        while report(7, "w.replica.1.1.u1") not in desk.taken:
            await asyncio.sleep(0.001)
    stop.set()
    talker.writer.transport.abort()
    await talking


async def test_the_last_words_of_one_that_hangs_up_in_the_middle(desk: Desk) -> None:
    line = await desk.connect()
    await line.say(text(1) + text(2)[:-30])
    line.writer.close()
    await desk.until(ReportCounts(connections=1, reports=1, malformed=1))


async def test_a_stop_closes_all_connections(desk: Desk) -> None:
    lines = [await desk.connect(key(f"w.replica.{n}.1.u1")) for n in range(2)] + [await desk.connect(b"")]
    await desk.until(ReportCounts(connections=3))
    async with asyncio.timeout(90):
        await desk.server.stop()
    assert [await line.is_closed() for line in lines] == [True, True, True]
    with socket.socket() as asks:
        asks.bind(("127.0.0.1", free_port()))  # one that the kernel chooses could be the very port, and meet itself
        with pytest.raises(ConnectionError):
            asks.connect(("127.0.0.1", desk.port))
