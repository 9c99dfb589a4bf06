"""Files that only the user reads and writes, whatever umask the program was started with."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def open_new(path: Path) -> IO[str]:
    """A text file to be written from its beginning.

    Raises:
        OSError: it cannot be opened.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")


def write_whole(path: Path, text: str, *, mode: int = 0o600, sync: bool = False) -> None:
    """Replace a file: whoever reads it has the old text or the new one. Several nodes may do so at once.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    with open_new(draft) as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), mode)
        if sync:
            os.fsync(file.fileno())
    draft.replace(path)
