"""Who may write: one lease with a fencing number that rises with every change of hands.

Times are those of the contenders' clocks. Where these differ by more than the lease lasts, a lease may change hands
early; the number still keeps the old holder from writing. One that would last longer than leases do was noted by a
clock that is ahead, or before the clock was set back: who finds it cuts it to the usual length, and a holder that lives
prolongs it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import update

from remuda.base.errors import Fenced
from remuda.store.database import read_rows, rows_of
from remuda.store.rows import LeaseRow
from remuda.store.tables import LEASE
from remuda.wire.fields import alike
from remuda.wire.process import ProcessId, boot_id, is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Connection

    from remuda.store.database import Store

_AHEAD_S = 5.0
"""So much two clocks of a cluster may differ without anybody minding."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write with number `fence`, certain until `expires_at`, and valid until somebody else takes it."""

    fence: int
    owner: ProcessId
    expires_at: float


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody else has it."""

    owner: ProcessId
    fence: int
    expires_at: float
    renewed_at: float

    def __str__(self) -> str:
        return f"pid {self.owner.pid} on {self.owner.node}"


def acquire(
    store: Store, owner: ProcessId, ttl_s: float, now: float, *, alive: Callable[[ProcessId], bool] = is_alive
) -> Lease | Held:
    """Take the lease if it is free: released, expired, or its holder is a dead process of this machine and boot.

    Args:
        store: the database that the lease protects.
        owner: the process that asks.
        ttl_s: how long it lasts unless renewed.
        now: seconds since the epoch.
        alive: whether a process of this machine lives; tests give their own.

    Returns:
        The lease with a number higher than all before it, or who has it.
    """
    with store.changing() as connection:
        row = _row(connection, lock=True)
        if row.owner and now < row.expires_at and not _is_dead(_process(row), alive):
            if row.expires_at > now + ttl_s + _AHEAD_S:
                connection.execute(update(LEASE).where(LEASE.c.id == 1).values(expires_at=now + ttl_s))
            return _held(row)
        lease = Lease(fence=row.fence + 1, owner=owner, expires_at=now + ttl_s)
        connection.execute(
            update(LEASE)
            .where(LEASE.c.id == 1)
            .values(
                **vars(owner),
                owner=f"pid {owner.pid} on {owner.node}",
                fence=lease.fence,
                expires_at=lease.expires_at,
                renewed_at=now,
            )
        )
        return lease


def renew(store: Store, lease: Lease, ttl_s: float, now: float) -> Lease:
    """Prolong the lease. One that has expired is prolonged too while nobody else took it.

    Raises:
        Fenced: somebody else took it.
    """
    later = replace(lease, expires_at=now + ttl_s)
    with store.writing(lease.fence) as connection:
        connection.execute(update(LEASE).where(LEASE.c.id == 1).values(expires_at=later.expires_at, renewed_at=now))
    return later


def release(store: Store, lease: Lease, now: float) -> None:
    """Give the lease back, so that the next one need not wait. One that was lost already is fine."""
    try:
        with store.writing(lease.fence) as connection:
            connection.execute(update(LEASE).where(LEASE.c.id == 1).values(owner="", expires_at=0.0, renewed_at=now))
    except Fenced:
        return


def holder(store: Store) -> Held | None:
    """Who has the lease, expired or not; None when it was released or never taken."""
    with store.reading() as connection:
        row = _row(connection, lock=False)
    return _held(row) if row.owner else None


def last_held(store: Store) -> float:
    """When somebody had it last, as far as that is recorded: it was given back then, if nobody has it."""
    with store.reading() as connection:
        return _row(connection, lock=False).renewed_at


def _row(connection: Connection, *, lock: bool) -> LeaseRow:
    query = rows_of(LEASE, LeaseRow).where(LEASE.c.id == 1)
    return read_rows(connection, LeaseRow, query.with_for_update() if lock else query)[0]


def _process(row: LeaseRow) -> ProcessId:
    return ProcessId(**alike(ProcessId, row))


def _held(row: LeaseRow) -> Held:
    return Held(**alike(Held, row) | {"owner": _process(row)})


def _is_dead(process: ProcessId, alive: Callable[[ProcessId], bool]) -> bool:
    """Whether it surely ended. Another boot id under the same name may be another machine: only time tells."""
    here = process.node == os.uname().nodename and process.boot == boot_id()
    return here and not alive(process)
