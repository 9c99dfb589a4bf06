"""The schema in force. A change here comes with a migration; a test compares the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    false,
)

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect

REVISION: Final = "0010"
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


def _text(name: str, default: str = "") -> Column[Any]:
    return Column(name, Text, nullable=False, server_default=default)


def _words(name: str) -> Column[Any]:
    return Column(name, Words, nullable=False, server_default="")


def _int(name: str, default: str = "0") -> Column[Any]:
    return Column(name, Integer, nullable=False, server_default=default)


def _big(name: str, default: str = "0") -> Column[Any]:
    return Column(name, BigInteger, nullable=False, server_default=default)


def _time(name: str) -> Column[Any]:
    return Column(name, Double, nullable=False, server_default="0")


def _flag(name: str) -> Column[Any]:
    return Column(name, Boolean, nullable=False, server_default=false())


def _serial() -> Column[Any]:
    # SQLite numbers rows by itself only in a column of type INTEGER.
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


WORKLOAD: Final = Table(
    "workload",
    METADATA,
    Column("name", Text, primary_key=True),
    _text("uid"),
    _text("kind"),
    _text("backend"),
    Column("plan", Words, nullable=False),
    _words("spec"),
    Column("running", Boolean, nullable=False),
    _big("generation"),
    _text("counts", "{}"),
    _time("created_at"),
    _time("changed_at"),
    _words("note"),
    _text("phase"),
    _flag("paused"),
    _big("restart_mark"),
    _time("ends_at"),
    _time("used_at"),
    _text("usage"),
    _text("group_marks", "{}"),
)

TASK: Final = Table(
    "task",
    METADATA,
    Column("workload", Text, ForeignKey("workload.name", ondelete="CASCADE"), primary_key=True),
    Column("group_name", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    _text("backend"),
    _text("phase"),
    _int("attempt"),
    _time("since"),
    _text("token"),
    _words("native"),
    _int("failures"),
    _time("not_before"),
    _time("ready_since"),
    _time("kill_at"),
    _text("cause"),
    _words("reason"),
    _words("node"),
    _words("url"),
    _int("http_status"),
    _big("pid"),
    _int("restarts"),
    Column("exit_code", Integer, nullable=True),
    _big("seq", "-1"),
    _time("last_seen"),
    _text("metrics", "{}"),
    _big("generation"),
    _time("submitted_at"),
    _time("started_at"),
    _flag("released"),
    _words("never"),
    _time("limit_at"),
    _int("requeues"),
    _text("ending"),
    _words("pool"),
    _int("pool_refusals"),
    _int("pool_failures"),
    _int("pool_nevers"),
    _time("pool_left_at"),
    _int("quick_failures"),
    _big("restart_mark"),
    _time("yields_at"),
    _time("loaded_at"),
    Column("progress", Double, nullable=False, server_default="0"),
    _int("avoids"),
    _int("may_avoid", "2"),
    _text("ports", "{}"),
)

ALLOCATION: Final = Table(
    "allocation",
    METADATA,
    Column("token", Text, primary_key=True),
    _text("workload"),
    _text("group_name"),
    _int("idx"),
    _int("attempt"),
    _text("backend"),
    _words("native"),
    _words("node"),
    _time("submitted_at"),
    _time("started_at"),
    _time("ended_at"),
    _text("state"),
    Column("exit_code", Integer, nullable=True),
    _int("signal"),
    _text("cause"),
    _words("reason"),
    _words("evidence"),
    _words("pool"),
    Index(None, "workload", "group_name", "idx"),
)

EVENT: Final = Table(
    "event",
    METADATA,
    _serial(),
    _time("at"),
    _text("workload"),
    _text("task"),
    _int("attempt"),
    _text("kind"),
    _text("phase"),
    _words("reason"),
    _text("data", "{}"),
    Index(None, "workload", "id"),
    sqlite_autoincrement=True,
)

NODE_EVIDENCE: Final = Table(
    "node_evidence",
    METADATA,
    _serial(),
    _words("node"),
    _text("device"),
    _time("at"),
    Column("weight", Double, nullable=False, server_default="1"),
    _text("kind"),
    _text("workload"),
    _text("token"),
    _words("detail"),
    _time("expires_at"),
    _words("cluster"),
    _text("boot"),
    Index(None, "node", "at"),
    sqlite_autoincrement=True,
)

JOB: Final = Table(
    "job",
    METADATA,
    Column("id", Text, primary_key=True),
    *map(_words, ("what", "output", "reason", "swarm", "input", "native", "node", "told", "outcome")),
    *map(_text, ("state", "kind", "backend")),
    *(Column(name, BigInteger, nullable=True) for name in ("done", "failed", "total")),
    *map(_time, ("rate", "created_at", "started_at", "heartbeat_at", "ended_at")),
    _flag("detached"),
    _int("attempt"),
    _big("pid"),
)

LEASE: Final = Table(
    "lease",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    _text("owner"),
    _text("node"),
    _big("pid"),
    _text("start"),
    _text("boot"),
    _big("fence"),
    _time("expires_at"),
    _time("renewed_at"),
)

META: Final = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),
    _text("value"),
)
