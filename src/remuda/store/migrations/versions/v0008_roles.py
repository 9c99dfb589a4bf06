"""Ports of a task by name, and which groups of a workload were asked to begin again alone."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    add("workload", sa.Text, "{}", "group_marks")
    add("task", sa.Text, "{}", "ports")
