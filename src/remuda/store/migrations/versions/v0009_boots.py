"""Since which boot of its node a piece of evidence holds, so that who sees it again does not count it again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("node_evidence", sa.Column("boot", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("node_evidence", "boot")
