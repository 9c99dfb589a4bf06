"""HTTP through the relay: each way in which a message may end, and what is wrong about some."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.relaying import ScriptedRouter, Talk, get, on_both_loops, plain, post, relaying, until

from remuda.serving.relay.http_framing import HEAD_LIMIT

if TYPE_CHECKING:
    from pathlib import Path


@on_both_loops
async def test_many_requests_on_one_connection(tmp_path: Path) -> None:
    """Both connections are kept; what the headers of one hop say stays there."""
    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        talk = await bench.client()
        for body in ("one", "two"):
            await talk.say(post(body, "Authorization: Bearer key", "Connection: keep-alive", "Keep-Alive: 5"))
            head, answer = await talk.message()
            assert head.startswith("HTTP/1.1 200 OK\r\n")
            assert answer == b"a"
        assert router.connections == 1
        assert [body for _, body in router.requests] == [b"one", b"two"]
        sent = router.requests[0][0]
        assert "Authorization: Bearer key\r\n" in sent
        assert "keep-alive" not in sent.lower()
        assert bench.counters.requests == 2
        assert bench.counters.in_flight == 0
        assert bench.counters.asked_at > 0
        talk.close()


@on_both_loops
async def test_of_requests_that_do_not_wait_the_first_is_answered(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        talk = await bench.client()
        await talk.say("\r\n" + "".join(post(str(number)) for number in range(20)) + get())
        head, body = await talk.message()
        assert ("Connection: close" in head, body) == (True, b"a")
        assert await talk.rest() == b""
        assert [body for _, body in router.requests] == [b"0"]


@on_both_loops
async def test_a_body_in_chunks_and_an_answer_in_chunks(tmp_path: Path) -> None:
    async def handle(talk: Talk) -> None:
        while head := await talk.head():
            body = await talk.body(head)
            await talk.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for byte in body:
                await talk.say(b"1\r\n%c\r\n" % byte)
            await talk.say("0\r\nSum: 1\r\n\r\n")

    async with relaying(tmp_path) as bench:
        router = await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        for _ in range(2):
            await talk.say("POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            await asyncio.sleep(0.02)
            await talk.say("2;x=y\r\nde\r\n0\r\n\r\n")
            head = await talk.head()
            assert "Transfer-Encoding: chunked\r\n" in head
            assert (await talk.reader.readuntil(b"0\r\nSum: 1\r\n\r\n")).count(b"\r\n") == 13
        assert router.connections == 1
        talk.close()


@on_both_loops
async def test_an_event_comes_when_it_is_sent(tmp_path: Path) -> None:
    """Nothing is held back until more is there."""
    go_on = asyncio.Event()

    async def handle(talk: Talk) -> None:
        await talk.message()
        await talk.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await talk.say("9\r\ndata: a\n\n\r\n")
        await go_on.wait()
        await talk.say("9\r\ndata: b\n\n\r\n0\r\n\r\n")

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(post())
        assert "text/event-stream" in await talk.head()
        assert await talk.reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: a\n\n\r\n"
        go_on.set()
        assert await talk.reader.readuntil(b"0\r\n\r\n") == b"9\r\ndata: b\n\n\r\n0\r\n\r\n"
        talk.close()


@on_both_loops
@pytest.mark.parametrize(
    ("request_", "answer", "expected"),
    [
        pytest.param(get().replace("GET", "HEAD"), "200 OK\r\nContent-Length: 99", "Content-Length: 99", id="HEAD"),
        pytest.param(get(), "204 No Content", "HTTP/1.1 204 No Content\r\n", id="204"),
        pytest.param(get(), "304 Not Modified\r\nContent-Length: 5", "HTTP/1.1 304", id="304"),
        pytest.param(get(), "103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0", "HTTP/1.1 200", id="103"),
    ],
)
async def test_answers_without_a_body(tmp_path: Path, request_: str, answer: str, expected: str) -> None:
    async def handle(talk: Talk) -> None:
        while await talk.head():
            await talk.say(f"HTTP/1.1 {answer}\r\n\r\n")

    async with relaying(tmp_path) as bench:
        router = await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        for _ in range(2):
            await talk.say(request_)
            assert expected in await talk.head()
        assert router.connections == 1, "the connection goes on"
        talk.close()


@on_both_loops
async def test_an_answer_that_ends_with_its_connection(tmp_path: Path) -> None:
    async def handle(talk: Talk) -> None:
        await talk.message()
        await talk.say("HTTP/1.1 200 OK\r\n\r\nall of it")

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(get())
        assert "Connection: close\r\n" in await talk.head()
        assert await talk.rest() == b"all of it"
        assert bench.counters.failed == 0
        talk.close()


@on_both_loops
async def test_a_client_that_waits_before_its_body_is_told_to_go_on(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        talk = await bench.client()
        await talk.say(post("12345", "Expect: 100-continue").removesuffix("12345"))
        assert await talk.head() == "HTTP/1.1 100 Continue\r\n\r\n"
        await talk.say("12345")
        assert (await talk.message())[1] == b"a"
        assert router.requests[0][1] == b"12345"
        assert "expect" not in router.requests[0][0].lower()
        talk.close()


@on_both_loops
async def test_clients_of_the_older_version(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        talk = await bench.client()
        await talk.say(get(version="1.0"))
        head, body = await talk.message()
        assert "Connection: close" in head
        assert body == b"a"
        assert await talk.rest() == b""
        talk.close()
        again = await bench.client()
        for _ in range(2):
            await again.say(get("Connection: keep-alive", version="1.0"))
            head, body = await again.message()
            assert "Connection: keep-alive" in head
            assert body == b"a"
        assert router.requests[0][0].startswith("GET /v1/models HTTP/1.0\r\n")
        again.close()


@on_both_loops
async def test_nobody_changes_the_protocol(tmp_path: Path) -> None:
    """The wish is not passed on; a router that grants it all the same is not believed."""

    async def handle(talk: Talk) -> None:
        await talk.message()
        await talk.say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")

    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        head, body = await bench.ask(get("Connection: Upgrade", "Upgrade: websocket"))
        assert head.startswith("HTTP/1.1 200")
        assert body == b"a"
        assert "pgrade" not in router.requests[0][0]
        await bench.front(ScriptedRouter(handle))
        head, body = await bench.ask(get())
        assert head.startswith("HTTP/1.1 502 ")
        assert json.loads(body)["error"]["message"].endswith("it changes the protocol unasked")


@on_both_loops
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("hello\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        (get("A : b"), 400),
        (get("Content-Length: 1", "Transfer-Encoding: chunked"), 400),
        (get("Content-Length: 1", "Content-Length: 2"), 400),
        ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (get("A: " + "x" * HEAD_LIMIT), 431),
        ("GET /" + "x" * (HEAD_LIMIT + 1), 431),
        ("x" * (HEAD_LIMIT + 1), 400),
        (get("Transfer-Encoding: gzip"), 501),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ],
)
async def test_what_is_no_request(tmp_path: Path, text: str, status: int) -> None:
    """One sentence, and the end of the connection."""
    async with relaying(tmp_path) as bench:
        await bench.front(plain("a"))
        talk = await bench.client()
        await talk.say(text)
        head, body = await talk.message()
        assert head.startswith(f"HTTP/1.1 {status} ")
        error = json.loads(body)["error"]
        assert error["message"]
        assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")
        assert await talk.rest() == b""
        talk.close()


@on_both_loops
@pytest.mark.parametrize(
    "text",
    ["nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: a\r\n\r\n", "HTTP/1.1 200 OK\r\nA: " + "x" * 70_000],
    ids=["no status", "no length", "too long"],
)
async def test_what_is_no_answer(tmp_path: Path, text: str) -> None:
    async def handle(talk: Talk) -> None:
        await talk.message()
        await talk.say(text)
        await talk.rest()

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(post())
        head, body = await talk.message()
        assert head.startswith("HTTP/1.1 502 ")
        assert "cannot be read" in json.loads(body)["error"]["message"]
        assert bench.counters.failed == 1
        assert bench.counters.in_flight == 0
        talk.close()


@on_both_loops
async def test_an_answer_before_the_end_of_its_request(tmp_path: Path) -> None:
    """A refusal reaches a client that is still sending."""

    async def handle(talk: Talk) -> None:
        await talk.head()
        await talk.answer("too much", "Connection: close", status="413 Content Too Large")
        await talk.rest()

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say("POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\npart")
        head, body = await talk.message()
        assert head.startswith("HTTP/1.1 413 ")
        assert "Connection: close\r\n" in head
        assert body == b"too much"
        assert await talk.rest() == b""
        talk.close()


@on_both_loops
async def test_who_is_slow_is_waited_for_without_keeping_it_all(tmp_path: Path) -> None:
    """Large bodies both ways, read slowly: all of it arrives, and the relay keeps little of it."""
    size = 16 << 20
    block = bytes(range(256)) * 4096

    async def handle(talk: Talk) -> None:
        head = await talk.head()
        got = 0
        while got < size:
            got += len(await talk.reader.read(1 << 16))
        assert str(size) in head
        await talk.say(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")
        for _ in range(size // len(block)):
            await talk.say(block)

    def kept() -> int:
        return max(
            (u.transport.get_write_buffer_size() for u in bench.relay.pool._open if u.transport is not None), default=0
        )

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(f"POST /v1/x HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n")
        most = 0
        for _ in range(size // len(block)):
            await talk.say(block)
            most = max(most, kept())
        assert str(size) in await talk.head()
        await asyncio.sleep(0.2)
        total, matches = 0, True
        while total < size:
            data = await talk.reader.readexactly(len(block))
            matches &= data == block
            total += len(data)
            most = max(most, *(c._transport.get_write_buffer_size() for c in bench.relay.room.clients if c._transport))
        assert matches
        assert most < 8 << 20
        talk.close()


@on_both_loops
async def test_a_client_that_leaves_stops_its_request(tmp_path: Path) -> None:
    left = asyncio.Event()

    async def handle(talk: Talk) -> None:
        await talk.message()
        await talk.rest()
        left.set()

    async with relaying(tmp_path) as bench:
        await bench.front(ScriptedRouter(handle))
        talk = await bench.client()
        await talk.say(post())
        await until(lambda: bench.counters.in_flight == 1)
        talk.close()
        async with asyncio.timeout(120):
            await left.wait()
        await until(lambda: bench.counters.in_flight == 0)


@on_both_loops
async def test_its_own_paths(tmp_path: Path) -> None:
    async with relaying(tmp_path) as bench:
        router = await bench.front(plain("a"))
        talk = await bench.client()
        await talk.say(get(path="/-/relay/health"))
        assert (await talk.message())[0].startswith("HTTP/1.1 200 OK\r\n")
        await talk.say(get(path="/-/relay/stats?x=1"))
        stats = json.loads((await talk.message())[1])
        assert stats["router"] == router.url
        assert (stats["requests"], stats["in_flight"], stats["asked_at"]) == (0, 0, 0.0)
        await talk.say(get(path="/-/relay/other"))
        assert (await talk.message())[0].startswith("HTTP/1.1 404 ")
        await talk.say(post())
        await talk.message()
        await talk.say(get(path="/-/relay/stats"))
        assert json.loads((await talk.message())[1])["asked_at"] > 0
        assert router.connections == 1
        talk.close()
