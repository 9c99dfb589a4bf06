"""The first schema: workloads, tasks, allocations, events, the lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from remuda.store.migrations.columns import SERIAL, columns

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "workload",
        *columns(sa.Text, None, "name plan"),
        *columns(sa.Boolean, None, "running"),
        *columns(sa.Text, "", "uid kind backend spec note phase"),
        *columns(sa.Text, "{}", "counts"),
        *columns(sa.BigInteger, "0", "generation"),
        *columns(sa.Double, "0", "created_at changed_at"),
        sa.PrimaryKeyConstraint("name", name="pk_workload"),
    )
    op.create_table(
        "task",
        *columns(sa.Text, None, "workload group_name"),
        *columns(sa.Integer, None, "idx"),
        sa.Column("exit_code", sa.Integer, nullable=True),
        *columns(sa.Text, "", "backend phase token native cause reason node url"),
        *columns(sa.Text, "{}", "metrics"),
        *columns(sa.Integer, "0", "attempt failures http_status restarts"),
        *columns(sa.BigInteger, "0", "pid"),
        *columns(sa.BigInteger, "-1", "seq"),
        *columns(sa.Double, "0", "since not_before ready_since kill_at last_seen"),
        sa.PrimaryKeyConstraint("workload", "group_name", "idx", name="pk_task"),
        sa.ForeignKeyConstraint(["workload"], ["workload.name"], name="fk_task_workload", ondelete="CASCADE"),
    )
    op.create_table(
        "allocation",
        *columns(sa.Text, None, "token"),
        sa.Column("exit_code", sa.Integer, nullable=True),
        *columns(sa.Text, "", "workload group_name backend native node state cause reason evidence"),
        *columns(sa.Integer, "0", "idx attempt signal"),
        *columns(sa.Double, "0", "submitted_at started_at ended_at"),
        sa.PrimaryKeyConstraint("token", name="pk_allocation"),
    )
    op.create_index("ix_allocation_workload_group_name_idx", "allocation", ["workload", "group_name", "idx"])
    op.create_table(
        "event",
        *columns(SERIAL, None, "id", autoincrement=True),
        *columns(sa.Text, "", "workload task kind phase reason"),
        *columns(sa.Text, "{}", "data"),
        *columns(sa.Integer, "0", "attempt"),
        *columns(sa.Double, "0", "at"),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_workload_id", "event", ["workload", "id"])
    lease = op.create_table(
        "lease",
        *columns(sa.Integer, None, "id", autoincrement=False),
        *columns(sa.Text, "", "owner node start boot"),
        *columns(sa.BigInteger, "0", "pid fence"),
        *columns(sa.Double, "0", "expires_at renewed_at"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
    )
    op.bulk_insert(lease, [{"id": 1}])
    meta = (*columns(sa.Text, None, "key"), *columns(sa.Text, "", "value"))
    op.create_table("meta", *meta, sa.PrimaryKeyConstraint("key", name="pk_meta"))
