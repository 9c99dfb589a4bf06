"""Nouns to rows and back: the supervisor's journal in the database."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from remuda.backends.base import TaskKey
from remuda.base.asker import asking
from remuda.base.errors import Unavailable, Unwritable
from remuda.plan.model import Workload
from remuda.store.rows import AllocationRow, Evidence, StoryLine, TaskRow, WorkloadRow
from remuda.store.timeshift import move_times
from remuda.supervise.model import Allocation, Cause, Phase, Task, Want
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from remuda.store.database import Store

ANNOUNCED = "announced"
"""Kept of a workload whose endpoint was up since it was brought up."""


def _shared(one: type, other: type) -> tuple[str, ...]:
    """Names of the fields that two records have in common."""
    names = {each.name for each in fields(other)}
    return tuple(each.name for each in fields(one) if each.name in names)


_TASK = _shared(Task, TaskRow)
_ALLOCATION = _shared(Allocation, AllocationRow)


_getter = cache(lambda names: attrgetter(*names))


def _copied(record: object, names: tuple[str, ...]) -> dict[str, Any]:
    """What one record gives the other unchanged. That nothing is lost on the way is for the tests to show."""
    return dict(zip(names, _getter(names)(record), strict=True))


class StoreJournal:
    """The journal of the lease's holder. Every write carries its fencing number."""

    def __init__(self, store: Store, fence: int) -> None:
        self.store = store
        self.fence = fence
        self._then: list[Callable[[], None]] | None = None
        self.in_doubt = False
        """Whether a transaction may have been recorded although its answer was lost: memory may be behind."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is written within is one transaction; within another it is part of that.

        What `then` is told within is done when all of it is recorded, and never if it could not be: so the host's
        memory follows its database. Only for the thread of the event loop, and without `await` inside.

        Raises:
            Fenced: another host holds the lease.
        """
        if self._then is not None:
            yield
            return
        then = self._then = []
        is_whole = False
        try:
            with self.store.together(self.fence):
                yield
                is_whole = True
        except Unwritable:
            raise
        except Unavailable:
            self.in_doubt |= is_whole
            raise
        finally:
            self._then = None
        for act in then:
            act()

    def then(self, act: Callable[[], None]) -> None:
        """Do it once the transaction that is open is recorded; now, where there is none."""
        if self._then is None:
            act()
        else:
            self._then.append(act)

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
        lines: Sequence[StoryLine] = (),
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
            events=[_told_by(line) for line in lines],
            evidence=evidence,
        )

    def move_times(self, by: float, now: float, offset: float) -> None:
        """Move all recorded times that still count by so many seconds, because the clock was set.

        Raises:
            Fenced: another host holds the lease.
        """
        move_times(self.store, self.fence, by, now, offset)

    def evidence(self, now: float) -> list[Evidence]:
        """Evidence against nodes that has not expired, oldest first."""
        return self.store.evidence(now)

    def begin(self, rows: Sequence[WorkloadRow], lines: Sequence[StoryLine], replaced: Sequence[str] = ()) -> None:
        """Record new workloads with the first lines of their stories in place of `replaced` ones, all or none.

        Raises:
            Conflict: a name is taken.
            Fenced: another host holds the lease.
        """
        self.store.add_workloads(self.fence, rows, [_told_by(line) for line in lines], replaced)

    def announce(self, workload: str, *, announced: bool) -> None:
        """Remember that its endpoint was announced, or forget it.

        Raises:
            NotFound: there is no workload of that name.
            Fenced: another host holds the lease.
        """
        self.store.set_workload_phase(self.fence, workload, ANNOUNCED if announced else "")

    def story(
        self, workload: str, *, limit: int = 100, after: int | None = None, begun_at: float | None = None
    ) -> list[StoryLine]:
        """Lines of a workload's story, oldest first: the last `limit`, or the first `limit` after id `after`.

        With `begun_at`, when it was brought up, only of that life.
        """
        return self.store.events(workload, limit=limit, after_id=after, begun_at=begun_at)

    def allocations(self, workload: str) -> list[Allocation]:
        """Allocations of a workload, by the time they ended; those that live come last."""
        found = [_allocation_of(row) for row in self.store.allocations(workload)]
        return sorted(found, key=lambda item: (item.ended_at == 0, item.ended_at, item.submitted_at))


def want_of(row: WorkloadRow) -> Want:
    """The intent in a row."""
    counts, marks = json.loads(row.counts), json.loads(row.group_marks)
    known = alike(Want, row) | {"counts": counts, "group_marks": marks, "announced": row.phase == ANNOUNCED}
    return Want(Workload.model_validate_json(row.plan), **known)


def task_of(row: TaskRow) -> Task:
    """The task in a row."""
    known = _copied(row, _TASK)
    known |= {"phase": Phase(row.phase), "cause": Cause(row.cause), "ending": Cause(row.ending)}
    known |= {"metrics": json.loads(row.metrics), "ports": json.loads(row.ports)}
    return Task(TaskKey(row.workload, row.group_name, row.idx), **known)


def row_of(task: Task) -> TaskRow:
    """The row of a task."""
    key, known = task.key, _copied(task, _TASK)
    known |= {"phase": task.phase.value, "cause": task.cause.value, "ending": task.ending.value}
    known |= {"metrics": json.dumps(dict(task.metrics)), "ports": json.dumps(dict(task.ports))}
    return TaskRow(key.workload, key.group, key.index, **known)


def _allocation_row(item: Allocation) -> AllocationRow:
    key, known = item.key, _copied(item, _ALLOCATION)
    known |= {"cause": item.cause.value, "state": "ended" if item.ended_at else "live"}
    return AllocationRow(workload=key.workload, group_name=key.group, idx=key.index, **known)


def _allocation_of(row: AllocationRow) -> Allocation:
    known = _copied(row, _ALLOCATION) | {"cause": Cause(row.cause)}
    return Allocation(key=TaskKey(row.workload, row.group_name, row.idx), **known)


def _told_by(line: StoryLine) -> StoryLine:
    """The line of an intent, with who asked for it."""
    who = asking.get()
    return replace(line, reason=f"{line.reason} by {who}") if who and line.kind == "intent" else line
