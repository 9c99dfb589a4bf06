"""Room that a SQLite database keeps in its own files, so that what ends can be recorded on a full disk.

Pages in the file that are free, and a log that has been as long before: writes that fit in there need nothing of the
disk, which whoever fills it would take at once. The log of one process outlives it as `-spare`, and the next one begins
with it; the little that SQLite asks for when it opens is let go from `-room`.
"""

from __future__ import annotations

import logging
import os
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import RemudaError, Unwritable
from remuda.store.faults import translated
from remuda.store.migrate import file_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.store.address import Address
    from remuda.store.database import Store

_LOG = logging.getLogger("remuda.store")
ROOM_BYTES: Final = 512 * 1024
"""That is free inside of the database after `keep`: some thousand ends."""
_BRICK_BYTES: Final = 64 * 1024
"""Let go at once when it cannot be opened: more than what SQLite shares between processes."""
_BRICKS: Final = 8


class Files:
    """The files of one database as they were when it was opened; on a server there is nothing to know."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known: tuple[object, ...] | None = None

    def remember(self) -> None:
        """They are now as they shall be."""
        self._known = self._look()

    def forget(self) -> None:
        """Nothing is open any more."""
        self._known = None

    @property
    def are_ours(self) -> bool:
        """Whether what lies there is still what was opened."""
        return self._known is None or self._look() == self._known

    def check(self) -> None:
        """Raise if what is written would not be found again.

        Raises:
            Unwritable: one of them was removed or replaced.
        """
        if not self.are_ours:
            raise Unwritable(
                f"database {self._address.shown} was removed or replaced while it was in use: nothing can be recorded",
                hint="put its files back; or save what the host knows (remuda db backup FILE), stop it (remuda host "
                "stop), and bring that back (remuda db restore FILE)",
            )

    def _look(self) -> tuple[object, ...] | None:
        path = self._address.path
        return None if path is None else (_identity(path), _identity(_beside(path, "-wal")))


def _identity(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def keep(store: Store) -> None:
    """Write what the log holds into the database file, and see that there is room in both. A full disk is no error.

    Raises:
        RemudaError: the database does not answer.
    """
    if store.address.path is None:
        return
    store.files.check()
    with closing(store.engine.raw_connection()) as connection, translated(store.address):
        raw = connection.driver_connection
        assert raw is not None
        raw.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        if _free_bytes(raw) < ROOM_BYTES // 2:
            with suppress(Unwritable), translated(store.address):
                _add_pages(raw)
    with suppress(OSError):
        _lay_bricks(_beside(store.address.path, "-room"))


def _free_bytes(raw: Any) -> int:
    numbers = [int(raw.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("freelist_count", "page_size")]
    return numbers[0] * numbers[1]


def _add_pages(raw: Any) -> None:
    """Fill pages and free them. The second filling is for the journal, which keeps the length that it once had."""
    for statement in (
        "DROP TABLE IF EXISTS remuda_room",
        "CREATE TABLE remuda_room (filling BLOB)",
        f"INSERT INTO remuda_room VALUES (zeroblob({ROOM_BYTES}))",  # noqa: S608 - a constant
        f"UPDATE remuda_room SET filling = randomblob({ROOM_BYTES})",  # noqa: S608 - a constant
        "PRAGMA wal_checkpoint(PASSIVE)",
        "DROP TABLE remuda_room",
    ):
        raw.execute(statement).close()


def _lay_bricks(path: Path) -> None:
    if path.exists() and path.stat().st_size >= _BRICKS * _BRICK_BYTES:
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(os.urandom(_BRICKS * _BRICK_BYTES))  # some file systems keep no zeros


def let_go(path: Path) -> bool:
    """Give a little back to the disk, for whoever is quick; whether there was something to give."""
    bricks = _beside(path, "-room")
    try:
        size = bricks.stat().st_size
        if size < _BRICK_BYTES:
            return False
        os.truncate(bricks, size - _BRICK_BYTES)
    except OSError:
        return False
    return True


def take_log_back(path: Path) -> None:
    """Begin with the log that `log_kept` left; where there is one in use already, that stays. Under `file_lock`."""
    spare = _beside(path, "-spare")
    if not path.exists() or not spare.exists():
        return
    with suppress(OSError):
        os.link(spare, _beside(path, "-wal"))
    with suppress(OSError):
        spare.unlink()


@contextmanager
def log_kept(store: Store) -> Iterator[None]:
    """The last one to close a database removes its log, and the room in it: keep that as a file without content."""
    yield
    path = store.address.path
    if path is None or not store.files.are_ours:
        return
    wal, draft = _beside(path, "-wal"), _beside(path, "-spare.draft")
    try:
        with file_lock(store.address):
            draft.unlink(missing_ok=True)
            os.link(wal, draft)
            store.close()
            _empty(draft, _beside(path, "-spare"))
    except (OSError, RemudaError) as error:
        _LOG.info("the log of %s is not kept: %s", store.address.shown, error)


def _empty(draft: Path, spare: Path) -> None:
    if draft.stat().st_nlink > 1:  # others have the database open, and the log is theirs
        draft.unlink()
        return
    descriptor = os.open(draft, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, bytes(32), 0)  # without its header it is an empty log, as long as it was
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    draft.rename(spare)
