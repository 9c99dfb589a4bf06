"""Open the database: connect, set it up for its file system, bring it to the schema in force."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event

from remuda.base.disk.private import check_above, check_private, make_missing
from remuda.base.errors import InputError, Unwritable
from remuda.store.address import read_address
from remuda.store.database import Store
from remuda.store.faults import translated
from remuda.store.migrate import WRITE, file_lock, upgrade
from remuda.store.room import Files, let_go, take_log_back

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

    from remuda.store.address import Address

BUSY_TIMEOUT_S: Final = 30.0
_MOUNTS = Path("/proc/self/mounts")


_ELSEWHERE = "set REMUDA_DATABASE_URL to a file in a directory of your own"


def open_store(where: str | Path, *, mounts: Path = _MOUNTS) -> Store:
    """Open a database, make it where there is none, and migrate it to this program's schema.

    Args:
        where: path of a SQLite file, `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`.
        mounts: the kernel's list of mounts, which decides whether the file lies on a network.

    Raises:
        InputError: not a database address, a driver is missing, or it holds somebody else's tables.
        Conflict: it was written by a newer program; nothing was changed.
        Unavailable: the server does not answer, or the file stayed locked.
        NotPrivate: others can write the file, or everybody can put another in its place.
        RemudaError: the file is damaged or cannot be written.
    """
    address = read_address(where, mounts=mounts)
    files = Files(address)
    if address.path is not None:
        check_private(address.path, instead=_ELSEWHERE)
        check_above(address.path, instead=_ELSEWHERE)
        _prepare_file(address.path)
        with file_lock(address):
            take_log_back(address.path)
    engine = _sqlite(address, files) if address.path is not None else _postgres(address)
    try:
        _upgrade(engine, address)
        files.remember()
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, address, files)


def open_beside(where: str | Path) -> Store:
    """Open a database of this program's schema to read it: nothing is written to its tables, made or migrated."""
    address = read_address(where)
    if address.path is None:
        return Store(_postgres(address), address, Files(address))
    uri = f"{address.path.as_uri()}?mode=ro"
    engine = create_engine(address.url, creator=lambda: sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S))
    return Store(engine, address, Files(address))


def _upgrade(engine: Engine, address: Address) -> None:
    """Bring it to the schema in force; on a full disk with what was kept for that."""
    while True:
        try:
            with translated(address):
                upgrade(engine, address)
            return
        except Unwritable:
            if address.path is None or not let_go(address.path):
                raise


def _prepare_file(path: Path) -> None:
    """Make folder and file private to the user before SQLite does: its own files get the mode of this one."""
    try:
        make_missing(path.parent)
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "rb", 0) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise InputError(f"database {path} cannot be opened: {error.strerror}") from error
    if not is_file:
        raise InputError(f"database {path} is a pipe, a socket or a device, not a file", hint=_ELSEWHERE)


def _sqlite(address: Address, files: Files) -> Engine:
    engine = create_engine(
        address.url,
        hide_parameters=True,
        connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def set_up(connection: DBAPIConnection, record: object) -> None:
        del record
        pragmas = [f"busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}", "foreign_keys = ON", "synchronous = FULL"]
        pragmas += ["journal_mode = PERSIST"] if address.on_network else []
        # The driver's own idea of when a transaction begins is switched off; `begin` below decides.
        connection.isolation_level = None
        # FULL in every mode: a submission that was recorded must survive a power cut, or nobody finds it again.
        try:
            files.check()  # another file of that name is another database
            for pragma in pragmas:
                _pragma(connection, pragma)
        except BaseException:
            connection.close()  # SQLAlchemy forgets a connection that could not be set up
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes later cannot wait for a lock, so writers take it at once.
        writes = connection.get_execution_options().get(WRITE, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _pragma(connection: Any, text: str) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA {text}")
    finally:
        cursor.close()


def _postgres(address: Address) -> Engine:
    defaults = {"connect_timeout": 10, "application_name": "remuda"}
    given = {name: value for name, value in defaults.items() if name not in address.url.query}
    return create_engine(address.url, hide_parameters=True, pool_pre_ping=True, connect_args=given)
