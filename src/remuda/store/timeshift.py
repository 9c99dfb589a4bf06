"""Recorded times when the machine's clock is set: all that still count move with it, in one transaction.

Beside them is kept how far the clock was from one that nobody can set, so that the next host of the same boot finds
out that it was set while no host ran.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from sqlalchemy import case, update

from remuda.store.tables import CAMPAIGN_ROW, NODE_EVIDENCE, TASK, WORKLOAD
from remuda.wire.process import boot_id

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

    from remuda.store.database import Store

_KEY: Final = "clock"
TASK_TIMES: Final = (
    "since", "submitted_at", "not_before", "ready_since", "kill_at", "last_seen", "started_at", "pool_left_at",
    "yields_at", "loaded_at",
)  # fmt: skip
WORKLOAD_TIMES: Final = ("ends_at", "used_at")
CAMPAIGN_TIMES: Final = ("since", "started_at")


def kept_offset(store: Store) -> float | None:
    """What the last host of this boot noted; None where there was none."""
    try:
        kept = json.loads(store.meta(_KEY))
        return float(kept["offset"]) if kept["boot"] and kept["boot"] == boot_id() else None
    except (ValueError, KeyError, TypeError):
        return None


def keep_offset(store: Store, fence: int, offset: float) -> None:
    """Note it for the next host."""
    store.set_meta(fence, _KEY, json.dumps({"boot": boot_id(), "offset": offset}))


def move_times(store: Store, fence: int, by: float, now: float, offset: float) -> None:
    """Move every recorded time that still counts by so many seconds.

    Args:
        store: the database.
        fence: of the writer's lease.
        by: seconds, negative when the clock was set back.
        now: before that.
        offset: after it; kept for the next host.
    """
    with store.together(fence), store.writing(fence) as connection:
        for table, names in ((TASK, TASK_TIMES), (WORKLOAD, WORKLOAD_TIMES), (CAMPAIGN_ROW, CAMPAIGN_TIMES)):
            moved = {name: case((table.c[name] > 0, table.c[name] + by), else_=table.c[name]) for name in names}
            connection.execute(update(table).values(moved))
        _move_evidence(connection, by, now)
        keep_offset(store, fence, offset)


def believe(store: Store, fence: int, now: float) -> None:
    """Take back evidence that was noted later than now: it lasts no longer than it was to last."""
    columns = NODE_EVIDENCE.c
    with store.writing(fence) as connection:
        length = columns.expires_at - columns.at
        connection.execute(update(NODE_EVIDENCE).where(columns.at > now).values(at=now, expires_at=now + length))


def _move_evidence(connection: Connection, by: float, now: float) -> None:
    columns = NODE_EVIDENCE.c
    moved = {"at": columns.at + by, "expires_at": columns.expires_at + by}
    connection.execute(update(NODE_EVIDENCE).where(columns.expires_at > now).values(moved))
