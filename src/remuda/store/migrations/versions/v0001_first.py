"""The first schema: workloads, tasks, allocations, events, the lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterator

revision = "0001"
down_revision = None
_SERIAL = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _columns(kind: Any, default: str, names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False, server_default=default) for name in names.split())


def upgrade() -> None:
    op.create_table(
        "workload",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("running", sa.Boolean, nullable=False),
        *_columns(sa.Text, "", "uid kind backend spec note phase"),
        *_columns(sa.Text, "{}", "counts"),
        *_columns(sa.BigInteger, "0", "generation"),
        *_columns(sa.Double, "0", "created_at changed_at"),
        sa.PrimaryKeyConstraint("name", name="pk_workload"),
    )
    op.create_table(
        "task",
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=True),
        *_columns(sa.Text, "", "backend phase token native cause reason node url"),
        *_columns(sa.Text, "{}", "metrics"),
        *_columns(sa.Integer, "0", "attempt failures http_status restarts"),
        *_columns(sa.BigInteger, "0", "pid"),
        *_columns(sa.BigInteger, "-1", "seq"),
        *_columns(sa.Double, "0", "since not_before ready_since kill_at last_seen"),
        sa.PrimaryKeyConstraint("workload", "group_name", "idx", name="pk_task"),
        sa.ForeignKeyConstraint(["workload"], ["workload.name"], name="fk_task_workload", ondelete="CASCADE"),
    )
    op.create_table(
        "allocation",
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("exit_code", sa.Integer, nullable=True),
        *_columns(sa.Text, "", "workload group_name backend native node state cause reason evidence"),
        *_columns(sa.Integer, "0", "idx attempt signal"),
        *_columns(sa.Double, "0", "submitted_at started_at ended_at"),
        sa.PrimaryKeyConstraint("token", name="pk_allocation"),
    )
    op.create_index("ix_allocation_workload_group_name_idx", "allocation", ["workload", "group_name", "idx"])
    op.create_table(
        "event",
        sa.Column("id", _SERIAL, nullable=False, autoincrement=True),
        *_columns(sa.Text, "", "workload task kind phase reason"),
        *_columns(sa.Text, "{}", "data"),
        *_columns(sa.Integer, "0", "attempt"),
        *_columns(sa.Double, "0", "at"),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_workload_id", "event", ["workload", "id"])
    lease = op.create_table(
        "lease",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        *_columns(sa.Text, "", "owner node start boot"),
        *_columns(sa.BigInteger, "0", "pid fence"),
        *_columns(sa.Double, "0", "expires_at renewed_at"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
    )
    op.bulk_insert(lease, [{"id": 1}])
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, nullable=False),
        *_columns(sa.Text, "", "value"),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )


def downgrade() -> None:
    for table in ("meta", "lease", "event", "allocation", "task", "workload"):
        op.drop_table(table)
