"""Read and write rows. Every write is one transaction that first makes sure that the writer still holds the lease."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import asdict, fields
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from sqlalchemy import delete, func, select, update

from remuda.base.errors import Conflict, Fenced, NotFound
from remuda.store.bulk import insert_rows, upsert_rows
from remuda.store.faults import translated
from remuda.store.migrate import WRITE
from remuda.store.rows import (
    AllocationRow,
    CampaignItemRow,
    CampaignRow,
    Evidence,
    JobRow,
    LeaseRow,
    StoryLine,
    TaskRow,
    WorkloadRow,
)
from remuda.store.tables import (
    ALLOCATION,
    CAMPAIGN,
    CAMPAIGN_ROW,
    EVENT,
    JOB,
    LEASE,
    META,
    NODE_EVIDENCE,
    TASK,
    WORKLOAD,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Select, Table
    from sqlalchemy.engine import Connection, Engine

    from remuda.store.address import Address
    from remuda.store.room import Files

EVIDENCE_KEPT_S: Final = 90 * 86400.0
"""Evidence against nodes stays so long after it has expired, for their history."""

Row = TypeVar(
    "Row", WorkloadRow, TaskRow, AllocationRow, StoryLine, Evidence, LeaseRow, JobRow, CampaignRow, CampaignItemRow
)


class Store:
    """One open database. Threads may share it; processes open their own.

    Writes raise `Fenced` when `fence` is not that of the lease in force, and change nothing whenever they raise.
    Every method raises `Unavailable` when the database does not answer and `RemudaError` when it is broken or full.
    """

    def __init__(self, engine: Engine, address: Address, files: Files) -> None:
        self.address: Final = address
        self.files: Final = files
        self.engine: Final = engine
        self._writer: Final = engine.execution_options(**{WRITE: True})
        self._open: Final = _Open()

    def __repr__(self) -> str:
        return f"Store({self.address.shown!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. The store may not be used afterwards."""
        self.files.forget()
        self.engine.dispose()

    # Transactions -----------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads: one consistent state."""
        if self._open.writer is not None:
            yield self._open.writer
            return
        with translated(self.address), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """A transaction that writes without a fence: for the lease itself and for upkeep.

        Raises:
            Unwritable: the file is gone, or there is no room for what is written.
        """
        self.files.check()
        with translated(self.address), self._writer.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self, fence: int) -> Iterator[Connection]:
        """A transaction of the lease's holder.

        Raises:
            Fenced: `fence` is not that of the lease in force.
        """
        if self._open.writer is not None:
            yield self._open.writer
            return
        with self.changing() as connection:
            # The row stays locked until the end of the transaction, so that nobody takes over in between. (On
            # SQLite the whole database is.)
            held = select(LEASE.c.fence, LEASE.c.owner).where(LEASE.c.id == 1).with_for_update(read=True)
            now_fence, owner = connection.execute(held).one()
            if now_fence != fence or not owner:
                raise Fenced(
                    f"this host held lease {fence}; lease {now_fence} is in force now, of {owner or 'nobody'}",
                    hint="`remuda host status` shows the current one",
                )
            yield connection

    @contextmanager
    def together(self, fence: int) -> Iterator[None]:
        """One transaction for everything that this thread reads and writes within: all of it is written, or nothing.

        Raises:
            Fenced: `fence` is not that of the lease in force.
        """
        with self.writing(fence) as connection:
            before, self._open.writer = self._open.writer, connection
            try:
                yield
            finally:
                self._open.writer = before

    # Workloads --------------------------------------------------------------------------------------------------

    def workloads(self) -> list[WorkloadRow]:
        """All workloads by name."""
        with self.reading() as connection:
            return read_rows(connection, WorkloadRow, rows_of(WORKLOAD, WorkloadRow).order_by(WORKLOAD.c.name))

    def workload(self, name: str) -> WorkloadRow:
        """One workload.

        Raises:
            NotFound: there is none of that name.
        """
        with self.reading() as connection:
            found = read_rows(connection, WorkloadRow, rows_of(WORKLOAD, WorkloadRow).where(WORKLOAD.c.name == name))
        if not found:
            raise _unknown(name)
        return found[0]

    def add_workloads(
        self, fence: int, rows: Sequence[WorkloadRow], events: Sequence[StoryLine] = (), replaced: Sequence[str] = ()
    ) -> None:
        """Insert workloads with the first lines of their stories, all or none.

        Args:
            fence: of the writer's lease.
            rows: new workloads.
            events: appended.
            replaced: names of workloads that are deleted before, with their tasks.

        Raises:
            Conflict: a name is taken.
        """
        names = [row.name for row in rows]
        with self.writing(fence) as connection:
            for start in range(0, len(replaced), 500):
                connection.execute(delete(WORKLOAD).where(WORKLOAD.c.name.in_(replaced[start : start + 500])))
            for start in range(0, len(names), 500):
                taken = select(WORKLOAD.c.name).where(WORKLOAD.c.name.in_(names[start : start + 500]))
                if (first := connection.execute(taken).first()) is not None:
                    raise Conflict(f"workload {first[0]!r} exists already")
            insert_rows(connection, WORKLOAD, rows)
            insert_rows(connection, EVENT, events)

    def replace_workload(self, fence: int, row: WorkloadRow) -> None:
        """Overwrite all columns of a workload; its tasks stay as they are.

        Raises:
            NotFound: there is none of that name.
        """
        with self.writing(fence) as connection:
            _change_one(connection, row.name, asdict(row))

    def set_intent(
        self,
        fence: int,
        name: str,
        *,
        running: bool,
        counts: str,
        changed_at: float,
        note: str = "",
        paused: bool | None = None,
        restart_mark: int | None = None,
    ) -> int:
        """Record what the user wants now and return the new generation, one more than the last.

        Args:
            fence: of the writer's lease.
            name: of the workload.
            running: false takes it down.
            counts: JSON object, count by group where it differs from the plan.
            changed_at: now.
            note: why, for people.
            paused: leave alone what runs and begin nothing new; None: as it was.
            restart_mark: `supervise.model.Want.restart_mark`; None: as it was.

        Raises:
            NotFound: there is no workload of that name.
        """
        values: dict[str, Any] = {"running": running, "counts": counts, "changed_at": changed_at, "note": note}
        values |= {} if paused is None else {"paused": paused}
        values |= {} if restart_mark is None else {"restart_mark": restart_mark}
        with self.writing(fence) as connection:
            _change_one(connection, name, {**values, "generation": WORKLOAD.c.generation + 1})
            return int(connection.execute(select(WORKLOAD.c.generation).where(WORKLOAD.c.name == name)).scalar_one())

    def end_workloads(self, fence: int, names: Sequence[str], *, changed_at: float, note: str) -> dict[str, int]:
        """Record that these are not wanted any more, all or none; the new generation of each that there is."""
        changed = {"running": False, "changed_at": changed_at, "note": note, "generation": WORKLOAD.c.generation + 1}
        found: dict[str, int] = {}
        with self.writing(fence) as connection:
            for start in range(0, len(names), 500):
                some = WORKLOAD.c.name.in_(names[start : start + 500])
                connection.execute(update(WORKLOAD).where(some).values(changed))
                rows = connection.execute(select(WORKLOAD.c.name, WORKLOAD.c.generation).where(some))
                found |= {name: int(generation) for name, generation in rows}
        return found

    def note_usage(self, fence: int, name: str, *, used_at: float, usage: str) -> None:
        """Keep when a workload's endpoint was last used, and what its counters said.

        Raises:
            NotFound: there is no workload of that name.
        """
        with self.writing(fence) as connection:
            _change_one(connection, name, {"used_at": used_at, "usage": usage})

    def set_workload_phase(self, fence: int, name: str, phase: str) -> None:
        """Keep the summary of a workload's tasks, for lists.

        Raises:
            NotFound: there is no workload of that name.
        """
        with self.writing(fence) as connection:
            _change_one(connection, name, {"phase": phase})

    def remove_workload(self, fence: int, name: str) -> None:
        """Delete a workload and its tasks. Its allocations and events stay until they are pruned. Absent is fine."""
        with self.writing(fence) as connection:
            connection.execute(delete(WORKLOAD).where(WORKLOAD.c.name == name))

    # Tasks, allocations, events ---------------------------------------------------------------------------------

    def tasks(self, workload: str | None = None) -> list[TaskRow]:
        """Tasks by workload, group and index; of one workload, or of all."""
        query = rows_of(TASK, TaskRow).order_by(TASK.c.workload, TASK.c.group_name, TASK.c.idx)
        if workload is not None:
            query = query.where(TASK.c.workload == workload)
        with self.reading() as connection:
            return read_rows(connection, TaskRow, query)

    def record(
        self,
        fence: int,
        *,
        tasks: Sequence[TaskRow] = (),
        allocations: Sequence[AllocationRow] = (),
        events: Sequence[StoryLine] = (),
        evidence: Sequence[Evidence] = (),
    ) -> None:
        """Write facts and decisions, all or none.

        Args:
            fence: of the writer's lease.
            tasks: new states, inserted or overwritten whole.
            allocations: inserted or overwritten whole.
            events: appended; their `id` is ignored.
            evidence: appended; its `id` is ignored. What expired `EVIDENCE_KEPT_S` before it is forgotten.

        Raises:
            Conflict: a task belongs to a workload that does not exist (any more).
        """
        with self.writing(fence) as connection:
            upsert_rows(connection, TASK, tasks)
            upsert_rows(connection, ALLOCATION, allocations)
            insert_rows(connection, EVENT, events)
            _add_evidence(connection, evidence)

    def events(
        self, workload: str, *, limit: int = 100, after_id: int | None = None, task: str | None = None,
        begun_at: float | None = None,
    ) -> list[StoryLine]:  # fmt: skip
        """Events of a workload, oldest first.

        Args:
            workload: its name; one that was removed may still have events.
            limit: how many at most.
            after_id: the first `limit` with a higher id; None: the last `limit` of all.
            task: only of this `group/index`.
            begun_at: only from the line on that has this time: clocks may be set, and ids only rise.
        """
        query = rows_of(EVENT, StoryLine).where(EVENT.c.workload == workload).limit(limit)
        if begun_at is not None:
            first = select(func.min(EVENT.c.id)).where(EVENT.c.workload == workload, EVENT.c.at == begun_at)
            query = query.where(EVENT.c.id >= func.coalesce(first.scalar_subquery(), 0))
        if task is not None:
            query = query.where(EVENT.c.task == task)
        if after_id is not None:
            query = query.where(EVENT.c.id > after_id).order_by(EVENT.c.id)
        else:
            query = query.order_by(EVENT.c.id.desc())
        with self.reading() as connection:
            found = read_rows(connection, StoryLine, query)
        return found if after_id is not None else found[::-1]

    def allocations(self, workload: str) -> list[AllocationRow]:
        """All allocations of a workload that are still remembered, by task and attempt."""
        columns = ALLOCATION.c
        query = rows_of(ALLOCATION, AllocationRow).where(columns.workload == workload)
        query = query.order_by(columns.group_name, columns.idx, columns.submitted_at, columns.attempt)
        with self.reading() as connection:
            return read_rows(connection, AllocationRow, query)

    # The rest ---------------------------------------------------------------------------------------------------

    def add_evidence(self, fence: int, evidence: Sequence[Evidence]) -> None:
        """Remember evidence against nodes."""
        with self.writing(fence) as connection:
            _add_evidence(connection, evidence)

    def evidence(self, now: float) -> list[Evidence]:
        """Evidence that has not expired, oldest first."""
        query = rows_of(NODE_EVIDENCE, Evidence).where(NODE_EVIDENCE.c.expires_at > now)
        with self.reading() as connection:
            return read_rows(connection, Evidence, query.order_by(NODE_EVIDENCE.c.at, NODE_EVIDENCE.c.id))

    def node_history(self, node: str, *, cluster: str | None = None, limit: int = 1000) -> list[Evidence]:
        """The last `limit` pieces of evidence against one node, oldest first, expired ones included."""
        columns = NODE_EVIDENCE.c
        query = rows_of(NODE_EVIDENCE, Evidence).where(columns.node == node).limit(limit)
        if cluster is not None:
            query = query.where(columns.cluster == cluster)
        with self.reading() as connection:
            return read_rows(connection, Evidence, query.order_by(columns.at.desc(), columns.id.desc()))[::-1]

    def end_evidence(self, fence: int, node: str, *, cluster: str, kind: str, now: float) -> int:
        """Let evidence of one kind against a node expire now; it stays in the history. Returns how many there were."""
        columns = NODE_EVIDENCE.c
        mine = (columns.node == node) & (columns.cluster == cluster) & (columns.kind == kind)
        with self.writing(fence) as connection:
            change = update(NODE_EVIDENCE).where(mine, columns.expires_at > now).values(expires_at=now)
            return connection.execute(change).rowcount

    def forget_evidence(self, fence: int, nodes: Sequence[str], *, cluster: str) -> int:
        """Delete all evidence against these nodes, their history included. Returns how many pieces there were."""
        columns = NODE_EVIDENCE.c
        with self.writing(fence) as connection:
            mine = columns.node.in_(nodes) & (columns.cluster == cluster)
            return connection.execute(delete(NODE_EVIDENCE).where(mine)).rowcount

    def jobs(self) -> list[JobRow]:
        """All jobs."""
        with self.reading() as connection:
            return read_rows(connection, JobRow, rows_of(JOB, JobRow))

    def record_jobs(self, fence: int, rows: Sequence[JobRow], removed: Sequence[str] = ()) -> None:
        """Write jobs, inserted or overwritten whole, and forget those that are `removed`; all or none."""
        with self.writing(fence) as connection:
            for start in range(0, len(removed), 500):
                connection.execute(delete(JOB).where(JOB.c.id.in_(removed[start : start + 500])))
            upsert_rows(connection, JOB, rows)

    def campaigns(self) -> list[tuple[CampaignRow, list[CampaignItemRow]]]:
        """All campaigns, each with its rows in their order."""
        with self.reading() as connection:
            found = read_rows(connection, CampaignRow, rows_of(CAMPAIGN, CampaignRow).order_by(CAMPAIGN.c.name))
            items = rows_of(CAMPAIGN_ROW, CampaignItemRow).order_by(CAMPAIGN_ROW.c.idx)
            rows = read_rows(connection, CampaignItemRow, items)
        return [(one, [row for row in rows if row.campaign == one.name]) for one in found]

    def record_campaign(
        self, fence: int, rows: Sequence[CampaignItemRow], begun: CampaignRow | None = None, removed: str = ""
    ) -> None:
        """Write rows of a campaign; with `begun` in place of all that it had. Forget the one that is `removed`."""
        with self.writing(fence) as connection:
            name = begun.name if begun is not None else removed
            connection.execute(delete(CAMPAIGN).where(CAMPAIGN.c.name == name))
            upsert_rows(connection, CAMPAIGN, [begun] if begun is not None else [])
            upsert_rows(connection, CAMPAIGN_ROW, rows)

    def meta(self, key: str) -> str:
        """A small value kept beside the tables; empty when it was never set."""
        with self.reading() as connection:
            return connection.scalar(select(META.c.value).where(META.c.key == key)) or ""

    def set_meta(self, fence: int, key: str, value: str) -> None:
        """Keep a small value."""
        with self.writing(fence) as connection:
            upsert_rows(connection, META, [SimpleNamespace(key=key, value=value)])


class _Open(threading.local):
    """The transaction that a thread is in, of `Store.together`."""

    writer: Connection | None = None


def rows_of(table: Table, kind: type[Row]) -> Select[Any]:
    """A query of all columns in the order of the row's fields."""
    return select(*(table.c[item.name] for item in fields(kind)))


def read_rows(connection: Connection, kind: type[Row], query: Select[Any]) -> list[Row]:
    """Run a query made by `rows_of`."""
    make: Callable[..., Row] = kind
    return [make(*row) for row in connection.execute(query)]


def _add_evidence(connection: Connection, evidence: Sequence[Evidence]) -> None:
    if not evidence:
        return
    insert_rows(connection, NODE_EVIDENCE, evidence)
    oldest = max(item.at for item in evidence) - EVIDENCE_KEPT_S
    connection.execute(delete(NODE_EVIDENCE).where(NODE_EVIDENCE.c.expires_at < oldest))


def _change_one(connection: Connection, name: str, values: dict[str, Any]) -> None:
    if connection.execute(update(WORKLOAD).where(WORKLOAD.c.name == name).values(values)).rowcount == 0:
        raise _unknown(name)


def _unknown(name: str) -> NotFound:
    return NotFound(f"no workload {name!r}", hint="`remuda status` lists them")
