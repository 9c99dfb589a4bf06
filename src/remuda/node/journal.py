"""The node program's own log: its standard error, or `node.log` where that is the user's."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from remuda.node.capped import CappedFile

if TYPE_CHECKING:
    from pathlib import Path

NODE_LOG = "node.log"
MAX_BYTES = 4 << 20
LEVELS = ("debug", "info", "warning", "error")


class NodeLog:
    """Writes lines.

    Args:
        run_dir: of the allocation.
        task: named in each line.
        level: least that is written, one of `LEVELS`; another word counts as `info`.
        to_file: write `node.log` itself, unless standard error is that file already.
    """

    def __init__(self, run_dir: Path, task: str, level: str, *, to_file: bool) -> None:
        self._task = task
        self._least = LEVELS.index(level) if level in LEVELS else 1
        own = to_file and not _is_stderr(run_dir / NODE_LOG)
        self._file = CappedFile(run_dir / NODE_LOG, MAX_BYTES) if own else None

    @property
    def is_apart(self) -> bool:
        """Whether this program's standard error is not the log."""
        return self._file is not None

    def say(self, level: str, text: str) -> None:
        """One line, if that much is wanted."""
        if LEVELS.index(level) < self._least:
            return
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {level:<7} {self._task} {text}\n"
        if self._file is not None:
            self._file.append(line.encode("utf-8", "replace"))
        else:
            sys.stderr.write(line)
            sys.stderr.flush()


def _is_stderr(path: Path) -> bool:
    try:
        there, mine = path.stat(), os.fstat(2)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)
