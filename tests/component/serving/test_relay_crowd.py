"""Connections that ask nothing: they take no descriptor from those that do."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.relaying import (
    Bench,
    ScriptedRouter,
    Talk,
    get,
    on_both_loops,
    plain,
    post,
    relaying,
    until,
)

from remuda.serving.relay.admission import REST_S, STRANGERS, TELL_S
from remuda.serving.relay.descriptors import FOR_COMERS, FOR_LOOKS, RESERVE
from remuda.wire.gate import PAUSE_S

if TYPE_CHECKING:
    from pathlib import Path

FEW = 128
MOST = FEW - RESERVE
HALF = "GET /v1/models HTTP/1.1\r\nHost: h\r\nX: "
STREAM = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"


class Streaming:
    """A router whose answers begin at once and end when they are told to."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.router = ScriptedRouter(self._handle)

    async def _handle(self, talk: Talk) -> None:
        while head := await talk.head():
            if head.startswith("GET"):
                await talk.answer("look")
                continue
            await talk.say(STREAM)
            await self.end.wait()
            await talk.say("0\r\n\r\n")


class Hands:
    """A clock that goes when it is told to."""

    def __init__(self, bench: Bench) -> None:
        self.now = 1000.0
        bench.relay.room._clock = lambda: self.now

    def go(self, bench: Bench, seconds: float) -> None:
        self.now += seconds
        bench.relay.room.sweep()


def is_closed(talk: Talk) -> bool:
    return talk.reader.at_eof() or talk.reader.exception() is not None


async def flood(bench: Bench, count: int, text: str = "") -> list[Talk]:
    """So many connections that ask nothing; each has been taken in when this returns."""
    talks = []
    for _ in range(count):
        talks.append(await bench.client())
        if text:
            await talks[-1].say(text)
    last = talks[-1].writer.get_extra_info("sockname")[1]
    await until(
        lambda: any(
            client._transport is not None and client._transport.get_extra_info("peername")[1] == last
            for client in bench.relay.room.clients
        )
    )
    return talks


async def begin_stream(bench: Bench) -> Talk:
    talk = await bench.client()
    await talk.say(post())
    assert "chunked" in await talk.head()
    assert await talk.reader.readexactly(6) == b"1\r\na\r\n"
    return talk


@pytest.mark.parametrize("text", ["", HALF], ids=["silent", "half a head"])
@on_both_loops
async def test_idle_strangers_make_room_for_all_who_ask(tmp_path: Path, text: str) -> None:
    async with relaying(tmp_path, room=FEW) as bench:
        streaming = Streaming()
        Hands(bench)  # nobody goes because its time is over
        await bench.front(streaming.router)
        stream = await begin_stream(bench)
        idle = await flood(bench, 300, text)
        assert len(bench.relay.room.clients) + 1 <= MOST - FOR_COMERS
        assert (await bench.ask(get()))[1] == b"look"
        more = [await begin_stream(bench) for _ in range(8)]
        closed: list[bool] = []

        def oldest_are_gone() -> bool:  # each connection hears of its end in its own time
            closed[:] = map(is_closed, idle)
            return sum(closed) >= 300 - MOST and closed == sorted(closed, reverse=True)

        await until(oldest_are_gone)
        streaming.end.set()
        for talk in (stream, *more):
            assert await talk.reader.readexactly(5) == b"0\r\n\r\n"
        assert bench.counters.failed == 0


@on_both_loops
async def test_who_has_asked_stays_longer_than_strangers(tmp_path: Path) -> None:
    async with relaying(tmp_path, room=FEW) as bench:
        await bench.front(plain("a"))
        users = [await bench.client() for _ in range(8)]
        for user in users:
            await user.say(get())
            await user.message()
        await flood(bench, 300)
        for user in users:
            await user.say(get())
            assert (await user.message())[1] == b"a"
        # Without strangers, those go that were idle longest.
        more = []
        for _ in range(MOST):
            more.append(await bench.client())
            await more[-1].say(get())
            await more[-1].message()
        await until(lambda: all(map(is_closed, users)))
        assert not is_closed(more[-1])


@on_both_loops
async def test_its_own_paths_make_nobody_known(tmp_path: Path) -> None:
    async with relaying(tmp_path, room=FEW) as bench:
        await bench.front(plain("a"))
        user = await bench.client()
        await user.say(get())
        await user.message()
        for _ in range(100):
            talk = await bench.client()
            await talk.say(get(path="/-/relay/health"))
            await talk.message()
        await user.say(get())
        assert (await user.message())[1] == b"a"


