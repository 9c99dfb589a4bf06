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
