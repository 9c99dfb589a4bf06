"""Files that one process holds while it lives: the kernel lets go of them with it."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from remuda.base.errors import Conflict

if TYPE_CHECKING:
    from pathlib import Path


class Lock:
    """Held until `close`; the holder's pid is in the file where the disk has room for it.

    Args:
        path: of the file.
        taken: what is said where another process holds it.
        hint: what to do then.

    Raises:
        Conflict: another one does.
    """

    def __init__(self, path: Path, taken: str, hint: str = "") -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise Conflict(taken, hint=hint) from None
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Let another one have it."""
        os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Whether a process holds the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
