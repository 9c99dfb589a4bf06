"""Campaigns: many workloads, each for its job, at most N at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from remuda.store.migrations.columns import columns

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "campaign",
        *columns(sa.Text, None, "name"),
        *columns(sa.Text, "", "kind document"),
        *columns(sa.Integer, "1", "bound"),
        sa.PrimaryKeyConstraint("name", name="pk_campaign"),
    )
    op.create_table(
        "campaign_row",
        *columns(sa.Text, None, "campaign"),
        *columns(sa.Integer, None, "idx", autoincrement=False),
        *columns(sa.Text, "", "name address plan outcome reason uid points"),
        *columns(sa.Double, "0", "queue_timeout_s since started_at"),
        *columns(sa.Boolean, sa.false(), "keeps"),
        *columns(sa.Text, None, "state"),
        *columns(sa.Boolean, None, "is_ours"),
        *columns(sa.Double, None, "wait_s"),
        sa.PrimaryKeyConstraint("campaign", "idx", name="pk_campaign_row"),
        sa.ForeignKeyConstraint(["campaign"], ["campaign.name"], name="fk_campaign_row_campaign", ondelete="CASCADE"),
    )
