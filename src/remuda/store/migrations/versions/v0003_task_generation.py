"""Which intent set a task going, and when its allocation was submitted."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    add("task", sa.BigInteger, "0", "generation")
    add("task", sa.Double, "0", "submitted_at")
