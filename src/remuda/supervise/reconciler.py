"""What runs beside the loop and makes something outside equal to what the workloads are: one shape, and its runner.

A reconciler decides in `due`, which is asked after each round of the loop and says the same as long as nothing was
done, and does in `act`. What takes long is done by `Turns`, for which nobody waits.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Task, Want

_LOG = logging.getLogger("remuda.supervise.reconciler")
_AFTER_BUG_S = 5.0
K = TypeVar("K")
A = TypeVar("A")


@dataclass(frozen=True)
class Moment:
    """A workload as it is now."""

    want: Want
    tasks: Mapping[TaskKey, Task]
    now: float = 0.0


@dataclass(frozen=True)
class Due(Generic[K, A]):
    """What is to be done, by subject, and in how many seconds to ask again although nothing changed."""

    actions: Mapping[K, A] = field(default_factory=dict)
    again_s: float | None = None


class Reconciler(Generic[K, A]):
    """One level that is kept. The loop calls `step` for each workload."""

    turns: Turns | None = None
    """What it does beside the loop."""

    def due(self, at: Moment) -> Due[K, A]:
        """What is to be done for a workload as it is now. Does nothing."""
        raise NotImplementedError

    def act(self, actions: Mapping[K, A]) -> None:
        """Do it, or let it be done beside the loop."""
        raise NotImplementedError

    def step(self, at: Moment) -> float | None:
        """One round for one workload; seconds until it wants to be asked again although nothing changed."""
        due = self.due(at)
        if due.actions:
            self.act(due.actions)
        return due.again_s

    async def close(self) -> None:
        """End what is done beside the loop."""
        if self.turns is not None:
            await self.turns.close()


class Turns:
    """Does something beside the loop, one turn at a time: when it is woken, and after the pause that a turn asks for.

    Args:
        turn: one; how many seconds until the next, None: until it is woken.
        name: of what it does.
        is_finished: when it is closed, what it is at is finished, and a last turn does what is left.
    """

    def __init__(self, turn: Callable[[], Awaitable[float | None]], name: str, *, is_finished: bool = False) -> None:
        self._turn, self._name, self._is_finished = turn, name, is_finished
        self._news, self._end = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Let the next turn come at once."""
        self._news.set()
        self._task = self._task or asyncio.create_task(self._run(), name=self._name)

    async def rest(self, seconds: float) -> None:
        """Wait, whatever happens, but for the end."""
        await within(seconds, self._end)

    def cancel(self) -> None:
        """Break off what it is at; nothing more is done."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """End; it may be woken again."""
        if self._task is None:
            return
        self._end.set()
        self._news.set()
        if not self._is_finished:
            self.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._is_finished:
            await self._turn()
        self._task = None
        self._end.clear()

    async def _run(self) -> None:
        while not self._end.is_set():
            self._news.clear()
            try:
                pause = await self._turn()
            except Exception:  # noqa: BLE001 - others go on, and it may be well the next time
                _LOG.exception("bug in what keeps %s", self._name)
                pause = _AFTER_BUG_S
            await within(pause, self._news)


async def within(seconds: float | None, event: asyncio.Event) -> None:
    """Wait for an event, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
