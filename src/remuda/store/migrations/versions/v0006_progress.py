"""How far a task ever was, so that one that gets on is no crash loop."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    add("task", sa.Double, "0", "progress")
