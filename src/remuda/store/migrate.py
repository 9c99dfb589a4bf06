"""Bring a database to the schema in force, once, however many processes start at the same moment."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text

from remuda.base.errors import Conflict, InputError, RemudaError
from remuda.store.tables import METADATA, REVISION, VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import Connection, Engine

    from remuda.store.address import Address

FOLDER: Final = Path(__file__).parent / "migrations"
WRITE: Final = "remuda_write"
"""Execution option of connections whose transactions take SQLite's write lock at once."""
_ADVISORY_KEY: Final = 7_236_748_832
"""Any number, the same in all versions: PostgreSQL's advisory lock around migrations."""
_one_at_a_time = Lock()  # Alembic keeps the migration that runs in module variables.


def revision(connection: Connection) -> str:
    """Revision of the database; empty when it holds nothing of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return ""
    return connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) or ""  # noqa: S608 - a constant


def upgrade(engine: Engine, address: Address) -> str:
    """Run the migrations that are missing, all or none, and return the revision that was there before.

    Raises:
        Conflict: the database is of a newer program; nothing was changed.
        InputError: it holds tables of our names that are not ours.
    """
    with engine.connect() as connection:
        found = revision(connection)
        if found == REVISION and _journal_fits(connection, address):
            return found
    with _one_at_a_time, file_lock(address), engine.connect().execution_options(**{WRITE: True}) as connection:
        if address.path is not None:
            check_not_newer(address, found)
            _set_journal(connection, address)
        with connection.begin():
            if address.path is None:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_KEY})
            found = revision(connection)  # again: another process may have been faster
            if found != REVISION:
                check_not_newer(address, found)
                _check_ours(connection, address, found)
                _run(connection)
            return found


def check_not_newer(address: Address, found: str) -> None:
    """Refuse a database whose revision this program does not know.

    Raises:
        Conflict: it is of a newer program.
    """
    if found and (not found.isdecimal() or found > REVISION):
        raise Conflict(
            f"database {address.shown} is at revision {found}, this program knows {REVISION} at most",
            hint="use the newer remuda that wrote it; nothing was changed",
        )


@contextmanager
def file_lock(address: Address) -> Iterator[None]:
    """Keep other processes from setting up or replacing the same file; nothing to do for a server.

    Raises:
        RemudaError: the lock file cannot be made.
    """
    if address.path is None:
        yield
        return
    beside = address.path.with_name(f"{address.path.name}.lock")
    try:
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise RemudaError(f"lock file {beside} cannot be opened: {error.strerror}") from error
    try:
        # Some network file systems have no such locks. The migration's own transaction still lets only one through.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)  # the lock ends with it


def journal_mode(connection: Connection) -> str:
    """SQLite's journal mode in force, lower case."""
    return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar()).lower()


def _wanted_journal(address: Address) -> str:
    # WAL needs memory shared between all processes; machines that share only the files corrupt each other's database.
    # There the journal's file stays, so that a full disk has room for it.
    return "persist" if address.on_network else "wal"


def _journal_fits(connection: Connection, address: Address) -> bool:
    return address.path is None or journal_mode(connection) == _wanted_journal(address)


def _set_journal(connection: Connection, address: Address) -> None:
    """Set the journal mode, which SQLite does only outside transactions."""
    raw = connection.connection.driver_connection
    assert raw is not None
    raw.execute(f"PRAGMA journal_mode = {_wanted_journal(address)}").close()


def _check_ours(connection: Connection, address: Address, found: str) -> None:
    if found:
        return
    foreign = sorted(set(inspect(connection).get_table_names()) & set(METADATA.tables))
    if foreign:
        raise InputError(
            f"database {address.shown} already has a table {foreign[0]!r} that remuda did not make",
            hint="give remuda a database of its own",
        )


def _run(connection: Connection) -> None:
    """Run Alembic inside the transaction of `connection`. Imported here: a database in order does not need it."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Config reads `%` as the start of an interpolation.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
