"""One open log file, read in blocks from any place. Every call may wait for the disk: nothing of it is for the loop."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.wire.place import digest, digested

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.wire.place import Place

BLOCK: Final = 65536
"""Most bytes that are read at once; longer lines come in pieces of about that."""
_CONTINUES = 0x80
"""Upper two bits of a byte that goes on with a character of UTF-8."""
_ENDS = re.compile(rb"(?<!\r)\r++\n")
"""Never goes back: a log full of carriage returns must not hold the host."""


@dataclass(frozen=True)
class Block:
    """What lies at one place of a file."""

    text: bytes
    """Whole lines in UTF-8, each with its end; empty where no line is complete yet."""
    next: int
    """Where to go on."""
    rest: bytes = b""
    """The line without an end that is all there is, if `text` is empty."""
    digest: int = 0
    """Of the bytes in front of `next`."""


class LogFile:
    """A file as it was opened, under whatever name it goes on. May be used by several threads.

    Args:
        descriptor: open for reading; it is closed by `close`.
    """

    def __init__(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.size = status.st_size
        """At the last look."""
        self.next: LogFile | None = None
        """The file that has taken its name."""
        self.is_cut = False
        """It has become shorter: places in it are those of nothing."""
        self._is_of = (status.st_dev, status.st_ino)
        self.inode = status.st_ino
        self._descriptor = descriptor
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> LogFile | None:
        """The file that has that name now; None where there is none.

        Raises:
            OSError: it cannot be opened.
        """
        try:
            return cls(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            return None

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._descriptor < 0

    def close(self) -> None:
        """Let go of it; reading then raises `OSError`. Once more is fine."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def is_replaced(self, path: Path) -> bool:
        """Whether another file has that name now, or this one was cut shorter; notes how long it is.

        Raises:
            OSError: it cannot be asked.
        """
        with self._lock:
            before, size = self.size, os.fstat(self._descriptor).st_size
            self.size, self.is_cut = size, size < before
        if self.is_cut:
            return True
        try:
            now = path.stat()
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) != self._is_of

    def holds(self, place: Place) -> bool:
        """Whether it is the file in which that place is.

        Raises:
            OSError: it cannot be read, or was closed.
        """
        if self.inode != place.inode or self.size < place.at:
            return False
        size = digested(place.digest)
        return not size or digest(self._read(place.at - size, size)) == place.digest

    def block(self, at: int) -> Block:
        """Whole lines from `at` on.

        Raises:
            OSError: it cannot be read, or was closed.
        """
        raw = self._read(at, BLOCK)
        end = raw.rfind(b"\n") + 1
        if end:
            return Block(clean(raw[:end]), at + end, digest=digest(raw[:end]))
        if len(raw) < BLOCK:
            return Block(b"", at, raw)
        end = _between_characters(raw)
        return Block(clean(raw[:end] + b"\n"), at + end, digest=digest(raw[:end]))

    def start_of(self, lines: int, *, count_rest: bool) -> int:
        """Where the last so many lines begin.

        Args:
            lines: how many, at least one.
            count_rest: the line without an end is one of them.

        Raises:
            OSError: it cannot be read, or was closed.
        """
        end = self.size
        left = lines + 1
        if count_rest and end and self._read(end - 1, 1) != b"\n":
            left -= 1
        while end > 0:
            begin = max(0, end - BLOCK)
            raw = self._read(begin, end - begin)
            count = raw.count(b"\n")
            if count >= left:
                return begin + _nth_from_end(raw, left) + 1
            left -= count
            end = begin
        return 0

    def _read(self, at: int, size: int) -> bytes:
        with self._lock:
            raw = os.pread(self._descriptor, size, at)
            self.size = max(self.size, at + len(raw))
        return raw


def clean(raw: bytes) -> bytes:
    """Text in UTF-8 whatever was written, with plain ends of lines."""
    return _ENDS.sub(b"\n", raw).decode(errors="replace").encode()


def _nth_from_end(raw: bytes, count: int) -> int:
    end = len(raw)
    for _ in range(count):
        end = raw.rfind(b"\n", 0, end)
    return end


def _between_characters(raw: bytes) -> int:
    """The last place that does not cut a character in two."""
    for end in range(len(raw) - 1, len(raw) - 5, -1):
        if raw[end] & 0xC0 != _CONTINUES:
            return end
    return len(raw)
