"""Which intent set a task going, and when its allocation was submitted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("task", sa.Column("generation", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("task", sa.Column("submitted_at", sa.Double, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("task", "submitted_at")
    op.drop_column("task", "generation")
