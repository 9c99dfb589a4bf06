"""Columns as migrations make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterator

SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def columns(kind: Any, default: Any, names: str, **more: Any) -> Iterator[sa.Column[Any]]:
    """Of one kind, none of them null; without a default it is None."""
    return (sa.Column(name, kind, nullable=False, server_default=default, **more) for name in names.split())


def add(table: str, kind: Any, default: Any, names: str) -> None:
    """Add such columns to a table."""
    for column in columns(kind, default, names):
        op.add_column(table, column)
