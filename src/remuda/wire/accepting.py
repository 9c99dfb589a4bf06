"""Accepts connections on an event loop, some at a time; without descriptors it waits a moment, and nothing ends.

Event loops have this, too, but one of them accepts thousands at once, and the other gives up its listener for good.
Python 3.9, standard library only.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.wire.gate import ACCEPTS, OUT_OF_DESCRIPTORS, PAUSE_S

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


class Acceptor:
    """Gives each connection to `take`, with the address that it comes from.

    Args:
        listener: listens; is closed with this.
        take: owns the connection from then on. It does not block.
        tell: is told why nothing is accepted for a moment.
        pause_s: how long that is.
    """

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[socket.socket, str], None],
        tell: Callable[[str], None],
        pause_s: float = PAUSE_S,
    ) -> None:
        self._listener = listener
        self._take = take
        self._tell = tell
        self._pause_s = pause_s
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
                self._resume = loop.call_later(self._pause_s, self._listen)
                return
            connection.setblocking(False)
            self._take(connection, str(peer[0]))
