"""Looking after the database from the user's process: nothing here writes rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from remuda.base.disk.paths import state_paths
from remuda.base.settings import database_url
from remuda.client.http import running
from remuda.store import ops
from remuda.store.engine import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.store.database import Store


def _open() -> Store:
    paths = state_paths()
    paths.prepare()
    return open_store(database_url(paths))


def status() -> dict[str, Any]:
    """Where it is, revision, size and counts."""
    host = running()  # that has it open, and knows it even where its file is gone
    if host is not None:
        return dict(host.get("/database"))
    with _open() as store:
        return asdict(ops.status(store))


def upgrade() -> str:
    """Open it, which brings it to the newest revision; returns that."""
    with _open() as store:
        return str(ops.status(store).revision)


def restore(copy: Path) -> Path | None:
    """Put a copy made by `backup` in the database's place; returns where the old one was put aside, if there was one.

    Raises:
        Conflict: a host runs.
        InputError: the copy is none, or the database is on PostgreSQL.
    """
    from remuda.base.errors import Conflict, InputError

    paths = state_paths()
    if running() is not None:
        raise Conflict("a host runs on the database", hint="stop it first: remuda host stop")
    if database_url(paths) != str(paths.database):
        raise InputError("the database is not the file in the state directory", hint="use its own tools to restore it")
    paths.prepare()
    return ops.restore(paths.database, copy)


def backup(to: Path) -> int:
    """Copy a SQLite database as of one moment; returns the size in bytes.

    Raises:
        Conflict: `to` exists.
        InputError: it is on PostgreSQL, or `to` cannot be written.
    """
    host = running()
    if host is not None:
        return int(host.post("/database/backup", {"to": str(to)})["size_bytes"])
    with _open() as store:
        return ops.backup(store, to)
