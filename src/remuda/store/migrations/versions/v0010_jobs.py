"""Jobs, whoever runs them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    words = (
        "what", "state", "output", "reason", "kind", "swarm", "input", "backend", "native", "node", "told", "outcome",
    )  # fmt: skip
    times = ("rate", "created_at", "started_at", "heartbeat_at", "ended_at")
    op.create_table(
        "job",
        sa.Column("id", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=False, server_default="") for name in words),
        *(sa.Column(name, sa.BigInteger, nullable=True) for name in ("done", "failed", "total")),
        *(sa.Column(name, sa.Double, nullable=False, server_default="0") for name in times),
        sa.Column("detached", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("pid", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
    )


def downgrade() -> None:
    op.drop_table("job")
