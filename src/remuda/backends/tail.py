"""The end of a text file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def last_text(path: Path, size: int) -> str:
    """Last `size` bytes of a text file, from a line's beginning; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - size))
            raw = file.read()
    except OSError:
        return ""
    text = raw.decode(errors="replace")
    return text[text.find("\n") + 1 :] if len(raw) < end else text
