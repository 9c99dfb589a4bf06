"""Since which boot of its node a piece of evidence holds, so that who sees it again does not count it again."""

from __future__ import annotations

import sqlalchemy as sa

from remuda.store.migrations.columns import add

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    add("node_evidence", sa.Text, "", "boot")
