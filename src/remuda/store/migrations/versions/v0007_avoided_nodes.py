"""What an attempt of a task was told to keep away from, and what its next one may be."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    add("task", sa.Integer, "0", "avoids")
    add("task", sa.Integer, "2", "may_avoid")
