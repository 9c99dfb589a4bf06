"""What is asked for at once is done by one call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Item = TypeVar("Item")


class Gathered(Generic[Item]):
    """Makes one call of all that is asked for in the same turn of the event loop, e.g. by `asyncio.gather`.

    Args:
        do: does it for several; one outcome for each, None where it went well.
    """

    def __init__(self, do: Callable[[Sequence[Item]], Awaitable[Sequence[Exception | None]]]) -> None:
        self._do = do
        self._next: tuple[list[Item], asyncio.Future[Sequence[Exception | None]]] | None = None

    async def ask(self, item: Item) -> None:
        """Have it done.

        Raises:
            Exception: its outcome, or what the call as a whole ended with.
        """
        if self._next is None:
            begun: list[Item] = []
            self._next = begun, asyncio.ensure_future(self._call(begun))
        items, call = self._next
        items.append(item)
        at = len(items) - 1
        outcome = (await asyncio.shield(call))[at]
        if outcome is not None:
            raise outcome

    async def _call(self, items: list[Item]) -> Sequence[Exception | None]:
        """Begins with the next turn of the loop: whoever asked in this one is in `items`, and nobody comes later."""
        self._next = None
        return await self._do(items)
