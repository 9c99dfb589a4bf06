"""The address of a swarm on a cluster: `python -m remuda.enter relay --host H --port P --file RUN/router.json`.

It stands on the machine of the host, at a port that never changes, and passes each request to the router that
`router.json` names at that moment. Routers, replicas and hosts may come and go behind it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base import descriptors
from remuda.serving.flags import Parser
from remuda.serving.relay.connection import ClientConnection
from remuda.serving.relay.descriptors import Room
from remuda.serving.relay.exchange import HOLD_S, RelayCounters
from remuda.serving.relay.replay import Budget
from remuda.serving.relay.upstream import RouterConnections, Routers, read_routers
from remuda.wire.accepting import Acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

LOOK_S: Final = 0.05
"""Between two looks at the file."""
SWEEP_S: Final = 5.0
GOODBYE_S: Final = 2.0
"""For requests under way when it is asked to end."""


class WatchedFile:
    """A file that is replaced now and then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark: tuple[int, ...] = ()

    def news(self) -> Routers | None:
        """What it says, if that may be something else than before. What cannot be read changes nothing."""
        try:
            status = self._path.stat()
            mark = (status.st_mtime_ns, status.st_ino, status.st_size)
            if mark == self._mark:
                return None
            routers = read_routers(json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None  # nobody has written it yet
        except (OSError, ValueError) as error:
            say_once(f"{self._path} cannot be read: {error}")
            return None
        self._mark = mark
        return routers


def say_once(text: str, said: set[str] = set()) -> None:  # noqa: B006 - what was said is remembered on purpose
    """One line for people, the same one never twice."""
    if text not in said:
        said.add(text)
        sys.stderr.write(f"relay: {text}\n")
        sys.stderr.flush()


class Relay:
    """Listens for clients, and passes their requests on.

    Args:
        pool: where to.
        hold_s: how long a request waits for a router.
        room: of how many clients at once; None: what this process may open.
    """

    def __init__(self, pool: RouterConnections, hold_s: float, room: int = 0) -> None:
        self.pool = pool
        self.counters = RelayCounters()
        self.room = Room(self.counters, pool, room or descriptors.limit())
        self._hold_s = hold_s
        self._budget = Budget()
        self._coming: set[asyncio.Task[Any]] = set()

    async def listen(self, stop: asyncio.Event, listener: socket.socket) -> None:
        """Serve until `stop`."""
        acceptor = Acceptor(listener, self._take, lambda why: say_once(f"no new connections for a moment: {why}"))
        acceptor.open()
        sweeping = asyncio.create_task(self.sweep())
        await stop.wait()
        acceptor.close()
        for _ in range(round(GOODBYE_S / LOOK_S)):
            if not self.counters.in_flight:
                break
            await asyncio.sleep(LOOK_S)
        sweeping.cancel()
        for client in list(self.room.clients):
            client.cut()
        self.pool.close()

    def _take(self, connection: socket.socket, address: str) -> None:
        """A new client."""
        client = ClientConnection(self.pool, self.counters, self.room, address, self._budget, self._hold_s)
        if not self.room.comes(client):
            connection.close()
            return

        def came(task: asyncio.Task[Any]) -> None:
            self._coming.discard(task)
            if task.cancelled() or task.exception() is not None:
                self.room.gone(client)
                connection.close()

        loop = asyncio.get_running_loop()
        coming = loop.create_task(loop.connect_accepted_socket(lambda: client, connection))
        self._coming.add(coming)
        coming.add_done_callback(came)

    async def sweep(self) -> None:
        """Close what nobody uses, for ever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.pool.sweep()
            self.room.sweep()
            self._budget.tidy()


def open_listener(host: str, port: int) -> socket.socket:
    """Listen.

    Raises:
        OSError: the port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=4096)


class FollowingRelay(Relay):
    """Passes requests on to the router that a file names at that moment."""

    def __init__(self, file: Path, hold_s: float, room: int = 0) -> None:
        super().__init__(RouterConnections(), hold_s, room)
        self._file = WatchedFile(file)

    def look(self) -> None:
        """Read the file again if it was replaced."""
        routers = self._file.news()
        if routers is not None and routers != self.pool.routers:
            self.pool.take(routers)
            sys.stderr.write(f"relay: the router is {routers.current.url if routers.current else 'away'}\n")
            sys.stderr.flush()

    async def watch(self) -> None:
        """Look for ever."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until SIGTERM or SIGINT."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        self.look()
        watching = asyncio.create_task(self.watch())
        try:
            await self.listen(stop, listener)
        finally:
            watching.cancel()


def parser() -> Parser:
    """All flags."""
    made = Parser("relay")
    made.add_argument("--host", default="127.0.0.1", help="address to listen on")
    made.add_argument("--port", type=int, required=True, help="port to listen on")
    made.add_argument("--file", type=Path, required=True, help="router.json of the run directory")
    made.add_argument("--hold-s", type=float, default=HOLD_S, help="how long a request waits for a router")
    return made


def runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """What runs a coroutine to its end: uvloop where it is installed, it takes half the CPU."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; 1 when the port is taken."""
    options = parser().parse_args(argv)
    descriptors.raise_limit()
    relay = FollowingRelay(options.file, options.hold_s)
    try:
        listener = open_listener(options.host, options.port)
    except OSError as error:
        sys.stderr.write(f"relay: cannot listen on {options.host}:{options.port}: {error.strerror or error}\n")
        return 1
    runner()(relay.serve(listener))
    return 0


if __name__ == "__main__":
    sys.exit(main())
