"""Nouns to rows and back: the supervisor's journal in the database."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING

from remuda.backends.base import TaskKey
from remuda.plan.model import Workload
from remuda.store.rows import AllocationRow, EventRow, EvidenceRow, TaskRow, WorkloadRow
from remuda.supervise.ledger import BAN, Evidence
from remuda.supervise.model import Allocation, Cause, Line, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.store.database import Store

ANNOUNCED = "announced"
"""Kept of a workload whose endpoint was up since it was brought up."""


class StoreJournal:
    """The journal of the lease's holder. Every write carries its fencing number."""

    def __init__(self, store: Store, fence: int) -> None:
        self.store = store
        self.fence = fence

    def wants(self) -> list[Want]:
        """All recorded intents."""
        return [want_of(row) for row in self.store.workloads()]

    def tasks(self) -> list[Task]:
        """All recorded tasks."""
        return [task_of(row) for row in self.store.tasks()]

    def record(
        self,
        *,
        tasks: Sequence[Task] = (),
        allocations: Sequence[Allocation] = (),
        lines: Sequence[Line] = (),
        evidence: Sequence[Evidence] = (),
    ) -> None:
        """Write all of it or nothing.

        Raises:
            Fenced: another host holds the lease.
        """
        self.store.record(
            self.fence,
            tasks=[row_of(task) for task in tasks],
            allocations=[_allocation_row(item) for item in allocations],
            events=[_event_row(line) for line in lines],
            evidence=[evidence_row(item) for item in evidence],
        )

    def evidence(self, now: float) -> list[Evidence]:
        """Evidence against nodes that has not expired, oldest first."""
        return [evidence_of(row) for row in self.store.evidence(now)]

    def history(self, node: str, *, cluster: str | None = None) -> list[Evidence]:
        """What was ever held against a node and is still remembered, oldest first."""
        return [evidence_of(row) for row in self.store.node_history(node, cluster=cluster)]

    def unban(self, node: str, *, cluster: str, now: float) -> int:
        """End all bans of a node; they stay in its history. Returns how many there were.

        Raises:
            Fenced: another host holds the lease.
        """
        return self.store.end_evidence(self.fence, node, cluster=cluster, kind=BAN, now=now)

    def begin(self, rows: Sequence[WorkloadRow], lines: Sequence[Line], replaced: Sequence[str] = ()) -> None:
        """Record new workloads with the first lines of their stories in place of `replaced` ones, all or none.

        Raises:
            Conflict: a name is taken.
            Fenced: another host holds the lease.
        """
        self.store.add_workloads(self.fence, rows, [_event_row(line) for line in lines], replaced)

    def announce(self, workload: str, *, announced: bool) -> None:
        """Remember that its endpoint was announced, or forget it.

        Raises:
            NotFound: there is no workload of that name.
            Fenced: another host holds the lease.
        """
        self.store.set_workload_phase(self.fence, workload, ANNOUNCED if announced else "")

    def story(self, workload: str, *, limit: int = 100, after: int | None = None, task: str = "") -> list[Line]:
        """Lines of a workload's story, oldest first: the last `limit`, or the first `limit` after id `after`."""
        rows = self.store.events(workload, limit=limit, after_id=after, task=task or None)
        return [
            Line(row.at, row.workload, row.kind, row.reason, row.task, row.attempt, row.phase, row.id) for row in rows
        ]

    def allocations(self, workload: str) -> list[Allocation]:
        """Allocations of a workload, by the time they ended; those that live come last."""
        found = [_allocation_of(row) for row in self.store.allocations(workload)]
        return sorted(found, key=lambda item: (item.ended_at == 0, item.ended_at, item.submitted_at))


def want_of(row: WorkloadRow) -> Want:
    """The intent in a row."""
    return Want(
        Workload.model_validate_json(row.plan),
        row.running,
        row.generation,
        json.loads(row.counts),
        row.paused,
        row.restart_mark,
        row.ends_at,
        row.note,
        row.phase == ANNOUNCED,
    )


