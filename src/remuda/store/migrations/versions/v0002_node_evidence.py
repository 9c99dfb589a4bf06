"""Evidence against nodes, for the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "node_evidence",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False, autoincrement=True),
        sa.Column("node", sa.Text, nullable=False, server_default=""),
        sa.Column("device", sa.Text, nullable=False, server_default=""),
        sa.Column("at", sa.Double, nullable=False, server_default="0"),
        sa.Column("weight", sa.Double, nullable=False, server_default="1"),
        sa.Column("kind", sa.Text, nullable=False, server_default=""),
        sa.Column("workload", sa.Text, nullable=False, server_default=""),
        sa.Column("token", sa.Text, nullable=False, server_default=""),
        sa.Column("detail", sa.Text, nullable=False, server_default=""),
        sa.Column("expires_at", sa.Double, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_node_evidence"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_node_evidence_node_at", "node_evidence", ["node", "at"])


def downgrade() -> None:
    op.drop_table("node_evidence")
