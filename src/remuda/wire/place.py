"""How far output was read, so that one who follows it goes on there after the host that sent it is gone.

A stream that was asked for marks has, behind each piece of whole lines, a line that says up to where that went. Python
3.9, standard library only.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

_SHORT = 64
_MARK = b"\x1e"
"""Begins a mark; a line of output that begins so gets another one in front."""
_MARK_TEXT = _MARK.decode()
PLACE = r"^(\d{1,20}):(\d{1,20}):(\d{1,20}):(\d{1,20})$"
"""How a place is written."""


@dataclass(frozen=True)
class Place:
    """A place in the output of a task."""

    inode: int = 0
    """Of the file; 0: there was none yet."""
    at: int = 0
    """Bytes of it that were sent."""
    attempt: int = 0
    """Whose output it is; 0: not said."""
    digest: int = 0
    """Of the bytes in front of it (`digest`), because numbers of files are used again; 0: not known."""

    def __str__(self) -> str:
        return f"{self.attempt}:{self.inode}:{self.at}:{self.digest}"

    @classmethod
    def read(cls, text: str) -> Place:
        """What `str` wrote; the default for anything else."""
        match = re.match(PLACE, text)
        return cls(int(match[2]), int(match[3]), int(match[1]), int(match[4])) if match else cls()


def digest(raw: bytes) -> int:
    """Of how many bytes, and what they are."""
    last = raw[-_SHORT:]
    return len(last) << 32 | zlib.crc32(last)


def digested(value: int) -> int:
    """Of how many bytes a digest is."""
    return value >> 32


def marked(block: bytes, place: Place) -> bytes:
    """Whole lines, and behind them where they end."""
    text = block.replace(b"\n" + _MARK, b"\n" + _MARK + _MARK)
    return (_MARK if block.startswith(_MARK) else b"") + text + _MARK + str(place).encode() + b"\n"


def unmarked(line: str) -> tuple[Place | None, str]:
    """A line of such a stream: a place, or None and a line of the output."""
    if not line.startswith(_MARK_TEXT):
        return None, line
    rest = line[1:]
    return (None, rest) if rest.startswith(_MARK_TEXT) else (Place.read(rest), "")