def task_of(row: TaskRow) -> Task:
    """The task in a row."""
    return Task(
        key=TaskKey(row.workload, row.group_name, row.idx),
        backend=row.backend,
        phase=Phase(row.phase),
        attempt=row.attempt,
        generation=row.generation,
        since=row.since,
        token=row.token,
        submitted_at=row.submitted_at,
        native=row.native,
        failures=row.failures,
        not_before=row.not_before,
        ready_since=row.ready_since,
        kill_at=row.kill_at,
        cause=Cause(row.cause),
        reason=row.reason,
        node=row.node,
        url=row.url,
        http_status=row.http_status,
        pid=row.pid,
        restarts=row.restarts,
        exit_code=row.exit_code,
        seq=row.seq,
        last_seen=row.last_seen,
        metrics=json.loads(row.metrics),
        started_at=row.started_at,
        released=row.released,
        never=row.never,
        limit_at=row.limit_at,
        requeues=row.requeues,
        ending=Cause(row.ending),
        pool=row.pool,
        pool_refusals=row.pool_refusals,
        pool_failures=row.pool_failures,
        pool_nevers=row.pool_nevers,
        pool_left_at=row.pool_left_at,
        quick_failures=row.quick_failures,
        restart_mark=row.restart_mark,
        yields_at=row.yields_at,
        loaded_at=row.loaded_at,
    )


def row_of(task: Task) -> TaskRow:
    """The row of a task."""
    return TaskRow(
        workload=task.key.workload,
        group_name=task.key.group,
        idx=task.key.index,
        backend=task.backend,
        phase=task.phase.value,
        attempt=task.attempt,
        generation=task.generation,
        since=task.since,
        token=task.token,
        submitted_at=task.submitted_at,
        native=task.native,
        failures=task.failures,
        not_before=task.not_before,
        ready_since=task.ready_since,
        kill_at=task.kill_at,
        cause=task.cause.value,
        reason=task.reason,
        node=task.node,
        url=task.url,
        http_status=task.http_status,
        pid=task.pid,
        restarts=task.restarts,
        exit_code=task.exit_code,
        seq=task.seq,
        last_seen=task.last_seen,
        metrics=json.dumps(dict(task.metrics)),
        started_at=task.started_at,
        released=task.released,
        never=task.never,
        limit_at=task.limit_at,
        requeues=task.requeues,
        ending=task.ending.value,
        pool=task.pool,
        pool_refusals=task.pool_refusals,
        pool_failures=task.pool_failures,
        pool_nevers=task.pool_nevers,
        pool_left_at=task.pool_left_at,
        quick_failures=task.quick_failures,
        restart_mark=task.restart_mark,
        yields_at=task.yields_at,
        loaded_at=task.loaded_at,
    )


def _allocation_row(item: Allocation) -> AllocationRow:
    return AllocationRow(
        token=item.token,
        workload=item.key.workload,
        group_name=item.key.group,
        idx=item.key.index,
        attempt=item.attempt,
        backend=item.backend,
        native=item.native,
        node=item.node,
        submitted_at=item.submitted_at,
        ended_at=item.ended_at,
        state="ended" if item.ended_at else "live",
        exit_code=item.exit_code,
        signal=item.signal,
        cause=item.cause.value,
        reason=item.reason,
        evidence=item.evidence,
        started_at=item.started_at,
        pool=item.pool,
    )


def _allocation_of(row: AllocationRow) -> Allocation:
    return Allocation(
        token=row.token,
        key=TaskKey(row.workload, row.group_name, row.idx),
        attempt=row.attempt,
        backend=row.backend,
        submitted_at=row.submitted_at,
        native=row.native,
        node=row.node,
        ended_at=row.ended_at,
        exit_code=row.exit_code,
        signal=row.signal,
        cause=Cause(row.cause),
        reason=row.reason,
        evidence=row.evidence,
        started_at=row.started_at,
        pool=row.pool,
    )


def _event_row(line: Line) -> EventRow:
    return EventRow(
        at=line.at,
        workload=line.workload,
        task=line.task,
        attempt=line.attempt,
        kind=line.kind,
        phase=line.phase,
        reason=line.reason,
    )


def evidence_row(item: Evidence) -> EvidenceRow:
    """The row of a piece of evidence."""
    return EvidenceRow(**{each.name: getattr(item, each.name) for each in fields(item)})


def evidence_of(row: EvidenceRow) -> Evidence:
    """The evidence in a row."""
    return Evidence(**{each.name: getattr(row, each.name) for each in fields(Evidence)})
