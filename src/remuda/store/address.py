"""Where the database is: a SQLite file or a PostgreSQL URL, and how to name it without its password."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from remuda.base.disk.files import file_system_type, is_network_file_system
from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_POSTGRES = frozenset({"postgresql", "postgres", "postgresql+psycopg"})
_MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, slots=True)
class Address:
    """One database. Its repr and `shown` never carry a password."""

    url: URL = field(repr=False)
    shown: str
    """For messages."""
    path: Path | None = None
    """The SQLite file; None on PostgreSQL."""
    file_system: str = ""
    on_network: bool = False
    """The file is on a file system where shared memory and locks cannot be trusted."""


def read_address(where: str | Path, *, mounts: Path = _MOUNTS) -> Address:
    """Read a path, `sqlite:///PATH` or `postgresql://…`.

    Args:
        where: as the user gave it.
        mounts: the kernel's list of mounts; tests give their own.

    Raises:
        InputError: it is neither, or the PostgreSQL driver is not installed.
    """
    if isinstance(where, Path) or "://" not in where:
        return _file(Path(where), mounts)
    try:
        url = make_url(where)
    except (ArgumentError, ValueError) as error:
        # The cause is cut off: its text may quote the URL with the password in it.
        raise InputError("the database URL cannot be read", hint=_HINT) from type(error)("(not shown)")
    scheme = url.drivername
    if scheme in {"sqlite", "sqlite+pysqlite"}:
        if not url.database or url.database == ":memory:":
            raise InputError("the database URL names no file", hint=_HINT)
        return _file(Path(url.database), mounts)
    if scheme in _POSTGRES:
        return _postgres(url)
    raise InputError(f"{scheme!r} databases are not supported", hint=_HINT)


_HINT = "use a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"


def _file(path: Path, mounts: Path) -> Address:
    full = path.expanduser().absolute()
    return Address(
        url=URL.create("sqlite+pysqlite", database=str(full)),
        shown=str(full),
        path=full,
        file_system=file_system_type(full, mounts=mounts),
        on_network=is_network_file_system(full, mounts=mounts),
    )


def _postgres(url: URL) -> Address:
    if importlib.util.find_spec("psycopg") is None:
        raise InputError("the PostgreSQL driver is not installed", hint="pip install 'remuda[postgres]'")
    return Address(url=url.set(drivername="postgresql+psycopg"), shown=_describe(url))


def _describe(url: URL) -> str:
    """The URL without password and query; a socket directory stands in the query under `host`."""
    query: Mapping[str, str | tuple[str, ...]] = url.query
    host = url.host or query.get("host") or "localhost"
    if not isinstance(host, str):
        host = ",".join(host)
    user = f"{url.username}@" if url.username else ""
    port = f":{url.port}" if url.port else ""
    return f"postgresql://{user}{host}{port}/{url.database or ''}"
