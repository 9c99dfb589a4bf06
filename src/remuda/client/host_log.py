"""The host's log, as the user's process reads it: without the host, which may be dead."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remuda.backends.logs import Logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def read(path: Path, tell: Callable[[str], None], *, tail: int = 0, follow: bool = False) -> None:
    """Tell its last `tail` lines (0: all), and with `follow` for ever new ones, in whichever file they are written."""
    asyncio.run(_read(path, tell, tail, follow=follow))


async def _read(path: Path, tell: Callable[[str], None], tail: int, *, follow: bool) -> None:
    async for line in Logs().read(path, tail, _never if follow else None):
        tell(line)


async def _never() -> None:
    await asyncio.Event().wait()
