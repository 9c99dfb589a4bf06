"""What an attempt of a task was told to keep away from, and what its next one may be."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("task", sa.Column("avoids", sa.Integer, nullable=False, server_default="0"))
    op.add_column("task", sa.Column("may_avoid", sa.Integer, nullable=False, server_default="2"))


def downgrade() -> None:
    for name in ("may_avoid", "avoids"):
        op.drop_column("task", name)
