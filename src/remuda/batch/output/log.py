"""An append-only file of framed records that survives being cut or damaged anywhere.

File: 8 bytes of magic, then frames. Frame: 4 bytes of mark, number of the frame (u32), length of the payload (u32),
CRC-32 of number, length and payload (u32), payload; little endian. The mark begins with a byte that no UTF-8 text
has, so a reader that meets a damaged frame finds the next one behind it; the numbers say how many it missed. What
follows the last whole frame is a torn tail: it is cut when the log is opened for writing.
"""

from __future__ import annotations

import os
import shutil
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from zlib import crc32

from remuda.base.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAGIC: Final = b"RMDLOG2\n"
_MARK: Final = b"\xf5RMD"
_HEAD: Final = struct.Struct("<4sIII")
_CHECKED: Final = struct.Struct("<II")
HEAD_BYTES: Final = _HEAD.size
_BLOCK: Final = 1 << 20
#: Longer records are read only after their checksum was found right: a damaged length must not fill the memory.
_TRUSTED: Final = 8 * _BLOCK
#: Larger records are taken for garbage; a row's answer of a gigabyte is not an answer.
_LONGEST: Final = 1 << 30


class StorageFull(RemudaError):
    """The disk refuses the checkpoint; what was written before is safe."""


def _head(payload: bytes, number: int) -> bytes:
    length = len(payload)
    return _HEAD.pack(_MARK, number, length, crc32(payload, crc32(_CHECKED.pack(number, length))))


def scan(path: Path) -> Iterator[tuple[int, bytes]]:
    """Offsets and payloads of the whole records of a log, in file order; see `Scan`."""
    return iter(Scan(path))


