"""A relay in the test's own event loop, routers that do what a test says, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import re
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import pytest
import uvloop

from remuda.serving.relay import connection, upstream
from remuda.serving.relay.program import FollowingRelay, open_listener

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Handler = Callable[["Talk"], Awaitable[None]]

LIMIT_S = 120.0
STALL_S = 8.0
"""So long this process may stand still in the middle of a goodbye."""
LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test with the loop that is used where it is installed, and with Python's own: their transports differ."""

    @functools.wraps(test)
    def run(*, loop_of: str, **arguments: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop_of]) as runner:
            runner.run(test(**arguments))  # type: ignore[arg-type]

    asked = inspect.signature(test)
    also = inspect.Parameter("loop_of", inspect.Parameter.KEYWORD_ONLY)
    del run.__wrapped__
    run.__signature__ = asked.replace(parameters=[*asked.parameters.values(), also])  # type: ignore[attr-defined]
    both: Callable[..., None] = pytest.mark.parametrize("loop_of", list(LOOPS))(run)
    return both


class Talk:
    """One connection: a router's side of it, or a client's."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> str:
        """Lines up to the empty one; empty at the end of the connection."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return (await self.reader.readuntil(b"\r\n\r\n")).decode()
            except (asyncio.IncompleteReadError, ConnectionError):
                return ""

    async def body(self, head: str) -> bytes:
        """The body of the message whose head that is."""
        async with asyncio.timeout(LIMIT_S):
            if found := re.search(r"(?i)\ncontent-length: (\d+)", head):
                return await self.reader.readexactly(int(found.group(1)))
            if "chunked" in head.lower():
                whole = b""
                while True:
                    size = int((await self.reader.readline()).partition(b";")[0], 16)
                    whole += (await self.reader.readexactly(size + 2))[:-2]
                    if not size:
                        return whole
        return b""

    async def message(self) -> tuple[str, bytes]:
        """Head and body of the next message."""
        head = await self.head()
        return head, await self.body(head)

    async def rest(self) -> bytes:
        """All that comes until the end of the connection; raises `ConnectionError` when it is broken off."""
        async with asyncio.timeout(LIMIT_S):
            return await self.reader.read()

    async def say(self, data: str | bytes) -> None:
        """Send."""
        self.writer.write(data.encode() if isinstance(data, str) else data)
        async with asyncio.timeout(LIMIT_S):
            await self.writer.drain()

    async def answer(self, body: str = "ok", *more: str, status: str = "200 OK") -> None:
        """Send a whole answer."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more]
        await self.say("\r\n".join(lines) + "\r\n\r\n" + body)

    async def end(self) -> None:
        """Close this side only."""
        await self.writer.drain()
        self.writer.write_eof()

    def close(self) -> None:
        """Close it."""
        self.writer.close()

    def cut(self) -> None:
        """Break it off."""
        with suppress(AttributeError):  # asyncio's own, of one that has closed itself after its last bytes
            self.writer.transport.abort()


class ScriptedRouter:
    """Listens, and lets `handler` have each connection; nobody else gets its port before it is stopped for good."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._keeper = socket.socket()
        self.port = 0
        self.connections = 0
        self.requests: list[tuple[str, bytes]] = []
        self._server: asyncio.Server | None = None
        self._talks: list[Talk] = []

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; again at the same port."""
        if not self.port:
            # Bound and no listener: who connects is refused, and no connection gets the port as its own end.
            self._keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._keeper.bind(("127.0.0.1", 0))
            self.port = self._keeper.getsockname()[1]
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, reuse_address=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        talk = Talk(reader, writer)
        self._talks.append(talk)
        try:
            await self.handler(talk)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            talk.close()

    def stop(self) -> None:
        """Listen no more, and break off what there is."""
        if self._server is not None:
            self._server.close()
        for talk in self._talks:
            talk.cut()

    def leave(self) -> None:
        """Give the port up, too."""
        self.stop()
        self._keeper.close()


def plain(name: str, *, wait_s: float = 0.0) -> ScriptedRouter:
    """A router that answers every request with its name."""

    async def handle(talk: Talk) -> None:
        while head := await talk.head():
            router.requests.append((head, await talk.body(head)))
            await asyncio.sleep(wait_s)
            await talk.answer(name)

    router = ScriptedRouter(handle)
    return router


class Bench:
    """One relay, and its file."""

    def __init__(self, folder: Path, hold_s: float, room: int) -> None:
        self.file = folder / "router.json"
        self.relay = FollowingRelay(self.file, hold_s, room)
        self.port = 0
        self._clients: list[Talk] = []
        self._routers: list[ScriptedRouter] = []

    @property
    def counters(self) -> Any:
        """What the relay counted."""
        return self.relay.counters

    def name(self, current: ScriptedRouter | None, *also: ScriptedRouter, life: int = 1) -> None:
        """Write the file: `current` is in front, `also` may be answering."""
        items = [{"url": router.url, "id": f"{router.port}/{life}"} for router in (current, *also) if router]
        document = {"router": items[0] if current else None, "alive": items}
        self.file.with_suffix(".new").write_text(json.dumps(document))
        self.file.with_suffix(".new").replace(self.file)

    async def start(self, router: ScriptedRouter) -> ScriptedRouter:
        """Start a router; it ends with the bench."""
        await router.start()
        self._routers.append(router)
        return router

    async def front(self, router: ScriptedRouter) -> ScriptedRouter:
        """Start a router and put it in front."""
        await self.start(router)
        self.name(router)
        await self.until_current(router)
        return router

    async def until_current(self, router: ScriptedRouter | None) -> None:
        """Wait until the relay knows."""
        wanted = router.url if router else ""
        await until(lambda: ((self.relay.pool.routers.current or _NOBODY).url) == wanted)

    async def client(self) -> Talk:
        """Connect."""
        talk = Talk(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(talk)
        return talk

    async def ask(self, text: str) -> tuple[str, bytes]:
        """One request on a connection of its own."""
        talk = await self.client()
        await talk.say(text)
        try:
            return await talk.message()
        finally:
            talk.close()

    def stop(self) -> None:
        """End all routers and clients."""
        for talk in self._clients:
            talk.cut()
        for router in self._routers:
            router.leave()


class _Nobody:
    url = ""


_NOBODY = _Nobody()


@asynccontextmanager
async def relaying(folder: Path, *, hold_s: float = 300.0, room: int = 0) -> AsyncIterator[Bench]:
    """A relay that listens; with `room`, as if that were its limit of open files.

    Both of its ends are in this process: when that stands still for some seconds, neither of them has lost patience.
    """
    bench = Bench(folder, hold_s, room)
    listener, stop = open_listener("127.0.0.1", 0), asyncio.Event()
    bench.port = listener.getsockname()[1]
    serving = asyncio.create_task(bench.relay.listen(stop, listener))
    watch = asyncio.create_task(bench.relay.watch())
    try:
        with patch.object(connection, "LINGER_S", STALL_S), patch.object(upstream, "CONNECT_S", LIMIT_S):
            yield bench
    finally:
        watch.cancel()
        bench.stop()
        stop.set()
        await serving
        await asyncio.sleep(0.05)


async def until(ask: Callable[[], object]) -> None:
    """Wait until `ask` says something true."""
    async with asyncio.timeout(LIMIT_S):
        while not ask():
            await asyncio.sleep(0.01)


def post(body: str = "{}", *lines: str, path: str = "/v1/chat/completions", method: str = "POST") -> str:
    """A request as text."""
    head = [f"{method} {path} HTTP/1.1", "Host: relay", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(head) + "\r\n\r\n" + body


def get(*lines: str, path: str = "/v1/models", version: str = "1.1") -> str:
    """A request without a body, as text."""
    return "\r\n".join([f"GET {path} HTTP/{version}", "Host: relay", *lines]) + "\r\n\r\n"
