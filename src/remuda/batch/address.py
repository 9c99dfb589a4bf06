"""An endpoint that moves: a file that says where it is, read again when nobody answers, and a transport that follows.

The file is `endpoint.json` of a swarm: `{"url": stable address, "router": address on the cluster's network, ...}`.
Beside it lies `down.json` once the swarm was taken down, with the reason in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda.base.endpoint import base_url
from remuda.base.errors import InputError, Unavailable
from remuda.batch.pipeline.answer import Transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.batch.pipeline.transport import Reply, Transport

ENDPOINT_FILE: Final = "endpoint.json"
"""File of a swarm's run directory: where its endpoint is."""
DOWN: Final = "down.json"
_AWAY: Final = frozenset({502, 503, 504})
#: Between two looks at the file, however many requests fail.
_LOOK_S: Final = 0.3
#: Between two looks while nothing fails: a machine that vanished tells nobody.
_WATCH_S: Final = 2.0
_PROBE_S: Final = 5.0


class EndpointGone(Unavailable):
    """The endpoint was taken down; waiting for it would help nobody."""


class EndpointAddress:
    """Where an endpoint is now.

    Args:
        file: `endpoint.json`; it may come later.
        fallback: URL for as long as the file says nothing; empty for none.
        moves: the file says where it is; else that is `fallback`, and only whether it is over is said beside the file.
    """

    def __init__(self, file: str, fallback: str = "", *, moves: bool = True) -> None:
        self._file = Path(file)
        self._moves = moves
        self._folder = str(self._file.parent)
        self._down = f"{self._folder}/{DOWN}"
        self._fallback = base_url(fallback) if fallback else ""

    def read(self) -> str:
        """Base URL, the router's own where the file knows routers; empty while nobody knows.

        The stable address is not asked instead of a router that is away: it may be meant for another machine.
        """
        said = _read(self._file) if self._moves else {}
        text = said.get("router", said.get("url"))
        if isinstance(text, str) and text:
            with contextlib.suppress(InputError):
                return base_url(text)
        return "" if text == "" else self._fallback

    def is_over(self) -> bool:
        """Whether nobody will answer any more. Asked before each request: the port may soon be another swarm's."""
        return os.path.exists(self._down) or not os.path.isdir(self._folder)  # noqa: PTH110, PTH112 - see above

    def gone(self) -> str:
        """Why nobody will answer any more, one sentence; empty while somebody may."""
        said = _read(Path(self._down))
        if said:
            return f"the swarm was taken down: {said['reason']}" if said.get("reason") else "the swarm was taken down"
        return f"the swarm was removed, with its directory {self._folder}" if self.is_over() else ""

    def is_coming(self) -> bool:
        """Whether its supervisor says that nobody answers now, and has not given it up: it may wait in a queue."""
        return not self.is_over() and _read(Path(self._folder, ENDPOINT_FILE)).get("router") == ""

    def __str__(self) -> str:
        return self.read() or f"of {self._file}"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


class _Lane:
    """Connections to one place, and how many requests are under way there."""

    def __init__(self, url: str, transport: Transport) -> None:
        self.url = url
        self.transport = transport
        self.active = 0


class FollowingTransport:
    """A `Transport` to wherever the file says.

    Requests that are under way when the endpoint moves are left alone for as long as the old place answers: it may be
    finishing what it has begun. When it does not, they fail as lost connections and are sent again.
    """

    def __init__(
        self, address: EndpointAddress, *, make: Callable[[str], Transport], watch_s: float = _WATCH_S
    ) -> None:
        """Prepare; must be called inside the event loop. `make` makes the transport to one place."""
        self.on_move: Callable[[str], None] = lambda _: None
        """Called with the new base URL."""
        self._address = address
        self._make = make
        self._watch_s = watch_s
        self._lane: _Lane | None = None
        self._looked = -_LOOK_S
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching = False

    async def post(self, path: str, body: bytes) -> Reply:
        """See `Transport.post`."""
        return await self._send(path, body)

    async def get(self, path: str) -> Reply:
        """See `Transport.get`."""
        return await self._send(path, None)

    async def close(self) -> None:
        """See `Transport.close`."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._lane is not None:
            await self._lane.transport.close()

    async def _send(self, path: str, body: bytes | None) -> Reply:
        if self._address.is_over():
            raise Transient("the swarm was taken down", sent=False)
        lane = self._lane or self._look()
        if lane is None:
            raise Transient("the swarm does not say where it is yet", sent=False)
        if not self._watching:
            self._watching = True
            self._start(self._watch())
        lane.active += 1
        try:
            reply = await (lane.transport.get(path) if body is None else lane.transport.post(path, body))
        except Transient:
            self._look()
            raise
        finally:
            lane.active -= 1
        if reply.status in _AWAY:
            self._look()
        return reply

    def _look(self) -> _Lane | None:
        """Read the file, if that was not done just now, and change over when it says another place."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < _LOOK_S:
            return self._lane
        self._looked = now
        url = self._address.read()
        old = self._lane
        if not url or (old is not None and old.url == url):
            return old
        self._lane = _Lane(url, self._make(url))
        if old is not None:
            self._start(self._leave(old))
        self.on_move(url)
        return self._lane

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._watch_s)
            self._look()

    async def _leave(self, lane: _Lane) -> None:
        """Close an old place when nothing is under way there, or when it does not answer any more."""
        silent = 0
        try:
            while lane.active and silent < 2:
                await asyncio.sleep(min(1.0, self._watch_s))
                try:
                    async with asyncio.timeout(_PROBE_S):
                        await lane.transport.get("/health")
                    silent = 0
                except (Transient, TimeoutError):
                    silent += 1
        finally:
            await lane.transport.close()
