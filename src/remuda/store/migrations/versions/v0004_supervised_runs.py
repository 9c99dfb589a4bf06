"""Pools, holds, requeues, pauses and restarts; which cluster a node is of."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    add("task", sa.Double, "0", "started_at limit_at pool_left_at")
    add("task", sa.Integer, "0", "requeues pool_refusals pool_failures pool_nevers quick_failures")
    add("task", sa.Text, "", "never ending pool")
    add("task", sa.BigInteger, "0", "restart_mark")
    add("task", sa.Boolean, sa.false(), "released")
    add("workload", sa.Boolean, sa.false(), "paused")
    add("workload", sa.BigInteger, "0", "restart_mark")
    add("allocation", sa.Text, "", "pool")
    add("node_evidence", sa.Text, "", "cluster")
