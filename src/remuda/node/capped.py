"""Files that grow and yet cannot fill a disk: at its bound `name` becomes `name.1`, and a new `name` begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class CappedFile:
    """Appends whole pieces to a file that is renamed when it is full; readers follow it by name (`tail -F`).

    A full disk loses what could not be written, which is counted, and does not disturb anybody.

    Args:
        path: the file.
        max_bytes: bound of one file; there are at most two.
        mode: of the file, and with the right to enter of the folder, if they are made here; the umask takes from it.
    """

    def __init__(self, path: Path, max_bytes: int, mode: int = 0o600) -> None:
        self._mode = mode
        self.lost_bytes = 0
        self.is_mute = False
        """Set it to write no more: the file is another's now."""
        self._path = path
        self._max = max_bytes
        self._fd = -1
        self._size = 0

    def append(self, data: bytes, *, sync: bool = False) -> None:
        """Add `data`; `sync` also waits until it would survive a crash of the machine."""
        if self.is_mute:
            return
        try:
            self._open()
            if self._size and self._size + len(data) > self._max:
                self._rotate()
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            self._size += written
            if sync:
                os.fsync(self._fd)
        except OSError:
            self.lost_bytes += len(data)

    def take(self, _stream: int, data: bytes) -> None:
        """`append` for `Streams`, whatever stream it is."""
        self.append(data)

    def close(self) -> None:
        """Close the file; a later `append` opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        if self._fd < 0:
            self._path.parent.mkdir(mode=self._mode | (self._mode >> 2 & 0o111), parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, self._mode)
            self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        self.close()
        self._path.replace(f"{self._path}.1")
        self._open()
