"""Connections are opened a few at a time: a server's listen queue may be short, and what overflows it waits long.

The first requests go out on a few connections. More are let out as answers come, or step by step where they take long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

FIRST: Final = 4
_STEP_S: Final = 0.005


class Opening:
    """Bounds requests under way to the connections that may be open by now."""

    def __init__(self) -> None:
        self.active = 0
        self.allowed = FIRST
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> None:
        """Wait until another request may go out, and count it."""
        if self.active < self.allowed and not self._waiters:
            self.active += 1
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters.append(waiter)
        if self._timer is None:
            self._timer = loop.call_later(_STEP_S, self._step)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()
            raise

    def leave(self, *, heard: bool = False, lost: bool = False) -> None:
        """A request has ended: `heard` with an answer, `lost` with its connection."""
        self.active -= 1
        if lost:
            self.allowed = max(FIRST, self.allowed - 1)
        elif heard and self._waiters:
            self.allowed += 1
        self._admit()

    def _step(self) -> None:
        self._timer = None
        if self._waiters:
            self.allowed += FIRST
            self._timer = asyncio.get_running_loop().call_later(_STEP_S, self._step)
        self._admit()

    def _admit(self) -> None:
        while self._waiters and self.active < self.allowed:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self.active += 1
                waiter.set_result(None)
