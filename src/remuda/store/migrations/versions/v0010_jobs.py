"""Jobs, whoever runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from alembic import op

if TYPE_CHECKING:
    from collections.abc import Iterator

revision = "0010"
down_revision = "0009"


def _columns(kind: Any, default: str, names: str) -> Iterator[sa.Column[Any]]:
    return (sa.Column(name, kind, nullable=False, server_default=default) for name in names.split())


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Text, nullable=False),
        # What lists show comes first, and what is long comes last: lists read no more than they show.
        *(sa.Column(name, sa.BigInteger, nullable=True) for name in ("done", "failed", "total")),
        *_columns(sa.Double, "0", "rate created_at started_at heartbeat_at ended_at"),
        *_columns(sa.Text, "", "state what output reason kind swarm input backend native node"),
        sa.Column("detached", sa.Boolean, nullable=False, server_default=sa.false()),
        *_columns(sa.Integer, "0", "attempt"),
        *_columns(sa.BigInteger, "0", "pid"),
        *_columns(sa.Text, "{}", "told outcome"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
    )


def downgrade() -> None:
    op.drop_table("job")
