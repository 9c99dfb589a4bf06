"""Looking after the database from the user's process: nothing here writes rows."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from remuda.base.paths import state_paths
from remuda.control.wiring import database_url
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
    with _open() as store:
        return asdict(ops.status(store))


def upgrade() -> str:
    """Open it, which brings it to the newest revision; returns that."""
    with _open() as store:
        return str(ops.status(store).revision)


def backup(to: Path) -> int:
    """Copy a SQLite database as of one moment; returns the size in bytes.

    Raises:
        Conflict: `to` exists.
        InputError: it is on PostgreSQL, or `to` cannot be written.
    """
    with _open() as store:
        return ops.backup(store, to)
