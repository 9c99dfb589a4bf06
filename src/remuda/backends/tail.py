"""Read a growing log file line by line."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

_LOOK_AGAIN_S = 0.2


class Tail:
    """Complete lines of a file under one name, however often it is rotated or replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._rest = b""

    def read(self) -> list[str]:
        """Lines that were completed since the last call; those of a rotated file come first.

        A line may go on in the file that comes after a rotation; what was cut off belongs to no other line.
        """
        lines = self._drain()
        was_cut = self._was_cut()
        if was_cut:
            lines += self.last()
            self._rest = b""
        if self._file is None or was_cut or self._was_replaced():
            self.close()
            try:
                self._file = self.path.open("rb")
            except FileNotFoundError:
                return lines
            lines += self._drain()
        return lines

    def last(self) -> list[str]:
        """The line without an end, if there is one."""
        return [_text(self._rest)] if self._rest else []

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _drain(self) -> list[str]:
        lines: list[str] = []
        for raw in self._file or ():
            self._rest += raw
            if self._rest.endswith(b"\n"):
                lines.append(_text(self._rest))
                self._rest = b""
        return lines

    def _was_replaced(self) -> bool:
        assert self._file is not None
        try:
            now = self.path.stat()
        except FileNotFoundError:
            return False
        return now.st_ino != os.fstat(self._file.fileno()).st_ino

    def _was_cut(self) -> bool:
        return self._file is not None and os.fstat(self._file.fileno()).st_size < self._file.tell()


async def follow_file(path: Path, lives: Callable[[], bool] | None, tail: int = 0) -> AsyncIterator[str]:
    """Yield lines without their newline: the last `tail` (0: all), then new ones while `lives()` says so.

    An absent file has no lines yet. None for `lives`: do not follow. A last line without an end comes at the end.
    """
    reader = Tail(path)
    try:
        first = reader.read()
        for line in (first if lives is not None else first + reader.last())[-tail:]:
            yield line
        if lives is None:
            return
        alive = True
        while alive:
            alive = lives()
            for line in reader.read():
                yield line
            await asyncio.sleep(_LOOK_AGAIN_S if alive else 0)
        for line in reader.last():
            yield line
    finally:
        reader.close()


def last_text(path: Path, size: int) -> str:
    """Last `size` bytes of a text file, from a line's beginning; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            raw = file.read()
    except OSError:
        return ""
    text = raw.decode(errors="replace")
    return text[text.find("\n") + 1 :] if len(raw) < end else text


def _text(line: bytes) -> str:
    return line.rstrip(b"\r\n").decode(errors="replace")
