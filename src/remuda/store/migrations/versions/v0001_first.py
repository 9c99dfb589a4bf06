"""The first schema: workloads, tasks, allocations, events, the lease."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _workload()
    _task()
    _allocation()
    _event()
    _lease()
    _meta()


def _workload() -> None:
    op.create_table(
        "workload",
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("uid", sa.Text, nullable=False, server_default=""),
        sa.Column("kind", sa.Text, nullable=False, server_default=""),
        sa.Column("backend", sa.Text, nullable=False, server_default=""),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False, server_default=""),
        sa.Column("running", sa.Boolean, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("counts", sa.Text, nullable=False, server_default="{}"),
        sa.Column("created_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("changed_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("note", sa.Text, nullable=False, server_default=""),
        sa.Column("phase", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("name", name="pk_workload"),
    )


def _task() -> None:
    op.create_table(
        "task",
        sa.Column("workload", sa.Text, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("idx", sa.Integer, nullable=False),
        sa.Column("backend", sa.Text, nullable=False, server_default=""),
        sa.Column("phase", sa.Text, nullable=False, server_default=""),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("since", sa.Double, nullable=False, server_default="0"),
        sa.Column("token", sa.Text, nullable=False, server_default=""),
        sa.Column("native", sa.Text, nullable=False, server_default=""),
        sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("not_before", sa.Double, nullable=False, server_default="0"),
        sa.Column("ready_since", sa.Double, nullable=False, server_default="0"),
        sa.Column("kill_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("cause", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("node", sa.Text, nullable=False, server_default=""),
        sa.Column("url", sa.Text, nullable=False, server_default=""),
        sa.Column("http_status", sa.Integer, nullable=False, server_default="0"),
        sa.Column("pid", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("restarts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("exit_code", sa.Integer, nullable=True),
        sa.Column("seq", sa.BigInteger, nullable=False, server_default="-1"),
        sa.Column("last_seen", sa.Double, nullable=False, server_default="0"),
        sa.Column("metrics", sa.Text, nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("workload", "group_name", "idx", name="pk_task"),
        sa.ForeignKeyConstraint(["workload"], ["workload.name"], name="fk_task_workload", ondelete="CASCADE"),
    )


def _allocation() -> None:
    op.create_table(
        "allocation",
        sa.Column("token", sa.Text, nullable=False),
        sa.Column("workload", sa.Text, nullable=False, server_default=""),
        sa.Column("group_name", sa.Text, nullable=False, server_default=""),
        sa.Column("idx", sa.Integer, nullable=False, server_default="0"),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("backend", sa.Text, nullable=False, server_default=""),
        sa.Column("native", sa.Text, nullable=False, server_default=""),
        sa.Column("node", sa.Text, nullable=False, server_default=""),
        sa.Column("submitted_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("started_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("ended_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("state", sa.Text, nullable=False, server_default=""),
        sa.Column("exit_code", sa.Integer, nullable=True),
        sa.Column("signal", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cause", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("evidence", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("token", name="pk_allocation"),
    )
    op.create_index("ix_allocation_workload_group_name_idx", "allocation", ["workload", "group_name", "idx"])


def _event() -> None:
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False, server_default="0"),
        sa.Column("workload", sa.Text, nullable=False, server_default=""),
        sa.Column("task", sa.Text, nullable=False, server_default=""),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("kind", sa.Text, nullable=False, server_default=""),
        sa.Column("phase", sa.Text, nullable=False, server_default=""),
        sa.Column("reason", sa.Text, nullable=False, server_default=""),
        sa.Column("data", sa.Text, nullable=False, server_default="{}"),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_workload_id", "event", ["workload", "id"])


def _lease() -> None:
    lease = op.create_table(
        "lease",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False, server_default=""),
        sa.Column("node", sa.Text, nullable=False, server_default=""),
        sa.Column("pid", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("start", sa.Text, nullable=False, server_default=""),
        sa.Column("boot", sa.Text, nullable=False, server_default=""),
        sa.Column("fence", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("expires_at", sa.Double, nullable=False, server_default="0"),
        sa.Column("renewed_at", sa.Double, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_lease"),
    )
    op.bulk_insert(lease, [{"id": 1}])


def _meta() -> None:
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("value", sa.Text, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )


def downgrade() -> None:
    for table in ("meta", "lease", "event", "allocation", "task", "workload"):
        op.drop_table(table)
