"""What a relay keeps, and for how long: bodies that wait, half heads of either side, clients that say no more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
from tests.component.serving.relaying import ScriptedRouter, Talk, get, on_both_loops, plain, post, relaying, until
from tests.component.serving.test_relay_crowd import HALF, Hands, flood
from tests.ports import free_port

from remuda.enter import words
from remuda.serving.relay import exchange
from remuda.serving.relay.admission import STRANGERS
from remuda.serving.relay.replay import Budget, Replay

MB = 1 << 20
BODY = 3 * MB
READ = 300 << 10
"""More than is read of a connection at once."""


def rss() -> int:
    """Memory of this process that is resident, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def send(talk: Talk, size: int, path: str = "/v1/completions") -> None:
    """A request with a body of that size; whoever sends it waits for the relay to take it."""
    await talk.say(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        talk.writer.write(b"x" * size)
        await talk.writer.drain()


async def final(talk: Talk) -> tuple[str, bytes]:
    """The next answer: whoever has ended its side may hear before it that it is waited for, if only by chance."""
    while " 100 " in (message := await talk.message())[0]:
        pass
    return message


@on_both_loops
async def test_one_budget_for_all_bodies_that_wait(tmp_path: Path) -> None:
    """What is more than that waits with its client; all of it is passed on when a router is there."""
    number, limit = 12, 10 * MB
    async with relaying(tmp_path) as bench:
        budget = bench.relay._budget
        assert budget.limit == 256 * MB
        budget.limit = limit
        talks = [await bench.client() for _ in range(number)]
        sending = [asyncio.create_task(send(talk, BODY)) for talk in talks]
        await until(lambda: bench.counters.in_flight == number and budget.used > limit - READ)
        most, router = 0, plain("a")
        for _ in range(20):
            await asyncio.sleep(0.01)
            most = max(most, budget.used)
        assert most <= limit + number * READ
        await bench.front(router)
        for talk in talks:
            assert (await talk.message())[1] == b"a"
        assert [len(body) for _, body in router.requests] == [BODY] * number
        await asyncio.gather(*sending)
        assert budget.used == 0


@on_both_loops
async def test_what_is_not_kept_is_not_sent_again(tmp_path: Path) -> None:
    """It is passed on all the same; within the budget a lost router's request goes to the next one."""
    heard: list[int] = []

    async def lose(talk: Talk) -> None:
        head = await talk.head()
        heard.append(len(await talk.body(head)))

    async with relaying(tmp_path) as bench:
        bench.relay._budget.limit = 2 * MB
        await bench.front(ScriptedRouter(lose))
        small, large = await bench.client(), await bench.client()
        await send(large, BODY)
        assert (await large.message())[0].startswith("HTTP/1.1 502 ")
        assert heard == [BODY]
        await send(small, MB)
        assert (await small.message())[0].startswith("HTTP/1.1 502 ")
        assert heard == [BODY, *[MB] * exchange.SENDS]
        assert bench.relay._budget.used == 0


@on_both_loops
async def test_memory_of_bodies_that_waited_is_given_back(tmp_path: Path) -> None:
    """40 bodies of 3 MB, in a relay of its own process."""
    router = plain("a")
    await router.start()
    file, port = tmp_path / "router.json", free_port()
    argv = (sys.executable, *words("relay"), "--port", str(port), "--file", str(file), "--hold-s", "600")
    process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.DEVNULL)

    def resident() -> int:
        return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    try:
        talks = [await connect(port, process) for _ in range(40)]
        before = resident()
        sending = [asyncio.create_task(send(talk, BODY)) for talk in talks]
        await until(lambda: resident() > before + 100 * MB)
        item = {"url": router.url, "id": "1"}
        file.write_text(json.dumps({"router": item, "alive": [item]}))
        for talk in talks:
            assert (await talk.message())[1] == b"a"
        await asyncio.gather(*sending)
        await until(lambda: resident() < before + 30 * MB)
        for talk in talks:
            talk.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        router.leave()


async def connect(port: int, process: asyncio.subprocess.Process) -> Talk:
    async with asyncio.timeout(120):
        while True:
            try:
                return Talk(*await asyncio.open_connection("127.0.0.1", port))
            except OSError:
                assert process.returncode is None, "the relay has ended"
                await asyncio.sleep(0.02)


