"""The descriptors of a relay: each client holds one, each request a second one; idle ones make room for busy ones."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

from remuda.serving.relay.admission import Crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.serving.relay.connection import ClientConnection
    from remuda.serving.relay.exchange import RelayCounters
    from remuda.serving.relay.upstream import RouterConnections

RESERVE: Final = 64
"""Descriptors of the program itself, and of connections that are accepted or closed at this moment."""
FOR_LOOKS: Final = 32
"""That requests leave free: to be looked at (GET and HEAD), by the watchdog for one, a relay is never too busy."""
FOR_COMERS: Final = 16
"""Of these, those that new connections leave free."""
MOST: Final = 32 << 10
"""Idle connections cost memory, too."""
TELL_EVERY_S: Final = 60.0


class Room:
    """All clients, and whether there is room for one more, or for its request.

    Args:
        counters: know what is under way.
        pool: connections to routers.
        descriptors: that the process may have.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        counters: RelayCounters,
        pool: RouterConnections,
        descriptors: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.clients: set[ClientConnection] = set()
        self.most = max(FOR_LOOKS * 2, min(MOST, descriptors - RESERVE))
        self._counters = counters
        self._pool = pool
        self._clock = clock
        self._crowd: Crowd[ClientConnection] = Crowd()
        self._told_at = -TELL_EVERY_S

    def comes(self, client: ClientConnection) -> bool:
        """Take a new connection in; False: all others are busy, and it cannot stay."""
        if not self._make(self.most - FOR_COMERS, clients=1):
            return False
        self.clients.add(client)
        self._wait(client)
        return True

    def asks(self, client: ClientConnection, *, looks: bool, first: bool) -> bool:
        """It has sent a whole head, maybe its `first`; whether there is room for its request."""
        if first:
            self._crowd.leaves(client)
        return self._make(self.most if looks else self.most - FOR_LOOKS, requests=1)

    def tells(self, client: ClientConnection, *, anew: bool) -> None:
        """It has sent some of a request; `anew`: time begins again."""
        if anew or not self._crowd.is_telling(client):
            self._crowd.tells(client, self._clock())

    def waits(self, client: ClientConnection) -> None:
        """Nothing is expected of it for now."""
        self._crowd.leaves(client)

    def rests(self, client: ClientConnection) -> None:
        """Its request is over, or was refused."""
        if client not in self.clients:
            return
        if client.is_known:
            self._crowd.rests(client, self._clock())
        else:
            self._wait(client)

    def gone(self, client: ClientConnection) -> None:
        """It is closed."""
        self.clients.discard(client)
        self._crowd.leaves(client)

    def sweep(self) -> None:
        """Send those away that had their time."""
        for client in self._crowd.overdue(self._clock()):
            client.send_away()

    def _wait(self, client: ClientConnection) -> None:
        victim = self._crowd.comes(client, client.address, self._clock())
        if victim is not None:
            self._tell()
            victim.send_away()

    def _make(self, limit: int, *, clients: int = 0, requests: int = 0) -> bool:
        """Whether so many more have room below `limit`; idle ones go for them."""
        while True:
            asked, held = self._counters.in_flight + requests, self._pool.size
            if len(self.clients) + clients + max(asked, held) <= limit:
                return True
            self._tell()
            victim = self._crowd.stranger()
            if victim is None and held > asked and self._pool.shed():
                continue
            victim = victim or self._crowd.longest(self._clock())
            if victim is None:
                return False
            victim.send_away()

    def _tell(self) -> None:
        now = self._clock()
        if now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            sys.stderr.write(
                f"relay: {len(self.clients)} connections are open, {self._counters.in_flight} of them wait for an "
                f"answer; with room for {self.most} descriptors the longest idle are closed\n"
            )
            sys.stderr.flush()
