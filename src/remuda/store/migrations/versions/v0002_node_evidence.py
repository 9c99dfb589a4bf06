"""Evidence against nodes, for the ledger."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from remuda.store.migrations.columns import SERIAL, columns

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "node_evidence",
        *columns(SERIAL, None, "id", autoincrement=True),
        *columns(sa.Text, "", "node device"),
        *columns(sa.Double, "0", "at"),
        *columns(sa.Double, "1", "weight"),
        *columns(sa.Text, "", "kind workload token detail"),
        *columns(sa.Double, "0", "expires_at"),
        sa.PrimaryKeyConstraint("id", name="pk_node_evidence"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_node_evidence_node_at", "node_evidence", ["node", "at"])
