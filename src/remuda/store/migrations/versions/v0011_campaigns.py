"""Campaigns: many workloads, each for its job, at most N at once."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def _column(name: str, kind: Any, default: Any = None, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False, server_default=default, **more)


def upgrade() -> None:
    op.create_table(
        "campaign",
        _column("name", sa.Text),
        *(_column(name, sa.Text, "") for name in ("kind", "document")),
        _column("bound", sa.Integer, "1"),
        sa.PrimaryKeyConstraint("name", name="pk_campaign"),
    )
    op.create_table(
        "campaign_row",
        _column("campaign", sa.Text),
        _column("idx", sa.Integer, autoincrement=False),
        *(_column(name, sa.Text, "") for name in ("name", "address", "plan", "outcome", "reason", "uid", "points")),
        *(_column(name, sa.Double, "0") for name in ("queue_timeout_s", "since", "started_at")),
        _column("keeps", sa.Boolean, sa.false()),
        *(_column(name, kind) for name, kind in (("state", sa.Text), ("is_ours", sa.Boolean), ("wait_s", sa.Double))),
        sa.PrimaryKeyConstraint("campaign", "idx", name="pk_campaign_row"),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.name"], name="fk_campaign_row_campaign", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("campaign_row")
    op.drop_table("campaign")
