"""An append-only file of framed records that survives being cut anywhere.

File: 8 bytes of magic, then frames. Frame: length of the payload (u32), CRC-32 of the payload (u32), payload; little
endian. What follows the first frame that is not whole is a torn tail: it is cut when the log is opened for writing.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final
from zlib import crc32

from remuda.base.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAGIC: Final = b"RMDLOG1\n"
_HEAD: Final = struct.Struct("<II")
_BLOCK: Final = 1 << 20
#: Larger records are taken for garbage; a row's answer of a gigabyte is not an answer.
_LONGEST: Final = 1 << 30


class StorageFull(RemudaError):
    """The disk refuses the checkpoint; what was written before is safe."""


def frame(payload: bytes) -> bytes:
    """One record as it lies in the file."""
    return _HEAD.pack(len(payload), crc32(payload)) + payload


def scan(path: Path) -> Iterator[tuple[int, bytes]]:
    """Offsets and payloads of the whole records of a log, in file order; ends silently at a torn tail.

    Memory: one block of 1 MiB and the largest record.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return
        start, buffer, at = len(MAGIC), b"", 0
        while True:
            head = buffer[at : at + 8]
            length, check = _HEAD.unpack(head) if len(head) == 8 else (0, 0)
            if length > _LONGEST:
                return
            if len(head) < 8 or len(buffer) - at < 8 + length:
                more = file.read(max(_BLOCK, length))
                if not more:
                    return
                start, buffer, at = start + at, buffer[at:] + more, 0
                continue
            payload = buffer[at + 8 : at + 8 + length]
            # A frame of length 0 is what zeroed blocks after a power cut look like.
            if crc32(payload) != check or not length:
                return
            yield start + at, payload
            at += 8 + length


class LogWriter:
    """Appends frames: `append` collects, `flush` hands them to the kernel, `sync` to the disk."""

    def __init__(self, path: Path, end: int) -> None:
        """Open `path` for appending at `end`; what lies behind it is cut. `end` 0 starts a new log.

        Raises:
            StorageFull: the disk is full or refuses.
        """
        self.path = path
        self.end = end
        self._buffer: list[bytes] = []
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._dirty = False
        try:
            os.ftruncate(self._fd, end)
            self._written = end
            if end == 0:
                self._write(MAGIC)
                self.end = len(MAGIC)
        except OSError as error:
            raise self._refused(error) from error

    def append(self, payload: bytes) -> int:
        """Take one record; returns the offset at which it will lie. Nothing is written yet."""
        offset = self.end
        self._buffer.append(_HEAD.pack(len(payload), crc32(payload)))
        self._buffer.append(payload)
        self.end = offset + 8 + len(payload)
        return offset

    def flush(self) -> None:
        """Hand everything taken to the kernel: from here on it survives a kill of this process.

        Raises:
            StorageFull: the disk is full or refuses; the log ends with a torn record, which the next open cuts.
        """
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        self._buffer.clear()
        try:
            self._write(data)
        except OSError as error:
            raise self._refused(error) from error

    def sync(self) -> None:
        """Hand everything flushed to the disk: from here on it survives a power cut. Safe to call from a thread.

        Raises:
            StorageFull: the disk refuses.
        """
        if not self._dirty:
            return
        self._dirty = False
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Close the file; what was not flushed is lost."""
        os.close(self._fd)

    def read_many(self, offsets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Payloads at `offsets` of this log, which must be flushed; sorted offsets cost about one read per block."""
        return read_many(self._fd, offsets)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._fd, view, self._written)
            self._written += count
            view = view[count:]
            self._dirty = True

    def _refused(self, error: OSError) -> StorageFull:
        return StorageFull(
            f"the checkpoint {self.path} cannot be written: {error.strerror}",
            hint="make room and type the same command again; the rows written so far are kept",
        )


def read_many(fd: int, offsets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Offset and payload for each of `offsets`, in their order.

    Raises:
        RemudaError: a record is damaged.
    """
    start, buffer = 0, b""
    for offset in offsets:
        at = offset - start
        if at < 0 or at + 8 > len(buffer):
            start, buffer, at = offset, os.pread(fd, _BLOCK // 4, offset), 0
        length, check = _HEAD.unpack_from(buffer, at) if len(buffer) >= at + 8 else (_LONGEST + 1, 0)
        if length > _LONGEST:
            raise RemudaError(f"the checkpoint has no record at byte {offset}", hint="--no-resume starts over")
        if at + 8 + length > len(buffer):
            start, buffer, at = offset, os.pread(fd, max(_BLOCK // 4, 8 + length), offset), 0
        payload = buffer[at + 8 : at + 8 + length]
        if crc32(payload) != check:
            raise RemudaError(f"the checkpoint is damaged at byte {offset}", hint="type the same command again")
        yield offset, payload
