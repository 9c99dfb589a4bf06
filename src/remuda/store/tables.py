"""The schema in force. A change here comes with a migration; a test compares the two."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    false,
)

from remuda.store import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy.engine import Dialect

REVISION: Final = "0011"
"""Newest migration that this program knows."""
VERSION_TABLE: Final = "remuda_revision"

_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
METADATA: Final = MetaData(naming_convention=_NAMING)


class Words(TypeDecorator[str]):
    """Text that came from outside (log lines, reasons): what no database takes is replaced, not refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """See `cleaned`."""
        del dialect
        return cleaned(value)


def cleaned(value: str | None) -> str | None:
    """Text without NUL (PostgreSQL refuses it) and lone surrogates (no encoding has them); as it is if it has none."""
    if value is None or (value.isascii() and "\0" not in value):
        return value
    return value.replace("\0", "�").encode("utf-8", "replace").decode()


_TYPES: Final[Mapping[str, Any]] = {"int": Integer, "float": Double, "bool": Boolean, "str": Text}
_EMPTY: Final[Mapping[str, Any]] = {"int": "0", "float": "0", "bool": false(), "str": ""}


def _columns(row: type, keys: str = "", needed: str = "", words: str = "", big: str = "") -> Iterator[Column[Any]]:
    """A column for each field of a row; without keys its `id` is a number that the database gives.

    Args:
        row: its class.
        keys: fields of the primary key.
        needed: fields without a default here.
        words: fields with text that came from outside.
        big: numbers that 32 bits do not hold.
    """
    for item in fields(row):
        kind, _, or_none = str(item.type).partition(" | ")
        known: dict[str, Any] = {"nullable": bool(or_none)}
        if item.name in keys.split():
            known = {"primary_key": True, "autoincrement": False}
        elif not or_none and item.name not in needed.split():
            known["server_default"] = str(item.default) if item.default in ("{}", -1, 1, 2) else _EMPTY[kind]
        if item.name == "id" and not keys:  # SQLite numbers rows by itself only in a column of type INTEGER
            yield Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
            continue
        kinds = BigInteger if item.name in big.split() else _TYPES[kind]
        yield Column(item.name, Words if item.name in words.split() else kinds, **known)


WORKLOAD: Final = Table(
    "workload",
    METADATA,
    *_columns(rows.WorkloadRow, "name", "plan running", words="plan spec note", big="generation restart_mark"),
)
TASK: Final = Table(
    "task",
    METADATA,
    *_columns(
        rows.TaskRow, "workload group_name idx", words="native reason node url never pool",
        big="pid seq generation restart_mark",
    ),
    ForeignKeyConstraint(["workload"], ["workload.name"], ondelete="CASCADE"),
)  # fmt: skip
ALLOCATION: Final = Table(
    "allocation",
    METADATA,
    *_columns(rows.AllocationRow, "token", words="native node reason evidence pool"),
    Index(None, "workload", "group_name", "idx"),
)
EVENT: Final = Table(
    "event",
    METADATA,
    *_columns(rows.StoryLine, words="reason"),
    Index(None, "workload", "id"),
    sqlite_autoincrement=True,
)
NODE_EVIDENCE: Final = Table(
    "node_evidence",
    METADATA,
    *_columns(rows.Evidence, words="node detail cluster"),
    Index(None, "node", "at"),
    sqlite_autoincrement=True,
)
LEASE: Final = Table("lease", METADATA, *_columns(rows.LeaseRow, "id", big="pid fence"))
JOB: Final = Table(
    "job",
    METADATA,
    *_columns(
        rows.JobRow, "id", words="what output reason swarm input native node told outcome", big="done failed total pid"
    ),
)
CAMPAIGN: Final = Table("campaign", METADATA, *_columns(rows.CampaignRow, "name", words="document"))
CAMPAIGN_ROW: Final = Table(
    "campaign_row",
    METADATA,
    *_columns(rows.CampaignItemRow, "campaign idx", words="plan reason", needed="is_ours state wait_s"),
    ForeignKeyConstraint(["campaign"], ["campaign.name"], ondelete="CASCADE"),
)
META: Final = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False, server_default=""),
)
