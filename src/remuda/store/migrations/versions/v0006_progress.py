"""How far a task ever was, so that one that gets on is no crash loop."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("task", sa.Column("progress", sa.Double, nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("task", "progress")
