"""Ports of a task by name, and which groups of a workload were asked to begin again alone."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("workload", sa.Column("group_marks", sa.Text, nullable=False, server_default="{}"))
    op.add_column("task", sa.Column("ports", sa.Text, nullable=False, server_default="{}"))


def downgrade() -> None:
    op.drop_column("task", "ports")
    op.drop_column("workload", "group_marks")