class Scan:
    """One pass over a log that goes on behind whatever is damaged.

    Memory: one block of 1 MiB and the largest record. Time: that of reading the file, at most a few times where
    damaged lengths make whole records of it look wrong.

    Attributes:
        end: where the last whole record ends; what lies behind it is no record.
        number: of the next frame.
        damaged: places that are neither a record nor a torn tail.
        lost: records that are missing in them.
    """

    def __init__(self, path: Path) -> None:
        self.end = 0
        self.number = 0
        self.damaged = 0
        self.lost = 0
        self._path = path
        self._fd = -1
        self._size = 0
        self._wasted = 0

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Offset and payload of each whole record.

        Raises:
            RemudaError: the file cannot be read.
        """
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                yield from self._records()
            finally:
                os.close(self._fd)
        except OSError as error:
            raise RemudaError(f"the checkpoint {self._path} cannot be read: {error.strerror}") from error

    def _records(self) -> Iterator[tuple[int, bytes]]:
        self._size = os.fstat(self._fd).st_size
        begin = os.pread(self._fd, len(MAGIC), 0)
        at = self.end = len(MAGIC) if begin == MAGIC else 0
        start, buffer = at, b""
        while True:
            if at - start + HEAD_BYTES > len(buffer):
                start, buffer = at, os.pread(self._fd, _BLOCK, at)
            place = at - start
            if len(buffer) - place < HEAD_BYTES:
                break
            mark, number, length, check = _HEAD.unpack_from(buffer, place)
            is_far = place + HEAD_BYTES + length > len(buffer)
            if is_far and self._is_plausible(at, number, length, check):
                start, buffer, place = at, os.pread(self._fd, max(_BLOCK, HEAD_BYTES + length), at), 0
            payload = buffer[place + HEAD_BYTES : place + HEAD_BYTES + length]
            if len(payload) == length > 0 and crc32(payload, crc32(_CHECKED.pack(number, length))) == check:
                self.damaged += mark != _MARK
                self._passed(at, number)
                yield at, payload
                at = self.end = at + HEAD_BYTES + length
                continue
            self._wasted += len(payload) if is_far else 0
            at = self._next_mark(at + 1)
            if at < 0:
                break
        self._judge_tail()

    def _passed(self, at: int, number: int) -> None:
        """Count what is missing between the last whole record and the one at `at`."""
        self.damaged += at != self.end
        self.lost += max(0, number - self.number)
        self.number = number + 1

    def _is_plausible(self, at: int, number: int, length: int, check: int) -> bool:
        """Whether a frame that reaches behind what was read is worth reading; a long one only when it is whole."""
        begin, end = at + HEAD_BYTES, at + HEAD_BYTES + length
        if not 0 < length <= _LONGEST or end > self._size:
            return False
        # Many damaged lengths must not cost a reading of the file each.
        if self._wasted > 2 * self._size and os.pread(self._fd, len(_MARK), end) not in {_MARK, b""}:
            return False
        if length <= _TRUSTED:
            return True
        found = crc32(_CHECKED.pack(number, length))
        for part in range(begin, end, _BLOCK):
            found = crc32(os.pread(self._fd, min(_BLOCK, end - part), part), found)
        self._wasted += length if found != check else 0
        return found == check

    def _next_mark(self, at: int) -> int:
        """Where the next mark is, -1 for nowhere."""
        while block := os.pread(self._fd, _BLOCK, at):
            if (found := block.find(_MARK)) >= 0:
                return at + found
            if len(block) < len(_MARK):
                break
            at += len(block) - len(_MARK) + 1
        return -1

    def _judge_tail(self) -> None:
        """Tell what a kill or a power cut leaves (part of a frame, zeros) from damage."""
        head = os.pread(self._fd, HEAD_BYTES, self.end)
        if len(head) < HEAD_BYTES:
            return
        mark, number, length, _ = _HEAD.unpack(head)
        is_part = mark == _MARK and number == self.number and self.end + HEAD_BYTES + length > self._size
        at, marks, is_zero = self.end, 0, True
        while block := os.pread(self._fd, _BLOCK, at):
            is_zero = is_zero and not block.strip(b"\0")
            marks += block.count(_MARK)
            at += len(block)
        if (is_part and marks == 1) or is_zero:
            return
        self.damaged += 1
        self.lost += max(1, marks)


def salvage(path: Path) -> Path:
    """Write a damaged log anew with its whole records; the damaged file stays beside it.

    Returns:
        Where the damaged file is.

    Raises:
        StorageFull: the disk refuses; nothing has changed.
    """
    made = path.with_name(f".{path.name}.salvaged")
    try:
        made.unlink(missing_ok=True)
        log = LogWriter(made, 0)
        try:
            for number, (_, payload) in enumerate(scan(path)):
                log.append(payload)
                if number % 256 == 0:
                    log.flush()
            log.flush()
            log.sync()
        finally:
            log.close()
        kept = _keep(path)
        made.replace(path)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with suppress(OSError):
            made.unlink(missing_ok=True)
    return kept


def _keep(path: Path) -> Path:
    """A second name for the damaged file; one that a killed run gave it already is taken."""
    number = 1
    while True:
        kept = path.with_name(f"{path.stem}.damaged-{number}{path.suffix}")
        try:
            kept.hardlink_to(path)
        except FileExistsError:
            if kept.samefile(path):
                return kept
            number += 1
        except OSError:
            # A file system without hard links.
            shutil.copyfile(path, kept)
            return kept
        else:
            return kept


class LogWriter:
    """Appends frames: `append` collects, `flush` hands them to the kernel, `sync` to the disk."""

    def __init__(self, path: Path, end: int, number: int = 0) -> None:
        """Open `path` for appending frame `number` at `end`; what lies behind it is cut. `end` 0 starts a new log.

        Raises:
            StorageFull: the disk is full or refuses.
        """
        self.path = path
        self.end = end
        self._number = number
        self._buffer: list[bytes] = []
        self._dirty = False
        self._broken: OSError | None = None
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _refused(path, error) from error
        try:
            os.ftruncate(self._fd, end)
            self._written = end
            if end == 0:
                self._write(MAGIC)
                self.end = len(MAGIC)
        except OSError as error:
            os.close(self._fd)
            raise _refused(path, error) from error

    def append(self, payload: bytes) -> int:
        """Take one record; returns the offset at which it will lie. Nothing is written yet."""
        offset = self.end
        self._buffer.append(_head(payload, self._number))
        self._buffer.append(payload)
        self._number += 1
        self.end = offset + HEAD_BYTES + len(payload)
        return offset

    def flush(self) -> None:
        """Hand everything taken to the kernel: from here on it survives a kill of this process.

        Raises:
            StorageFull: the disk is full or refuses; the log ends with a torn record, which the next open cuts.
        """
        if self._broken is not None:
            # Where it was torn, nothing may follow in the same run: the offsets behind it are wrong.
            raise _refused(self.path, self._broken) from self._broken
        if not self._buffer:
            return
        data = b"".join(self._buffer)
        self._buffer.clear()
        try:
            self._write(data)
        except OSError as error:
            self._broken = error
            raise _refused(self.path, error) from error

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
            raise _refused(self.path, error) from error

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


def _refused(path: Path, error: OSError) -> StorageFull:
    return StorageFull(
        f"the checkpoint {path} cannot be written: {error.strerror}",
        hint="make room and type the same command again; the rows written so far are kept",
    )


def read_many(fd: int, offsets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """Offset and payload for each of `offsets`, in their order.

    Raises:
        RemudaError: a record is damaged, or cannot be read.
    """
    start, buffer = 0, b""
    hint = "type the same command again: the other rows are kept, and this one is asked again"
    try:
        for offset in offsets:
            at = offset - start
            if at < 0 or at + HEAD_BYTES > len(buffer):
                start, buffer, at = offset, os.pread(fd, _BLOCK // 4, offset), 0
            if len(buffer) < at + HEAD_BYTES:
                raise RemudaError(f"the checkpoint has no record at byte {offset}", hint=hint)
            _, number, length, check = _HEAD.unpack_from(buffer, at)
            if at + HEAD_BYTES + length > len(buffer) and length <= _LONGEST:
                start, buffer, at = offset, os.pread(fd, max(_BLOCK // 4, HEAD_BYTES + length), offset), 0
            payload = buffer[at + HEAD_BYTES : at + HEAD_BYTES + length]
            if crc32(payload, crc32(_CHECKED.pack(number, length))) != check:
                raise RemudaError(f"the checkpoint is damaged at byte {offset}", hint=hint)
            yield offset, payload
    except OSError as error:
        raise RemudaError(f"the checkpoint cannot be read: {error.strerror}", hint=hint) from error
