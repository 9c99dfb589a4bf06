"""Read a growing log file line by line."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

_LOOK_AGAIN_S = 0.2


async def follow_file(path: Path, lives: Callable[[], bool] | None, tail: int = 0) -> AsyncIterator[str]:
    """Yield lines without their newline: the last `tail` (0: all), then new ones while `lives()` says so.

    A rotated or replaced file is followed under its name. An absent file has no lines yet. None for `lives`: do not
    follow. A last line without newline is yielded at the end.
    """
    file = _open(path)
    rest = b""
    if file is not None:
        for line in _last(file, tail):
            if line.endswith(b"\n"):
                yield _text(line)
            else:
                rest = line
    while lives is not None:
        ended = not lives()
        if file is None or _was_replaced(path, file):
            if file is not None:
                for raw in file:
                    yield _text(raw)
                file.close()
            file, rest = _open(path), b""
        for raw in file or ():
            rest += raw
            if rest.endswith(b"\n"):
                yield _text(rest)
                rest = b""
        if ended:
            break
        await asyncio.sleep(_LOOK_AGAIN_S)
    if rest:
        yield _text(rest)
    if file is not None:
        file.close()


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def _was_replaced(path: Path, file: BinaryIO) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    own = os.fstat(file.fileno())
    return now.st_ino != own.st_ino or now.st_size < file.tell()


def _last(file: BinaryIO, count: int) -> list[bytes]:
    return list(deque(file, maxlen=count)) if count else list(file)


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")
