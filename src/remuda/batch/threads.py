"""Long work beside the event loop, which meanwhile tells other machines that this one lives and hears Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_SELDOM: Final = (10_000, 20, 50)


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Look for garbage in cycles less often: rows make none, and a look after every 700 objects is a sixth of it."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def in_thread(work: Callable[[threading.Event], T]) -> T:
    """Do `work` in a thread. Cancelled, it sets the event that `work` looks at, and waits until it has ended."""
    stop = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        # What the thread uses may not be closed before it has stopped.
        stop.set()
        with contextlib.suppress(Exception):
            await running
        raise
