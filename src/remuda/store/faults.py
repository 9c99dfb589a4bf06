"""What a failing database means: the drivers' exceptions as sentences with the database's name in them."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from remuda.base.errors import Conflict, RemudaError, Unavailable, Unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.store.address import Address

_NO_ROOM = frozenset({sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_TRUNCATE})
RESTORE_HINT = "put it aside and bring back a copy with `remuda db restore`; `remuda db backup` makes copies"


@contextmanager
def translated(address: Address) -> Iterator[None]:
    """Turn database exceptions inside the block into RemudaError.

    Raises:
        Unavailable: it does not answer, or stayed locked; nothing was changed.
        Conflict: a row refers to one that does not exist (any more).
        RemudaError: the file is damaged, read-only, or the disk is full; nothing was changed.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise translate(address, error) from error


def translate(address: Address, error: SQLAlchemyError | sqlite3.Error) -> RemudaError:
    """The sentence for `error`. SQL text and values are left out: they may hold anything."""
    if isinstance(error, PoolTimeout):
        return Unavailable(f"database {address.shown}: all connections stayed in use", hint="try again")
    if isinstance(error, IntegrityError):
        return Conflict(f"database {address.shown} refused the change: {_first_line(address, error.orig)}")
    raw = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(raw, sqlite3.Error):
        return _sqlite(address, raw)
    if isinstance(error, DBAPIError) and (error.connection_invalidated or _lost(error)):
        return Unavailable(
            f"database {address.shown} does not answer: {_first_line(address, error.orig)}",
            hint="check that the server runs and that the URL is right",
        )
    return RemudaError(f"database {address.shown}: {_first_line(address, raw)}")


def _sqlite(address: Address, error: sqlite3.Error) -> RemudaError:
    # The low byte is the primary result code (https://sqlite.org/rescode.html).
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    name = address.shown
    match code:
        case 5 | 6:
            return Unavailable(f"database {name} stayed locked by another process", hint="try again")
        case 8:
            return RemudaError(f"database {name} is read-only", hint="check its permissions and those of its folder")
        case 11 | 26:
            return RemudaError(f"database {name} is damaged or is not a database", hint=RESTORE_HINT)
        case 13:
            return Unwritable(f"no space left for database {name}", hint="free some space; nothing was changed")
        case 10:
            detail = _first_line(address, error)
            # A quota that is reached is an error of writing, and not told apart from others.
            kind = Unwritable if getattr(error, "sqlite_errorcode", 0) in _NO_ROOM else RemudaError
            return kind(f"database {name} cannot be written or read: {detail}", hint="check the disk and quotas")
        case 14:
            return RemudaError(f"database {name} cannot be opened", hint="check the folder and its permissions")
        case _:
            return RemudaError(f"database {name}: {_first_line(address, error)}")


def _lost(error: DBAPIError) -> bool:
    # SQLSTATE classes: 08 connection, 28 authorization, 3D no such database, 53 resources, 57 operator intervention.
    state = getattr(error.orig, "sqlstate", None)
    return state is None or state[:2] in {"08", "28", "3D", "53", "57"}


def _first_line(address: Address, error: BaseException | None) -> str:
    text = str(error).strip().splitlines()
    line = text[0] if text else type(error).__name__
    password = address.url.password
    return line.replace(str(password), "********") if password else line
