"""The routes of the stream, asked without a network."""

from __future__ import annotations

import asyncio
import itertools
import socket
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from tests.unit.host.test_feed import Bed

from remuda.base.errors import InputError
from remuda.host import feed as feeds
from remuda.host import server
from remuda.host.stream_api import _topics, add_stream

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Message


class Caller:
    """One connection; `deaf` lets the first piece pass and no other."""

    def __init__(self, bed: Bed, *, deaf: bool = False) -> None:
        self.app = FastAPI()
        add_stream(self.app.router, bed.feed)
        self.deaf = deaf
        self.status = 0
        self.headers: dict[str, str] = {}
        self.got = b""
        self.news = asyncio.Event()
        self.gone = asyncio.Event()

    def ask(self, path: str, query: str = "", **headers: str) -> asyncio.Task[None]:
        lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": lines,
                 "http_version": "1.1", "scheme": "http"}  # fmt: skip
        return asyncio.create_task(self.app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif self.deaf and self.got:
            await asyncio.Event().wait()
        else:
            self.got += message["body"]
            self.news.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(10):
            while text not in self.got:
                self.news.clear()
                await self.news.wait()


async def test_a_stream_as_browsers_read_it() -> None:
    bed = Bed()
    caller = Caller(bed)
    asked = caller.ask("/stream", "topics=board,events")
    await caller.until(b"snapshot")
    bed.put("w/a", "running")
    await caller.until(b"running")
    caller.gone.set()
    await asked
    assert not bed.feed.viewers
    assert caller.headers["content-type"].startswith("text/event-stream")
    assert (caller.headers["cache-control"], caller.headers["x-accel-buffering"]) == ("no-cache, no-transform", "no")
    epoch = bed.feed.epoch
    assert caller.got.decode().split("\n\n") == [
        "retry: 2000",
        f'id: {epoch}.0\nevent: snapshot\ndata: {{"at":100.0,"schema":1,"rows":{{"h":{{"head":""}}}}}}',
        f'id: {epoch}.1\nevent: delta\ndata: {{"at":100.0,"rows":{{"w/a":{{"name":"w/a","state":"running"}}}}}}',
        "",
    ]


async def test_it_goes_on_behind_the_id_that_a_browser_sends() -> None:
    bed = Bed()
    bed.put("w/a", "pending")
    bed.put("w/a", "running")
    caller = Caller(bed)
    asked = caller.ask("/stream", last_event_id=f"{bed.feed.epoch}.1")
    await caller.until(b"running")
    caller.gone.set()
    await asked
    assert b"pending" not in caller.got


async def test_who_does_not_read_is_cut_off() -> None:
    bed = Bed()
    caller = Caller(bed, deaf=True)
    asked = caller.ask("/stream")
    await caller.until(b"retry")
    await asyncio.sleep(0)
    for number in range(feeds.QUEUE + 3):
        bed.put("w/a", str(number))
        await asyncio.sleep(0)
    async with asyncio.timeout(10):
        with suppress(asyncio.CancelledError):
            await asked
    assert not bed.feed.viewers


async def test_a_real_connection_that_is_not_read_ends(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bed, path = Bed(), str(tmp_path / "s")
    made: Any = SimpleNamespace(make=lambda: Caller(bed).app)
    serving = server._server(made)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as deaf:
        listener.bind(path)
        listener.listen()
        served = asyncio.create_task(serving.serve(sockets=[listener]))
        deaf.connect(path)
        deaf.sendall(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(20):
            while not bed.feed.viewers:
                await asyncio.sleep(0.01)
            for number in itertools.count():
                if not bed.feed.viewers:
                    break
                bed.put("w/a", f"{number} " * 10_000)
                await asyncio.sleep(0)
            deaf.setblocking(False)
            while await asyncio.get_running_loop().sock_recv(deaf, 1 << 16):
                pass
        serving.end()
        await served
    assert number < feeds.QUEUE + 40, "it was told for as long as the kernel took it"
    assert [record for record in caplog.records if record.levelname == "ERROR" and server._is_fault(record)] == []


async def test_a_long_poll() -> None:
    bed = Bed()
    caller = Caller(bed)
    await caller.ask("/board")
    assert (caller.status, caller.headers["content-type"]) == (200, "application/json")
    assert caller.got == (
        b'{"frames":[{"id":"%s.0","event":"snapshot","data":{"at":100.0,"schema":1,"rows":{"h":{"head":""}}}}]}'
        % bed.feed.epoch.encode()
    )
    again = Caller(bed)
    asked = again.ask("/board", f"since={bed.feed.epoch}.0&wait=60")
    await asyncio.sleep(0.01)
    bed.put("w/a", "running")
    await asked
    assert b'"event":"delta"' in again.got
    assert b"snapshot" not in again.got


@pytest.mark.parametrize("words", ["bord", "", "board,"])
def test_topics_that_there_are_not(words: str) -> None:
    with pytest.raises(InputError, match=r"there is no topic '(bord)?'") as caught:
        _topics(words)
    assert caught.value.hint == "topics are board and events"


def test_topics() -> None:
    found: Any = _topics("events,board")
    assert found == ["events", "board"]
