"""Recorded times move with the machine's clock, all that count or none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import Fenced
from remuda.store.lease import Lease, acquire
from remuda.store.rows import CampaignItemRow, CampaignRow, Evidence, TaskRow, WorkloadRow
from remuda.store.timeshift import TASK_TIMES, believe, keep_offset, kept_offset, move_times
from remuda.supervise.shifted import TIMES
from remuda.wire.process import identify

if TYPE_CHECKING:
    from remuda.store.database import Store

NOW, DAY = 1_000_000.0, 86_400.0


@pytest.fixture
def fence(store: Store) -> int:
    lease = acquire(store, identify(os.getpid()), ttl_s=10, now=NOW)
    assert isinstance(lease, Lease)
    return lease.fence


def ban(node: str, at: float, for_s: float) -> Evidence:
    return Evidence(node=node, at=at, kind="ban", expires_at=at + for_s)


@pytest.mark.parametrize("by", [DAY, -DAY])
def test_everything_that_counts_moves(store: Store, fence: int, by: float) -> None:
    row = WorkloadRow("w", "u1", "run", "local", "{}", created_at=NOW, ends_at=NOW + 600)
    store.add_workloads(fence, [row])
    task = TaskRow("w", "script", 0, "local", "waiting", since=NOW, not_before=NOW + 30, limit_at=NOW + 900)
    store.record(fence, tasks=[task])
    store.add_evidence(fence, [ban("new", NOW, 600), ban("over", NOW - 900, 600)])
    move_times(store, fence, by, NOW, 5.0)
    (moved,) = store.tasks()
    assert (moved.since, moved.not_before) == (NOW + by, NOW + 30 + by)
    assert (moved.limit_at, moved.kill_at, moved.started_at) == (NOW + 900, 0.0, 0.0)
    kept = store.workload("w")
    assert (kept.ends_at, kept.created_at, kept.used_at) == (NOW + 600 + by, NOW, 0.0)
    assert store.node_history("new")[0].expires_at == NOW + 600 + by
    assert store.node_history("over")[0].expires_at == NOW - 300
    assert kept_offset(store) == 5.0


def test_nothing_moves_for_one_who_lost_the_lease(store: Store, fence: int) -> None:
    store.add_workloads(fence, [WorkloadRow("w", "u1", "run", "local", "{}", ends_at=NOW)])
    with pytest.raises(Fenced):
        move_times(store, fence - 1, DAY, NOW, 5.0)
    assert store.workload("w").ends_at == NOW
    assert kept_offset(store) is None


def test_evidence_from_the_future_lasts_as_long_as_it_was_to_last(store: Store, fence: int) -> None:
    store.add_evidence(fence, [ban("early", NOW + DAY, 600), ban("past", NOW - 100, 600)])
    believe(store, fence, NOW)
    assert [item.expires_at for item in store.node_history("early")] == [NOW + 600]
    assert [item.expires_at for item in store.node_history("past")] == [NOW + 500]


def test_what_another_boot_noted_says_nothing(store: Store, fence: int) -> None:
    keep_offset(store, fence, 7.0)
    assert kept_offset(store) == 7.0
    store.set_meta(fence, "clock", '{"boot": "another", "offset": 7.0}')
    assert kept_offset(store) is None
    store.set_meta(fence, "clock", "what is this")
    assert kept_offset(store) is None


def test_the_database_and_the_loop_move_the_same_fields() -> None:
    assert TASK_TIMES == TIMES


def test_rows_of_campaigns_move_with_the_clock(store: Store, fence: int) -> None:
    rows = [CampaignItemRow("p", 0, since=NOW, started_at=NOW), CampaignItemRow("p", 1, since=NOW)]
    store.record_campaign(fence, rows, CampaignRow("p"))
    move_times(store, fence, DAY, NOW, 0.0)
    ((_, moved),) = store.campaigns()
    assert [(row.since, row.started_at) for row in moved] == [(NOW + DAY, NOW + DAY), (NOW + DAY, 0.0)]
