"""Pools, holds, requeues, pauses and restarts; which cluster a node is of."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def _column(name: str, kind: Any, default: str = "0") -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=default)


def upgrade() -> None:
    for name in ("started_at", "limit_at", "pool_left_at"):
        op.add_column("task", _column(name, sa.Double))
    for name in ("requeues", "pool_refusals", "pool_failures", "pool_nevers", "quick_failures"):
        op.add_column("task", _column(name, sa.Integer))
    for name in ("never", "ending", "pool"):
        op.add_column("task", _column(name, sa.Text, ""))
    op.add_column("task", _column("restart_mark", sa.BigInteger))
    op.add_column("task", sa.Column("released", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("workload", sa.Column("paused", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("workload", _column("restart_mark", sa.BigInteger))
    op.add_column("allocation", _column("pool", sa.Text, ""))
    op.add_column("node_evidence", _column("cluster", sa.Text, ""))


def downgrade() -> None:
    op.drop_column("node_evidence", "cluster")
    op.drop_column("allocation", "pool")
    for name in ("restart_mark", "paused"):
        op.drop_column("workload", name)
    for name in (
        "started_at", "limit_at", "pool_left_at", "requeues", "pool_refusals", "pool_failures", "pool_nevers",
        "quick_failures", "never", "ending", "pool", "restart_mark", "released",
    ):  # fmt: skip
        op.drop_column("task", name)