def test_a_budget_is_kept_to() -> None:
    budget = Budget(10_000)
    first, second = Replay(budget), Replay(budget)
    first.add(b"x" * 6000, must=False)
    second.add(b"y" * 6000, must=False)
    assert (first.is_gone, second.is_gone, second.pieces) == (False, True, [])
    third = Replay(budget)
    third.add(b"z" * 6000, must=True)
    assert third.is_full
    assert budget.used > budget.limit
    third.sent()
    assert third.is_gone
    first.sent()
    assert first.pieces == [b"x" * 6000]
    first.drop()
    assert budget.used == 0


@on_both_loops
@pytest.mark.parametrize(
    ("text", "status"),
    [
        (get(path="/-/relay/health"), 200),
        (get(path="/-/relay/stats"), 200),
        (get(path="/-/relay/other"), 404),
        (get("Content-Length: a"), 400),
        (get("Host: other"), 400),
        (get("A: " + "x" * 70_000), 431),
        (get("Transfer-Encoding: gzip"), 501),
        (get(), 503),
    ],
)
async def test_no_answer_to_head_has_a_body(tmp_path: Path, text: str, status: int) -> None:
    async with relaying(tmp_path, hold_s=0.2) as bench:
        talk = await bench.client()
        await talk.say(text.replace("GET", "HEAD").replace("HTTP/1.1\r\n", "HTTP/1.1\r\nConnection: close\r\n"))
        head = await talk.head()
        assert head.startswith(f"HTTP/1.1 {status} ")
        assert "Content-Length: 0" not in head, "that of the body it would have had"
        assert await talk.rest() == b""


