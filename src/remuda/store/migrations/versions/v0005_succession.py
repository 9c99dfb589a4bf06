"""Tasks that yield to their successors; lifetimes, and when an endpoint was last used."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    add("task", sa.Double, "0", "yields_at loaded_at")
    add("workload", sa.Double, "0", "ends_at used_at")
    add("workload", sa.Text, "", "usage")
