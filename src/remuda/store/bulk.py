"""Many rows in one statement.

On SQLite the driver is given them as they are: to have SQLAlchemy bind each costs twice what the database itself does.
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy.dialects import postgresql, sqlite

from remuda.store.tables import Words, cleaned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Insert, Table
    from sqlalchemy.engine import Connection


class _Text(NamedTuple):
    """A statement as SQLite is told it."""

    sql: str
    values: Callable[[object], tuple[Any, ...]]
    """Of a row, in the order of the statement."""
    words: tuple[int, ...]
    """Which of them came from outside."""


def insert_rows(connection: Connection, table: Table, rows: Sequence[object]) -> None:
    """Insert rows, whose fields are the columns; the database gives them their `id`."""
    _write(connection, table, rows, tuple(one.name for one in table.columns if one.name != "id"), replaces=False)


def upsert_rows(connection: Connection, table: Table, rows: Sequence[object]) -> None:
    """Insert rows, or overwrite those with the same primary key whole."""
    _write(connection, table, rows, tuple(one.name for one in table.columns), replaces=True)


def _write(
    connection: Connection, table: Table, rows: Sequence[object], names: tuple[str, ...], *, replaces: bool
) -> None:
    if not rows:
        return
    if connection.dialect.name != "sqlite":
        get = attrgetter(*names)
        values = [dict(zip(names, get(row), strict=True)) for row in rows]
        connection.execute(_statement(postgresql.insert(table), table, replaces=replaces), values)
        return
    text = _text(table, names, replaces=replaces)
    connection.exec_driver_sql(text.sql, [_clean(text.values(row), text.words) for row in rows])


@cache
def _text(table: Table, names: tuple[str, ...], *, replaces: bool) -> _Text:
    dialect = sqlite.dialect(paramstyle="qmark")
    compiled: Any = _statement(sqlite.insert(table), table, replaces=replaces).compile(
        dialect=dialect, column_keys=list(names)
    )
    order = tuple(compiled.positiontup)
    words = tuple(at for at, name in enumerate(order) if isinstance(table.c[name].type, Words))
    return _Text(str(compiled), attrgetter(*order), words)


def _statement(statement: Any, table: Table, *, replaces: bool) -> Insert:
    made: Insert = statement
    if replaces:
        keys = list(table.primary_key)
        others = {column.name: statement.excluded[column.name] for column in table.columns if column not in keys}
        made = statement.on_conflict_do_update(index_elements=keys, set_=others)
    return made


def _clean(values: tuple[Any, ...], words: Sequence[int]) -> tuple[Any, ...]:
    if all(cleaned(values[at]) is values[at] for at in words):
        return values
    return tuple(cleaned(value) if at in words else value for at, value in enumerate(values))
