"""The relay's connections to routers: opened when needed, kept for the next request, dropped with their router."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from urllib.parse import urlsplit

from remuda.wire import peer

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_S: Final = 2.0
"""For one connection to a router; longer than any network of a cluster takes."""
IDLE_S: Final = 20.0
"""A connection that was idle for so long is closed: routers close theirs later."""
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A machine that lost its power says nothing: half a minute later the kernel says it for it."""
_UNSENT_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class RouterAt:
    """One life of a router: an address alone does not say who is there."""

    url: str
    id: str

    @property
    def address(self) -> tuple[str, int]:
        """Host and port.

        Raises:
            ValueError: the url has none.
        """
        parts = urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname or not parts.port:
            raise ValueError(f"{self.url!r} is not http://host:port")
        return parts.hostname, parts.port


@dataclass(frozen=True)
class Routers:
    """What `router.json` says."""

    current: RouterAt | None = None
    """Where new requests go."""
    alive: frozenset[str] = frozenset()
    """Ids of all that may still be answering."""


def read_routers(document: Any) -> Routers:
    """The routers of a document; see `remuda.host.reconcilers.endpoint_files.router_document`.

    Raises:
        ValueError: it is no such document.
    """
    try:
        current = _router(document["router"]) if document["router"] is not None else None
        alive = {_router(item).id for item in document["alive"]}
    except (LookupError, TypeError) as error:
        raise ValueError(f"a document without routers: {error}") from error
    return Routers(current, frozenset(alive | ({current.id} if current else set())))


def _router(item: Mapping[str, str]) -> RouterAt:
    router = RouterAt(str(item["url"]).rstrip("/"), str(item["id"]))
    _ = router.address
    return router


class Waiter(Protocol):
    """Whoever waits for an answer on a connection."""

    def answer_data(self, data: bytes) -> None:
        """Bytes of the answer."""
        ...

    def answer_lost(self, *, clean: bool) -> None:
        """The connection is gone; `clean` when the router closed it in order."""
        ...

    def hold_request(self, *, hold: bool) -> None:
        """The router takes no more for now, or again."""
        ...


class Upstream(asyncio.Protocol):
    """One connection to a router, for one request at a time."""

    def __init__(self, pool: RouterConnections, router: RouterAt) -> None:
        self.router = router
        self.waiter: Waiter | None = None
        self.transport: asyncio.Transport | None = None
        self.uses = 0
        self.idle_since = 0.0
        self._pool = pool
        self._clean = False

    @property
    def is_open(self) -> bool:
        """Whether it can be written to."""
        return self.transport is not None and not self.transport.is_closing() and not self._clean

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        watch_line(self.transport.get_extra_info("socket"), unsent=True)
        self._pool.opened(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer; without a request nothing may come."""
        if self.waiter is not None:
            self.waiter.answer_data(data)
        else:
            self.abort()

    def eof_received(self) -> bool:
        """The router closes it, in order."""
        self._clean = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._pool.closed(self)
        waiter, self.waiter = self.waiter, None
        if waiter is not None:
            waiter.answer_lost(clean=self._clean and exc is None)

    def pause_writing(self) -> None:
        """The router reads more slowly than the client writes."""
        if self.waiter is not None:
            self.waiter.hold_request(hold=True)

    def resume_writing(self) -> None:
        """It reads again."""
        if self.waiter is not None:
            self.waiter.hold_request(hold=False)

    def write(self, data: bytes, *more: bytes) -> None:
        """Bytes of the request."""
        assert self.transport is not None
        if more:
            self.transport.writelines((data, *more))
        else:
            self.transport.write(data)

    def pause(self, *, pause: bool) -> None:
        """Read no more of the answer for now, or go on."""
        if self.transport is None or self.transport.is_closing():
            return
        if pause:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def abort(self) -> None:
        """Close it at once; who waits on it is told."""
        if self.transport is not None:
            self.transport.abort()

    def release(self, *, keep: bool) -> None:
        """The request is over: keep the connection for the next, or close it."""
        self.waiter = None
        if keep and self.is_open:
            self.pause(pause=False)
            self._pool.put_back(self)
        else:
            self.abort()


def watch_line(sock: socket.socket | None, *, unsent: bool) -> None:
    """Let the kernel notice a machine that is gone; with `unsent` also one that takes no bytes any more."""
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        if unsent and hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNSENT_MS)


def _refuse_strangers(upstream: Upstream) -> None:
    """Close a connection to a process of another user of this machine: requests carry keys.

    Raises:
        OSError: it is one.
    """
    assert upstream.transport is not None
    if why_not := peer.refusal(upstream.transport.get_extra_info("socket")):
        upstream.abort()
        raise OSError(f"{upstream.router.url}: {why_not}")


class RouterConnections:
    """All connections to all routers."""

    def __init__(self) -> None:
        self.routers = Routers()
        self.changed = asyncio.Event()
        """Set, and replaced by a new one, whenever the routers change."""
        self._idle: dict[str, list[Upstream]] = defaultdict(list)
        self._open: set[Upstream] = set()

    def take(self, routers: Routers) -> None:
        """Other routers than before. What was asked of one that is gone is asked of nobody any more."""
        self.routers = routers
        before, self.changed = self.changed, asyncio.Event()
        before.set()
        current = routers.current.id if routers.current else ""
        for upstream in list(self._open):
            if upstream.router.id not in routers.alive or (upstream.waiter is None and upstream.router.id != current):
                upstream.abort()

    def idle(self, router: RouterAt) -> Upstream | None:
        """A connection that waits for its next request."""
        waiting = self._idle[router.id]
        while waiting:
            upstream = waiting.pop()
            if upstream.is_open:
                return upstream
        return None

    async def connect(self, router: RouterAt) -> Upstream:
        """A new connection.

        Raises:
            OSError: the router does not listen, or not within `CONNECT_S` (which is a `TimeoutError`), or somebody
                else of this machine has its port.
        """
        host, port = router.address
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            _, upstream = await loop.create_connection(lambda: Upstream(self, router), host, port)
        _refuse_strangers(upstream)
        return upstream

    def drop_idle(self, router: RouterAt) -> None:
        """One was closed by its router: the others probably are, too."""
        for upstream in self._idle.pop(router.id, []):
            upstream.abort()

    def put_back(self, upstream: Upstream) -> None:
        """Keep it for the next request, if that goes to this router."""
        current = self.routers.current
        if current is None or upstream.router.id != current.id:
            upstream.abort()
            return
        upstream.idle_since = time.monotonic()
        self._idle[upstream.router.id].append(upstream)

    @property
    def size(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def shed(self) -> bool:
        """Close the one that has waited longest for a request; False where none does."""
        for waiting in self._idle.values():
            if waiting:
                upstream = waiting.pop(0)
                upstream.abort()
                self.closed(upstream)
                return True
        return False

    def opened(self, upstream: Upstream) -> None:
        """Remember it."""
        self._open.add(upstream)

    def closed(self, upstream: Upstream) -> None:
        """Forget it."""
        self._open.discard(upstream)
        waiting = self._idle.get(upstream.router.id)
        if waiting and upstream in waiting:
            waiting.remove(upstream)
        if not waiting:
            self._idle.pop(upstream.router.id, None)

    def sweep(self) -> None:
        """Close what was idle for long."""
        before = time.monotonic() - IDLE_S
        for upstream in [item for waiting in self._idle.values() for item in waiting if item.idle_since < before]:
            upstream.abort()

    def close(self) -> None:
        """Close everything."""
        for upstream in list(self._open):
            upstream.abort()
