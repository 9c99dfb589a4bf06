"""Tasks that yield to their successors; lifetimes, and when an endpoint was last used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for name in ("yields_at", "loaded_at"):
        op.add_column("task", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    for name in ("ends_at", "used_at"):
        op.add_column("workload", sa.Column(name, sa.Double, nullable=False, server_default="0"))
    op.add_column("workload", sa.Column("usage", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    for name in ("usage", "used_at", "ends_at"):
        op.drop_column("workload", name)
    for name in ("loaded_at", "yields_at"):
        op.drop_column("task", name)
