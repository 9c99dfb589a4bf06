"""Looking after a database: status, copies, pruning, compacting."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, literal, select, text

from remuda.base.disk.private import make_missing
from remuda.base.errors import Conflict, InputError, NotFound, RemudaError
from remuda.store.address import read_address
from remuda.store.database import read_rows, rows_of
from remuda.store.faults import RESTORE_HINT, translated
from remuda.store.migrate import file_lock, journal_mode, revision
from remuda.store.rows import StoryLine
from remuda.store.tables import ALLOCATION, EVENT, METADATA, NODE_EVIDENCE, REVISION, TASK, VERSION_TABLE, WORKLOAD

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Connection

    from remuda.store.database import Store

_PG_DUMP: Final = "remuda copies SQLite files only; copy a PostgreSQL database with `pg_dump` and `pg_restore`"


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """What there is to know about a database."""

    where: str
    dialect: str
    """`sqlite` or `postgresql`."""
    revision: str
    newest_revision: str
    """That this program knows."""
    size_bytes: int
    counts: dict[str, int]
    """Rows by table."""
    journal_mode: str
    """SQLite's; empty on PostgreSQL."""
    file_system: str
    """As the kernel names it; empty on PostgreSQL or where it cannot be read."""
    on_network: bool


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many rows went."""

    events: int
    allocations: int
    evidence: int


def status(store: Store) -> DatabaseStatus:
    """Revision, size and row counts. Cost: one pass over every table's smallest index."""
    address = store.address
    with store.reading() as connection:
        dialect = connection.dialect.name
        counts = {
            name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for name, table in METADATA.tables.items()
            if name not in {"lease", "meta"}
        }
        return DatabaseStatus(
            where=address.shown,
            dialect=dialect,
            revision=revision(connection),
            newest_revision=REVISION,
            size_bytes=_size(connection, address.path),
            counts=counts,
            journal_mode="" if address.path is None else journal_mode(connection),
            file_system=address.file_system,
            on_network=address.on_network,
        )


def lines(store: Store, after: int | None, limit: int) -> list[StoryLine]:
    """Lines of all stories behind an id, the newest ones, oldest first; None: the newest line alone."""
    query = rows_of(EVENT, StoryLine).order_by(EVENT.c.id.desc()).limit(1 if after is None else limit)
    with store.reading() as connection:
        return read_rows(connection, StoryLine, query if after is None else query.where(EVENT.c.id > after))[::-1]


def _size(connection: Connection, path: Path | None) -> int:
    if path is None:
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def backup(store: Store, to: Path) -> int:
    """Copy a SQLite database while it is in use, as of one moment, and check the copy.

    Args:
        store: what to copy.
        to: a new file; appears whole or not at all, mode 0600.

    Returns:
        Size of the copy in bytes.

    Raises:
        Conflict: `to` exists.
        InputError: `to` cannot be written, or the database is on PostgreSQL.
        RemudaError: the copy is not sound.
    """
    if store.address.path is None:
        raise InputError(f"database {store.address.shown} is not a file", hint=_PG_DUMP)
    if to.exists():
        raise Conflict(f"{to} exists already", hint="name another file, or move this one away")
    partial = _new_file_beside(to)
    try:
        with translated(store.address), store.reading() as connection, closing(sqlite3.connect(partial)) as copy:
            source = connection.connection.driver_connection
            assert isinstance(source, sqlite3.Connection)
            source.backup(copy)
            # A copy in WAL mode would need a second file beside it.
            copy.execute("PRAGMA journal_mode = DELETE").close()
        _check_sound(partial)
        _sync(partial)
        partial.rename(to)
    finally:
        partial.unlink(missing_ok=True)
    return to.stat().st_size


def restore(path: Path, copy: Path) -> Path | None:
    """Put a copy in the place of a database file. No process may have that file open.

    Args:
        path: the database file, damaged, missing or outdated.
        copy: made by `backup`.

    Returns:
        Where the replaced file was put, None when there was none.

    Raises:
        NotFound: there is no copy.
        RemudaError: the copy is damaged or is not a database of remuda; nothing was changed.
    """
    if not copy.is_file():
        raise NotFound(f"no file {copy}")
    _check_sound(copy)
    make_missing(path.parent)
    partial = _new_file_beside(path)
    try:
        shutil.copyfile(copy, partial)
        _sync(partial)
        with file_lock(read_address(path)):
            aside = _put_aside(path)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return aside


def prune(store: Store, fence: int, before: float, *, keep: int = 1000) -> Pruned:
    """Forget what is old: events and ended allocations from before `before`, and expired evidence.

    Of workloads that still exist, the newest `keep` events stay whatever their age, and so do the allocations that
    their tasks have now. Of workloads that were removed, everything old goes.

    Raises:
        Fenced: `fence` is not that of the lease in force.
    """
    with store.writing(fence) as connection:
        allocations = connection.execute(delete(ALLOCATION).where(_old_allocations(before))).rowcount
        evidence = connection.execute(delete(NODE_EVIDENCE).where(NODE_EVIDENCE.c.expires_at < before)).rowcount
        kept = select(WORKLOAD.c.name)
        gone = EVENT.c.workload.not_in(kept)
        events = connection.execute(delete(EVENT).where(EVENT.c.at < before, gone)).rowcount
        for name in connection.scalars(kept).all():
            mine = EVENT.c.workload == name
            newest = select(EVENT.c.id).where(mine).order_by(EVENT.c.id.desc()).offset(keep).limit(1)
            last = connection.scalar(newest)
            if last is not None:
                old = delete(EVENT).where(mine, EVENT.c.at < before, EVENT.c.id <= last)
                events += connection.execute(old).rowcount
    return Pruned(events=events, allocations=allocations, evidence=evidence)


def _old_allocations(before: float) -> ColumnElement[bool]:
    columns = ALLOCATION.c
    in_use = select(literal(1)).where(TASK.c.token == columns.token).exists()
    removed = columns.workload.not_in(select(WORKLOAD.c.name))
    # Of a removed workload even those without an end are over: it was removed after its tasks had ended.
    ended = (columns.ended_at > 0) & (columns.ended_at < before)
    return (ended | (removed & (columns.submitted_at < before))) & ~in_use


def _new_file_beside(path: Path) -> Path:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    return partial


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_sound(path: Path) -> None:
    """Raise RemudaError unless `path` is an undamaged database of ours."""
    address = read_address(path)
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with translated(address), closing(sqlite3.connect(uri, uri=True)) as connection:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        ours = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).fetchone()[0]
    if verdict != "ok":
        raise RemudaError(f"database {path} is damaged: {verdict}", hint=RESTORE_HINT)
    if not ours:
        raise RemudaError(f"{path} is not a database of remuda")


def _put_aside(path: Path) -> Path | None:
    """Rename a database file with its journal files, which belong to it alone."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    aside = path.with_name(f"{path.name}.replaced-{stamp}")
    for suffix in ("-wal", "-shm", "-journal"):
        companion = path.with_name(path.name + suffix)
        if companion.exists():
            companion.rename(aside.with_name(aside.name + suffix))
    if not path.exists():
        return None
    path.rename(aside)
    return aside