@on_both_loops
async def test_where_all_are_busy_one_more_is_told_so_and_looks_go_on(tmp_path: Path) -> None:
    async with relaying(tmp_path, room=FEW) as bench:
        streaming = Streaming()
        await bench.front(streaming.router)
        streams = [await begin_stream(bench) for _ in range((MOST - FOR_LOOKS) // 2)]
        for _ in range(40):
            head, body = await bench.ask(post())
            assert head.startswith("HTTP/1.1 503 ")
            assert "Retry-After" in head
            assert b"limit of open files" in body
            assert (await bench.ask(get()))[1] == b"look"
        streaming.end.set()
        for stream in streams:
            assert await stream.reader.readexactly(5) == b"0\r\n\r\n"
            stream.close()
        await until(lambda: len(bench.relay.room.clients) == 0)
        assert (await bench.ask(post()))[0].startswith("HTTP/1.1 200 ")


@on_both_loops
async def test_what_is_waited_for_has_its_time_and_streams_have_all_of_it(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        clock, streaming = Hands(bench), Streaming()
        await bench.front(streaming.router)
        stream, user, early = await begin_stream(bench), await bench.client(), await bench.client()
        await early.say("POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
        assert "200 OK" in await early.head()  # its answer has begun, the rest of it may take its time
        await user.say(get())
        await user.message()
        [silent] = await flood(bench, 1)
        [half] = await flood(bench, 1, HALF)
        clock.go(bench, STRANGERS.seconds - 1)
        assert len(bench.relay.room.clients) == 5
        clock.go(bench, 1)
        await until(lambda: is_closed(silent) and is_closed(half))
        assert len(bench.relay.room.clients) == 3
        clock.go(bench, REST_S - STRANGERS.seconds)
        await until(lambda: is_closed(user))
        clock.go(bench, 86_400)
        assert len(bench.relay.room.clients) == 2
        streaming.end.set()
        assert await stream.reader.readexactly(5) == b"0\r\n\r\n"
        await early.say("x" * 8)
        assert await early.reader.readexactly(11) == b"1\r\na\r\n0\r\n\r\n"


@on_both_loops
async def test_a_body_that_stops_coming_and_a_second_head_have_their_time(tmp_path: Path) -> None:
    async def patient(talk: Talk) -> None:
        while head := await talk.head():
            await talk.body(head)
            await talk.answer("ok")

    async with relaying(tmp_path) as bench:
        clock = Hands(bench)
        await bench.front(ScriptedRouter(patient))
        body, second = await bench.client(), await bench.client()
        await body.say("POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
        await until(lambda: bench.counters.in_flight == 1)
        await second.say(get())
        await second.message()
        clock.go(bench, TELL_S)
        await until(lambda: is_closed(body))
        assert bench.counters.in_flight == 0
        clock.go(bench, REST_S - TELL_S - 1)
        await say_half(bench, second)  # after so long at rest it has time for all of it
        clock.go(bench, TELL_S - 1)
        await second.say("x\r\n\r\n")
        assert (await second.message())[1] == b"ok"
        await say_half(bench, second)
        clock.go(bench, TELL_S)
        await until(lambda: is_closed(second))


async def say_half(bench: Bench, talk: Talk) -> None:
    await talk.say(HALF)
    await until(lambda: any(client.owes for client in bench.relay.room.clients))


@on_both_loops
async def test_a_body_that_the_router_does_not_take_is_waited_for(tmp_path: Path) -> None:
    """It is we who read no more of it."""
    go_on = asyncio.Event()

    async def slow(talk: Talk) -> None:
        head = await talk.head()
        await go_on.wait()
        await talk.body(head)
        await talk.answer("ok")

    async with relaying(tmp_path) as bench:
        clock = Hands(bench)
        await bench.front(ScriptedRouter(slow))
        talk, size = await bench.client(), 64 << 20
        head = f"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n"
        sending = asyncio.create_task(talk.say(head.encode() + bytes(size)))
        await until(lambda: any(client._is_held for client in bench.relay.room.clients))
        clock.go(bench, TELL_S * 2)
        go_on.set()
        await sending
        assert (await talk.message())[1] == b"ok"


@on_both_loops
async def test_who_asks_and_never_reads_makes_nothing_grow(tmp_path: Path) -> None:
    """Until an answer waits to be read; then the next request is not, and the answers are the last."""

    def kept() -> int:
        return sum(
            client._transport.get_write_buffer_size() for client in bench.relay.room.clients if client._transport
        )

    async with relaying(tmp_path) as bench:
        await bench.front(plain("x" * 100_000))
        talk, asked = await bench.client(), 0
        talk.reader._transport.pause_reading()  # type: ignore[attr-defined]
        while not any(client._is_full for client in bench.relay.room.clients):
            await talk.say(get())
            asked += 1
            await until(lambda: bench.counters.requests == asked and (not bench.counters.in_flight or kept()))  # noqa: B023
        for _ in range(3):
            await talk.say(get() * 1000)
            assert kept() < 1 << 20
        talk.reader._transport.resume_reading()  # type: ignore[attr-defined]
        assert (await talk.rest()).count(b"HTTP/1.1 200") == asked
        assert bench.counters.requests == asked


@on_both_loops
async def test_without_descriptors_nothing_ends(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with relaying(tmp_path) as bench:
        await bench.front(plain("a"))
        user = await bench.client()
        await user.say(get())
        await user.message()
        with socket.socket() as late:
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                late.connect(("127.0.0.1", bench.port))
                late.setblocking(False)
                await asyncio.sleep(0.1)
                await user.say(get())
                assert (await user.message())[1] == b"a"
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            async with asyncio.timeout(60 + PAUSE_S):
                await asyncio.get_running_loop().sock_sendall(late, get().encode())
                assert b"200 OK" in await asyncio.get_running_loop().sock_recv(late, 1000)
    assert errors == []
