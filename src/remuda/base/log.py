"""Logging for long-lived processes: one line an event, time first, secrets never, and never more than a disk holds."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from remuda.base.settings import setting
from remuda.base.text import clean

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES: Final = 16 << 20
"""Of a log file; the one before it is kept beside it."""
PER_MINUTE: Final = 20
"""Warnings and errors from one line of code; the rest are counted."""


class Thrift(logging.Filter):
    """Lets so many warnings of one kind pass in a minute, and says how many did not."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether it is written."""
        if record.levelno < logging.WARNING:
            return True
        kind, now = (record.pathname, record.lineno), time.monotonic()
        begun, count = self._seen.get(kind, (now, 0))
        if now - begun >= 60.0:
            if count > PER_MINUTE:
                record.msg = f"{record.getMessage()} (and {count - PER_MINUTE} more like it in between)"
                record.args = None
            begun, count = now, 0
        self._seen[kind] = (begun, count + 1)
        return count < PER_MINUTE


class PlainFormatter(logging.Formatter):
    """Records as text that does nothing to the terminal which shows it, whoever wrote a part of it."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        return clean(super().format(record))


class KeptSmall(logging.StreamHandler[TextIO]):
    """Standard error; where that is the file `path`, a new file is begun when it is full."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self.addFilter(Thrift())

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        super().emit(record)
        if self._path is not None:
            with suppress(OSError, ValueError):
                turn(self._path, self.stream.fileno(), sys.stdout.fileno())


def turn(path: Path, *descriptors: int, max_bytes: int = MAX_BYTES) -> bool:
    """Begin a new file `path` for those of `descriptors` that write to it, if it is full; the old one is `path`.1.

    Raises:
        OSError: the folder cannot be written now.
    """
    named = path.stat()
    if named.st_size < max_bytes:
        return False
    writers = [one for one in descriptors if os.path.samestat(os.fstat(one), named)]
    if not writers:
        return False
    path.replace(path.with_name(f"{path.name}.1"))
    fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for one in writers:
        os.dup2(fresh, one)
    os.close(fresh)
    return True


def setup(level: str = "", path: Path | None = None) -> None:
    """Send the log to standard error.

    Args:
        level: overrides `REMUDA_LOG_LEVEL`; an unknown level means info.
        path: the file that standard error may be; it is kept small.
    """
    said = level or setting("LOG_LEVEL") or "info"
    chosen = logging.getLevelNamesMapping().get(said.upper(), logging.INFO)
    handler = KeptSmall(path)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=chosen, handlers=[handler], force=True)
    if said.upper() not in logging.getLevelNamesMapping():
        logging.getLogger("remuda").warning("%r is not a log level (debug, info, warning, error): taken as info", said)
    for name in ("alembic", "uvicorn"):
        logging.getLogger(name).setLevel(max(chosen, logging.WARNING))
