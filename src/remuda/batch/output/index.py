"""Where each row's record is, in constant memory: tables on disk that die with the process.

Both tables are derived from the log when it is opened. They live in unlinked files: a kill leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_PAGE_ROWS: Final = 4096
_PAGE_BYTES: Final = _PAGE_ROWS * 16
_CACHED_PAGES: Final = 128
_SLOT: Final = 24
_EMPTY: Final = bytes(_SLOT)


class OffsetIndex:
    """A number below 2^63, a flag and a tag (u64) per row position, 16 bytes on disk each, at most 8 MiB of memory.

    Access is fast while positions stay near each other, as they do when rows finish roughly in input order.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as the object
        self._pages: dict[int, array[int]] = {}
        self._dirty: set[int] = set()
        self._last_number = -1
        self._last: array[int] = array("Q")

    def get(self, position: int) -> tuple[int, bool, int] | None:
        """Number, flag and tag that were put at `position`, or None."""
        page, at = self._page(position // _PAGE_ROWS), position % _PAGE_ROWS * 2
        value = page[at]
        return ((value >> 1) - 1, bool(value & 1), page[at + 1]) if value else None

    def put(self, position: int, number: int, *, flag: bool, tag: int = 0) -> None:
        """Remember `number`, `flag` and `tag` for `position`, replacing what was there."""
        number_of_page, at = position // _PAGE_ROWS, position % _PAGE_ROWS * 2
        page = self._page(number_of_page)
        page[at], page[at + 1] = ((number + 1) << 1) | flag, tag
        self._dirty.add(number_of_page)

    def close(self) -> None:
        """Drop the table."""
        self._file.close()

    def _page(self, number: int) -> array[int]:
        if number == self._last_number:
            return self._last
        page = self._pages.pop(number, None)
        if page is None:
            page = self._load(number)
        # Re-inserting makes dict order the order of use.
        self._pages[number] = page
        self._last_number, self._last = number, page
        return page

    def _load(self, number: int) -> array[int]:
        if len(self._pages) >= _CACHED_PAGES:
            oldest = next(iter(self._pages))
            evicted = self._pages.pop(oldest)
            if oldest in self._dirty:
                os.pwrite(self._file.fileno(), evicted.tobytes(), oldest * _PAGE_BYTES)
                self._dirty.discard(oldest)
        raw = os.pread(self._file.fileno(), _PAGE_BYTES, number * _PAGE_BYTES)
        return array("Q", raw.ljust(_PAGE_BYTES, b"\0"))


def digest_id(value: object) -> bytes:
    """16 bytes that stand for a value of the id column; 1 and "1" differ."""
    return hashlib.blake2b(f"{type(value).__name__}:{value}".encode(), digest_size=16).digest()


class IdTable:
    """Row positions by id digest: open addressing on disk, no memory per row."""

    def __init__(self, folder: Path, rows: int) -> None:
        """Make room for `rows` ids."""
        self._slots = 1 << max(10, (rows * 2).bit_length())
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - lives as long as the object
        self._file.truncate(self._slots * _SLOT)

    def add(self, digest: bytes, position: int) -> int:
        """Store `digest`. Returns `position`, or the position that has this digest already (nothing is stored then)."""
        slot, found = self._find(digest)
        if found >= 0:
            return found
        os.pwrite(self._file.fileno(), digest + (position + 1).to_bytes(8, "little"), slot * _SLOT)
        return position

    def position(self, digest: bytes) -> int:
        """Position stored for `digest`, -1 for none."""
        return self._find(digest)[1]

    def close(self) -> None:
        """Drop the table."""
        self._file.close()

    def _find(self, digest: bytes) -> tuple[int, int]:
        fd, slot = self._file.fileno(), int.from_bytes(digest[:8], "little") & (self._slots - 1)
        while (entry := os.pread(fd, _SLOT, slot * _SLOT)) != _EMPTY:
            if entry[:16] == digest:
                return slot, int.from_bytes(entry[16:], "little") - 1
            slot = (slot + 1) & (self._slots - 1)
        return slot, -1
