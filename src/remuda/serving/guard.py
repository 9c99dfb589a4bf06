"""The door of a router that has a key: a process which passes requests on only if they carry it.

smg asks for the key where requests are answered, and tells everybody which models there are, what its engines measure
and how they are set. Behind this door it listens where nobody else gets in.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.serving import signed
from remuda.serving.framing import NO_BODY
from remuda.serving.relay import Relay, runner
from remuda.serving.relay_upstream import Pool, RouterAt, Routers

if TYPE_CHECKING:
    import socket

    from remuda.serving.framing import Request

METRICS: Final = "/-/router/metrics"
"""Where the metrics of the router behind the door are."""
OPEN: Final = (b"/health", frozenset({b"GET", b"HEAD"}))
HOLD_S: Final = 5.0


@dataclass(frozen=True)
class Inside:
    """What is behind the door."""

    port: int
    metrics_port: int
    line_key: bytes = b""
    """That signs connections to both ports; empty where the kernel does not sign."""


class Door:
    """Who may come in, and where to."""

    def __init__(self, keys: frozenset[str], inside: Inside) -> None:
        self._keys = [f"Bearer {key}".encode() for key in keys if key]
        self._inside = inside
        self.router, self.metrics = Pool(self._dial), Pool(self._dial)

    async def _dial(self, _: str, port: int) -> socket.socket:
        return await signed.connect(port, self._inside.line_key)

    def open(self) -> None:
        """The router is there, and closed to all others."""
        for pool, port in ((self.router, self._inside.port), (self.metrics, self._inside.metrics_port)):
            pool.take(Routers(RouterAt(f"http://{signed.LOOPBACK}:{port}", "router"), frozenset({"router"})))

    def lets_in(self, request: Request) -> bool:
        """Whether a request carries a key, or needs none."""
        path, methods = OPEN
        if request.target == path and request.method in methods and request.framing == NO_BODY:
            return True
        return self.knows(request)

    def knows(self, request: Request) -> bool:
        """Whether a request carries a key."""
        said = [value for name, value in request.headers if name.lower() == b"authorization"]
        return len(said) == 1 and any(hmac.compare_digest(said[0].strip(), key) for key in self._keys)

    def leads(self, request: Request) -> tuple[Pool, Request]:
        """Where a request goes, and as what."""
        if request.target == METRICS.encode():
            return self.metrics, replace(request, target=b"/metrics")
        return self.router, request


def serve(listener: socket.socket, keys: frozenset[str], inside: Inside, ready: int) -> None:
    """Stand at the door until SIGTERM; the router is there when a byte comes from the descriptor `ready`."""
    door = Door(keys, inside)
    runner()(_serve(listener, door, ready))


async def _serve(listener: socket.socket, door: Door, ready: int) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def hear() -> None:
        loop.remove_reader(ready)
        door.open() if os.read(ready, 1) else stop.set()

    loop.add_reader(ready, hear)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    relay = Relay(door.router, HOLD_S, door)
    await relay.listen(stop, listener)
    door.metrics.close()
