"""Work of a client that can wait, done in slices so that no piece of an answer is stamped late because of it."""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

#: Between two looks at the sockets, so many ns of chores.
_SLICE_NS: Final = 500_000


class Chores:
    """A queue of small pieces of work; when many requests end in the same moment, their answers are read one by one."""

    def __init__(self) -> None:
        self._todo: deque[Callable[[], None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, work: Callable[[], None]) -> None:
        """Do it soon.

        Raises:
            BaseException: what a piece of work raised before.
        """
        self._todo.append(work)
        if self._task is not None and self._task.done():
            self._task.result()
            self._task = None
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def settle(self) -> None:
        """Wait until all of it is done.

        Raises:
            BaseException: what a piece of work raised.
        """
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while self._todo:
            await asyncio.sleep(0)  # What has come meanwhile goes first.
            until = monotonic_ns() + _SLICE_NS
            self._todo.popleft()()
            while self._todo and monotonic_ns() < until:
                self._todo.popleft()()
