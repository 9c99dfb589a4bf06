"""Writes a spool: a second at a time, minutes closed, bounded, and going on when a full disk has room again."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from remuda.node.recorder.thinning import thin_file
from remuda.wire.recording import Batch, RecordingNote
from remuda.wire.spool import (
    BLOCKS,
    FRAME,
    HEADER,
    OPEN,
    block,
    block_files,
    decode,
    encode,
    joined,
    record,
    renumbered,
)

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.wire.recording import Header

MAX_BYTES = 2 << 30
MINUTE_US = 60_000_000
MINUTES_A_FILE = 60
LATE_MINUTES = 5
"""Minutes that wait for room in which they can be closed (free inodes); after so many all of them are given up, as they
lie in memory and in `open`, which nothing else bounds. 8 GPUs at 10 Hz have 17 MB then."""


def new_folder(recording: Path) -> Path:
    """Make the folder of the next spool of a recording.

    Raises:
        OSError: it cannot be made.
    """
    recording.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(1000):
        folder = recording / f"{number:03}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise OSError(f"{recording} has 1000 spools")


class Spooling:
    """Writer of one spool, whose folder is its own.

    Args:
        folder: is there, and empty.
        header: of the spool.
        max_bytes: of its files together; beyond it the oldest are thinned, and when all are, the oldest are removed.

    Raises:
        OSError: the header cannot be written.
    """

    def __init__(self, folder: Path, header: Header, max_bytes: int = MAX_BYTES) -> None:
        self.folder = folder
        self.lost = 0
        """Rounds for which there was no room."""
        self.thinned = self.dropped = 0
        """Minutes of which one round a second is left, or nothing."""
        self.trouble = ""
        """Why the last write failed; empty when it did not."""
        self.end = 0
        """Number of the next round."""
        self._values = header.values
        self._max = max_bytes
        self._minute: list[Batch] = []
        self.late = ""
        """Why the minute could not be closed when it was over; empty when it could."""
        self._blocks = 0
        self._thin_from = 0
        """Number of the first file that is not thinned."""
        draft = folder / f".{HEADER}.draft"
        draft.write_text(header.to_json(), encoding="utf-8")
        self._open = os.open(folder / OPEN, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        draft.replace(folder / HEADER)

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        sizes = [os.fstat(self._open).st_size] if self._open >= 0 else []
        for path in block_files(self.folder):
            with suppress(OSError):
                sizes.append(path.stat().st_size)
        return sum(sizes)

    def add(self, payload: bytes) -> Batch | None:
        """Write a second, an encoded batch, under the next numbers; None when it could not be, and is lost.

        Raises:
            ValueError: it is no batch.
        """
        payload = renumbered(payload, self.end)
        batch = decode(payload, self._values)
        self.end = batch.end
        is_written = self._append(self._open, record(FRAME, payload))
        if is_written:
            self._minute.append(batch)
        else:
            self.lost += len(batch.times)
        begin = self._minute[0].times[:1] if self._minute else []
        is_due = bool(begin and batch.times) and batch.times[-1] - begin[0] >= MINUTE_US - 1_500_000
        if is_due and (not self.late or len(self._minute) % 30 == 0):  # without room, not in each second
            self.close_minute()
        if self.late and batch.times and batch.times[-1] - begin[0] >= LATE_MINUTES * MINUTE_US:
            self.lost += sum(len(one.times) for one in self._minute)
            self._empty_minute()
        return batch if is_written else None

    def note(self, note: RecordingNote) -> None:
        """Write that something happened. A note takes a number of its own, as a round does."""
        self.add(encode(Batch(0, 1, notes=[note]), self._values))

    def close_minute(self) -> None:
        """Turn what was written since the last time into a block; without room for one it stays as it is."""
        if not self._minute:
            return
        path = self.folder / f"{BLOCKS}{self._blocks // MINUTES_A_FILE:06}"
        data = block(joined(self._minute), self._values)
        try:
            target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            self.late = self.trouble = error.strerror or str(error)
            return
        try:
            if not self._append(target, data):
                self.late = self.trouble
                return
        finally:
            os.close(target)
        self._blocks += 1
        self.late = ""
        self._empty_minute()
        self._bound()

    def _empty_minute(self) -> None:
        self._minute = []
        os.ftruncate(self._open, 0)
        os.lseek(self._open, 0, os.SEEK_SET)

    def close(self, note: RecordingNote) -> None:
        """Write the last word and close the files; a later call does nothing."""
        if self._open < 0:
            return
        self.note(note)
        self.close_minute()
        os.close(self._open)
        self._open = -1

    def _append(self, target: int, data: bytes) -> bool:
        """Write all of it at the end, or nothing."""
        before = os.fstat(target).st_size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(target, view) :]
        except OSError as error:
            self.trouble = os.strerror(error.errno or 0)
            with suppress(OSError):
                os.ftruncate(target, before)
                os.lseek(target, before, os.SEEK_SET)
            return False
        self.trouble = ""
        return True

    def _bound(self) -> None:
        if self.size_bytes <= self._max:
            return
        files = block_files(self.folder)
        dense = [path for path in files if int(path.name[len(BLOCKS) :]) >= self._thin_from]
        with suppress(OSError):
            if len(dense) > 1:
                self._thin_from = int(dense[0].name[len(BLOCKS) :]) + 1
                self.thinned += thin_file(dense[0], self._values)
            elif len(files) > 1:
                files[0].unlink()
                self.dropped += MINUTES_A_FILE
                self.thinned = max(0, self.thinned - MINUTES_A_FILE)
