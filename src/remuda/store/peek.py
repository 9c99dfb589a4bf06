"""A look into a database from beside it: nothing is written, nothing is migrated, and a newer or damaged one is told.

For `remuda doctor` and lists of jobs, which must work when the host does not.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, inspect, text

from remuda.base.errors import RemudaError
from remuda.store.address import read_address
from remuda.store.faults import translated
from remuda.store.rows import BRIEF, WHOLE, JobRow
from remuda.store.tables import REVISION, VERSION_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from remuda.store.address import Address

    Ask = Callable[..., Sequence[Sequence[Any]]]

_TABLES: Final = {
    "workload": ("name", "uid", "running", "backend"),
    "task": ("token", "phase"),
    "lease": ("owner", "node", "pid", "expires_at", "boot"),
}
_REVISION: Final = f"SELECT version_num FROM {VERSION_TABLE}"  # noqa: S608 - a constant
_BUSY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Peek:
    """What was to be seen. With `workloads`, all of it is what the database says."""

    where: str
    """For messages; never with a password."""
    exists: bool = True
    revision: str = ""
    newest_revision: str = REVISION
    """That this program knows."""
    journal_mode: str = ""
    file_system: str = ""
    on_network: bool = False
    workloads: Mapping[str, tuple[str, bool]] | None = None
    """Name -> uid, and whether it is wanted; None where that cannot be read."""
    backends: frozenset[str] = frozenset()
    """Those that the workloads use."""
    tasks: Mapping[str, str] = field(default_factory=dict)
    """Token of each task's allocation -> phase."""
    lease_node: str = ""
    """Machine of the host that has the lease; empty when nobody has."""
    lease_pid: int = 0
    lease_until: float = 0.0
    """Seconds since the epoch."""
    last: tuple[str, str] = ("", "")
    """Machine of the last host, also of one that gave the lease back, and the id of the boot in which it ran."""
    problem: str = ""
    """Why it cannot be read; empty when it can."""
    hint: str = ""


def peek(where: str | Path) -> Peek:
    """Look into a database. What is wrong with it is `Peek.problem`, not an error.

    Args:
        where: path of a SQLite file, `sqlite:///PATH` or a PostgreSQL URL.

    Raises:
        InputError: it is not the address of a database.
    """
    address = read_address(where)
    known: dict[str, Any] = {
        "where": address.shown, "file_system": address.file_system, "on_network": address.on_network,
    }  # fmt: skip
    if address.path is not None and not address.path.exists():
        return Peek(**known, exists=False)
    try:
        with translated(address):
            known |= _all(address)
    except RemudaError as error:
        known |= {"problem": error.message, "hint": error.hint}
    return Peek(**known)


def peek_jobs(where: str | Path, prefix: str = "", brief: Sequence[str] = ()) -> list[JobRow]:
    """Jobs whose ids begin so, as the last host recorded them; none where there is no database, or an older one.

    Args:
        where: as for `peek`.
        prefix: of ids.
        brief: states of jobs of which only what lists show is read.

    Raises:
        InputError: it is not the address of a database.
        RemudaError: it cannot be read.
    """
    address = read_address(where)
    if address.path is not None and not address.path.exists():
        return []
    with translated(address), _connected(address) as (ask, columns_of):
        if not columns_of("job").issuperset(WHOLE):
            return []
        rows, states = [], ", ".join(f"'{state}'" for state in brief or ("",))
        for names, are in ((BRIEF, "IN"), (WHOLE, "NOT IN")):
            query = f"SELECT {', '.join(names)} FROM job WHERE id LIKE :prefix AND state {are} ({states})"  # noqa: S608 - constants
            rows += [JobRow(*row) for row in ask(query, prefix=f"{prefix}%")]
    for row in rows:
        row.detached = bool(row.detached)  # SQLite has numbers
    return rows


@contextmanager
def _connected(address: Address) -> Iterator[tuple[Ask, Callable[[str], set[str]]]]:
    """What asks the database, and what tells the columns of a table; none of one that is not there."""
    if address.path is not None:
        uri = f"{address.path.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_S)) as file:
            yield (
                lambda query, **values: file.execute(query, values).fetchall(),
                lambda table: {row[1] for row in file.execute(f"PRAGMA table_info({table})")},
            )
        return
    engine = create_engine(address.url, hide_parameters=True, connect_args={"connect_timeout": 10})
    try:
        with engine.connect() as connection:
            inspector = inspect(connection)
            yield (
                lambda query, **values: [tuple(row) for row in connection.execute(text(query), values)],
                lambda table: (
                    {column["name"] for column in inspector.get_columns(table)} if inspector.has_table(table) else set()
                ),
            )
    finally:
        engine.dispose()


def _all(address: Address) -> dict[str, Any]:
    with _connected(address) as (ask, columns_of):
        columns = {table: found for table in _TABLES if (found := columns_of(table))}
        noted = ask(_REVISION) if columns_of(VERSION_TABLE) else ()
        known = {"revision": str(noted[0][0]) if noted else ""}
        if address.path is not None:
            known["journal_mode"] = str(ask("PRAGMA journal_mode")[0][0]).lower()
        return known | _read(columns, ask)


def _read(columns: Mapping[str, set[str]], ask: Ask) -> dict[str, Any]:
    """Rows of the columns that this program knows. A newer database has them, too, or says which it lacks."""
    missing = [
        f"{table}.{name}" for table, names in _TABLES.items() for name in names if name not in columns.get(table, set())
    ]
    if missing:
        what = f"it has no {missing[0]}" if columns else "it holds none of remuda's tables"
        return {"problem": what, "hint": "use the remuda that wrote it"}

    def rows(table: str) -> Sequence[Sequence[Any]]:
        return ask(f"SELECT {', '.join(_TABLES[table])} FROM {table}")  # noqa: S608 - constants

    # Workloads last: whoever is seen in a task was there before.
    tasks = {str(token): str(phase) for token, phase in rows("task")}
    last = next(iter(rows("lease")), ("", "", 0, 0.0, ""))
    held = last if last[0] else ("", "", 0, 0.0)
    workloads = rows("workload")
    return {
        "workloads": {str(name): (str(uid), bool(running)) for name, uid, running, _ in workloads},
        "backends": frozenset(str(row[3]) for row in workloads),
        "tasks": tasks,
        "lease_node": str(held[1]),
        "lease_pid": int(held[2]),
        "lease_until": float(held[3]),
        "last": (str(last[1]), str(last[4])),
    }
