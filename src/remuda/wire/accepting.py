"""Accepts connections on an event loop, some at a time; without descriptors it waits a moment, and nothing ends.

Event loops have this, too, but one of them accepts thousands at once, and the other gives up its listener for good.
Python 3.9, standard library only.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from remuda.wire.gate import ACCEPTS, OUT_OF_DESCRIPTORS, PAUSE_S, Gate, Limits

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

T = TypeVar("T")


class Acceptor:
    """Gives each connection to `take`, with the address that it comes from.

    Args:
        listener: listens; is closed with this.
        take: owns the connection from then on. It does not block.
        tell: is told why nothing is accepted for a moment.
    """

    def __init__(
        self, listener: socket.socket, take: Callable[[socket.socket, str], None], tell: Callable[[str], None]
    ) -> None:
        self._listener = listener
        self._take = take
        self._tell = tell
        self._resume: asyncio.TimerHandle | None = None
        self._is_open = False

    def open(self) -> None:
        """Begin, on the running loop."""
        self._listener.setblocking(False)
        self._is_open = True
        self._listen()

    def close(self) -> None:
        """Take no more."""
        if not self._is_open:
            return
        self._is_open = False
        if self._resume is not None:
            self._resume.cancel()
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS):
            if not self._is_open:
                return
            try:
                connection, peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    continue  # it hung up before it was accepted
                self._tell(str(error.strerror))
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener)
                self._resume = loop.call_later(PAUSE_S, self._listen)
                return
            connection.setblocking(False)
            self._take(connection, str(peer[0]))


class Strangers(Generic[T]):
    """Accepts connections, and sends those away that have not left its gate in time, or for whom there is no room.

    Args:
        limits: what they get.
        take: a connection to what is kept of it.
        hear: begins to hear one that got in.
        refuse: sends one away; it leaves the gate.
        tell: see `Acceptor`.
    """

    def __init__(
        self,
        limits: Limits,
        take: Callable[[socket.socket], T],
        hear: Callable[[T], None],
        refuse: Callable[[T], None],
        tell: Callable[[str], None],
    ) -> None:
        self.gate: Gate[T] = Gate(limits)
        self._take, self._hear, self._refuse, self._tell = take, hear, refuse, tell
        self._acceptor: Acceptor | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def listen(self, listener: socket.socket) -> None:
        """Accept there, and nowhere else any more; those who came by another address stay."""
        self.close()
        self._acceptor = Acceptor(listener, self._admit, self._tell)
        self._acceptor.open()

    def close(self) -> None:
        """Accept nobody."""
        if self._acceptor is not None:
            self._acceptor.close()

    def _admit(self, connection: socket.socket, address: str) -> None:
        who = self._take(connection)
        victim = self.gate.admit(who, address, time.monotonic())
        if victim is not None:
            self._refuse(victim)
        if who in self.gate:
            self._hear(who)
        if self._sweeper is None:
            self._sweep()

    def _sweep(self) -> None:
        """Send away those that had their time, as long as there are strangers."""
        now = time.monotonic()
        for who in self.gate.overdue(now):
            self._refuse(who)
        pause = max(0.01, self.gate.due() - now)
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(pause, self._sweep) if len(self.gate) else None
