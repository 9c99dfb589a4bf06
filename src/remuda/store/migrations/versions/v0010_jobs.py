"""Jobs, whoever runs them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from remuda.store.migrations.columns import columns

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "job",
        *columns(sa.Text, None, "id"),
        # What lists show comes first, and what is long comes last: lists read no more than they show.
        *(sa.Column(name, sa.BigInteger, nullable=True) for name in ("done", "failed", "total")),
        *columns(sa.Double, "0", "rate created_at started_at heartbeat_at ended_at"),
        *columns(sa.Text, "", "state what output reason kind swarm input backend native node"),
        *columns(sa.Boolean, sa.false(), "detached"),
        *columns(sa.Integer, "0", "attempt"),
        *columns(sa.BigInteger, "0", "pid"),
        *columns(sa.Text, "{}", "told outcome"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
    )