@on_both_loops
async def test_half_a_head_of_a_router_has_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says nothing may think for hours; whoever has begun says all of it."""
    monkeypatch.setattr(exchange, "HEAD_S", 0.3)
    go_on = asyncio.Event()

    async def handle(talk: Talk) -> None:
        head = await talk.head()
        if "/half" in head:
            await talk.say("HTTP/1.1 200 OK\r\nContent-")
            await talk.rest()
        elif "/early" in head:
            await talk.say("HTTP/1.1 103 Early Hints\r\n\r\n")
        await go_on.wait()
        await talk.answer("late")

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        slow, early = await bench.client(), await bench.client()
        await slow.say(get())
        await early.say(get(path="/early"))
        head, body = await bench.ask(get(path="/half"))
        assert head.startswith("HTTP/1.1 502 ")
        assert "was not whole after 0.3 s" in json.loads(body)["error"]["message"]
        assert bench.counters.in_flight == 2
        go_on.set()
        assert (await slow.message())[1] == b"late"
        assert (await early.message())[1] == b"late"
        assert bench.counters.failed == 1


@on_both_loops
@pytest.mark.parametrize("path", ["/v1/slow", "/v1/fast"])
async def test_a_client_that_has_ended_its_side_gets_its_answer(tmp_path: Path, path: str) -> None:
    """And then the end; one that takes long hears first that it is still waited for."""
    go_on = asyncio.Event()

    async def handle(talk: Talk) -> None:
        while await talk.head():
            if path == "/v1/slow":
                await go_on.wait()
            await talk.answer("a")

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(post(path=path))
        await talk.end()
        if path == "/v1/slow":
            assert await talk.head() == "HTTP/1.1 100 Continue\r\n\r\n"
            go_on.set()
        assert (await final(talk))[1] == b"a"
        assert await talk.rest() == b""
        await until(lambda: not bench.relay.room.clients)
        assert bench.counters.failed == 0


@on_both_loops
async def test_a_client_that_has_ended_its_side_is_held_and_sent_again(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        talk = await bench.client()
        await talk.say(post("x" * 100))
        await talk.end()
        await until(lambda: bench.counters.held == 1)
        router = await bench.front(plain("a"))
        assert (await final(talk))[1] == b"a"
        assert router.requests[0][1] == b"x" * 100


@on_both_loops
async def test_who_ends_amid_a_request_is_gone(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        await bench.front(plain("a"))
        for text in ("", HALF, "POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx"):
            talk = await bench.client()
            await talk.say(text)
            await talk.end()
            with contextlib.suppress(ConnectionError):
                assert await talk.rest() == b""
        await until(lambda: not bench.relay.room.clients)
        assert bench.counters.in_flight == 0


@on_both_loops
async def test_who_leaves_while_nothing_is_said_is_noticed(tmp_path: Path) -> None:
    """Closing both sides looks like closing one, until something is sent there."""
    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(never))
        for text in (post(), 2 * post()):
            talk = await bench.client()
            await talk.say(text)
            await until(lambda: bench.counters.in_flight == 1)
            talk.close()
            await until(lambda: not bench.relay.room.clients)
            assert bench.counters.in_flight == 0


async def never(talk: Talk) -> None:
    """A router that takes a request and does not answer."""
    await talk.message()
    await talk.rest()


@on_both_loops
async def test_who_leaves_more_behind_a_request_leaves_nothing_under_way(tmp_path: Path) -> None:
    """50 clients that each send one request and 90 KB more, and go."""
    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(never))
        talks = [await bench.client() for _ in range(50)]
        for talk in talks:
            await talk.say(post() + get() * (90_000 // len(get())))
        await until(lambda: bench.counters.in_flight == 50)
        assert not any(client._reader.events for client in bench.relay.room.clients)
        for talk in talks:
            talk.close()
        await until(lambda: not bench.relay.room.clients)
        await until(lambda: not bench.relay.pool.size)
        assert (bench.counters.requests, bench.counters.in_flight) == (50, 0)


@on_both_loops
async def test_a_thousand_half_heads(tmp_path: Path) -> None:
    """They stop nobody, and go when their time is over; little of them is kept."""
    async with relaying(tmp_path) as bench:
        clock = Hands(bench)
        router = await bench.front(plain("a"))
        before = rss()
        idle = await flood(bench, 1000, HALF)
        talk = await bench.client()
        for _ in range(20):
            await talk.say(post())
            assert (await talk.message())[1] == b"a"
        assert rss() < before + 200 * MB, "both sides of all these connections are in this process"
        assert len(router.requests) == 20
        assert len(bench.relay.room.clients) == 1001
        clock.go(bench, STRANGERS.seconds)
        await until(lambda: len(bench.relay.room.clients) == 1)
        assert (await bench.ask(get()))[1] == b"a"
        for one in idle:
            one.cut()


@on_both_loops
async def test_a_body_of_500_mb(tmp_path: Path) -> None:
    """Up and down at once, in blocks that the relay has no room for: all of it comes, nothing of it stays."""
    size, block = 500 * MB, bytes(range(256)) * 4096

    async def echo(talk: Talk) -> None:
        await talk.head()
        await talk.say(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")
        left = size
        while left:
            data = await talk.reader.read(MB)
            await talk.say(data)
            left -= len(data)

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(echo))
        talk = await bench.client()
        before = rss()
        await talk.say(f"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n")

        async def send_all() -> None:
            for _ in range(size // len(block)):
                talk.writer.write(block)
                await talk.writer.drain()

        sending = asyncio.create_task(send_all())
        assert f"Content-Length: {size}" in await talk.head()
        matches, most = True, 0
        for _ in range(size // len(block)):
            matches &= await talk.reader.readexactly(len(block)) == block
            most = max(most, rss())
        await sending
        assert matches
        assert most < before + 64 * MB
        assert bench.relay._budget.used == 0


@on_both_loops
async def test_no_request_is_lost_while_the_router_moves_under_kept_connections(tmp_path: Path) -> None:
    """12 clients that go on asking on their connections; the one before ends what it has begun, or is gone at once."""
    async with relaying(tmp_path) as bench:
        old = await bench.front(plain("0", wait_s=0.002))
        stop, asked, answered = asyncio.Event(), [0], [0]

        async def keep_asking(number: int) -> None:
            talk = await bench.client()
            while not stop.is_set():
                asked[0] += 1
                await talk.say(post(str(number)))
                head, _ = await talk.message()
                answered[0] += head.startswith("HTTP/1.1 200 ")
            talk.close()

        clients = [asyncio.create_task(keep_asking(number)) for number in range(12)]
        for number in range(1, 13):
            before = answered[0]
            await until(lambda: answered[0] > before + 60)  # noqa: B023 - called before the next turn
            new = await bench.start(plain(str(number), wait_s=0.002))
            if number % 3:
                bench.name(new, old)
                await bench.until_current(new)
                old.stop()
            else:
                old.stop()
                bench.name(new)
            old = new
        await until(lambda: len(old.requests) > 60)
        stop.set()
        await asyncio.gather(*clients)
        assert answered == asked
        assert bench.counters.failed == 0
