"""Keeps the rows of jobs: how they are is seen in their folders and said by the supervisor, and written down here.

It goes on beside the loop, which never waits for it. All that it does may be done again: a host that dies between
looking at a folder and recording what is there leaves that to the next.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import orjson

from remuda.base.clock import lived
from remuda.base.errors import Conflict, RemudaError
from remuda.store.rows import BRIEF, WHOLE
from remuda.supervise.jobs import BY, ENDED, JobSeen, JobTold, due, last_word, taken_in
from remuda.supervise.reconciler import Due, Moment, Reconciler, Turns
from remuda.supervise.summary import summarise
from remuda.views.job_folders import OUTCOME, JobFolder, find, folders

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from remuda.backends.base import TaskKey
    from remuda.base.clock import Clock
    from remuda.base.disk.paths import StatePaths
    from remuda.store.rows import JobRow
    from remuda.supervise.loop import Supervisor
    from remuda.supervise.model import Task, Want
    from remuda.supervise.records import StoreJournal

_LOG = logging.getLogger("remuda.host.reconcilers.job_rows")
_LOOK_S: Final = 5.0
"""Between two looks at jobs that go on; what the supervisor hears of its own comes at once."""
_AT_ONCE: Final = 500
"""So many are recorded together."""


def told_of(want: Want, tasks: Mapping[TaskKey, Task]) -> JobTold:
    """What the supervisor says of a job. Pure."""
    summary, task = summarise(want, tasks), next(iter(tasks.values()), None)
    told = JobTold(summary.phase, summary.reason)
    if summary.phase in ("DOWN", "STOPPING"):
        told = replace(told, reason="cancelled")
    elif told.word in ENDED:
        told = replace(told, reason=summary.reason.partition(": ")[2] or summary.reason)
    if task is None:
        return told
    native = "" if want.workload.is_here else task.native
    return replace(told, since=task.since, native=native, node=task.node, attempt=task.attempt, heard_at=task.last_seen)


class JobKeeper(Reconciler[str, tuple[object, bool]]):
    """The rows of all jobs. Not thread-safe: the host calls it from its event loop."""

    def __init__(self, journal: StoreJournal, supervisor: Supervisor, paths: StatePaths, clock: Clock) -> None:
        self._journal = journal
        self._supervisor = supervisor
        self._paths = paths
        self._clock = clock
        self.rows = {row.id: row for row in journal.store.jobs()}
        self._unwritten: set[str] = set()
        self._heard: dict[str, tuple[float, float]] = {}
        """When a job wrote last, as its file system says, and for how long this host had lived then."""
        self._marks: dict[str, object] = {}
        self._news: set[str] = set()
        self.turns: Turns = Turns(self._turn, "jobs")
        self._has_begun = self._is_stuck = False
        self._alone = asyncio.Lock()

    def due(self, at: Moment) -> Due[str, tuple[object, bool]]:
        """What has changed of a job that the supervisor keeps going, and whether its row may lack that."""
        want, name = at.want, at.want.workload.name
        if not want.workload.kind.traits.has_outcome:
            return Due()
        told, row = told_of(want, at.tasks), self.rows.get(name)
        mark, before = (want.workload.uid, want.generation, replace(told, heard_at=0.0)), self._marks.get(name)
        is_known = before is None and row is not None and row.state in ENDED and row.state == told.word
        return Due({} if mark == before else {name: (mark, not is_known)})

    def act(self, actions: Mapping[str, tuple[object, bool]]) -> None:
        """Look at it soon."""
        self._marks |= {name: mark for name, (mark, _) in actions.items()}
        self._news |= (news := {name for name, (_, is_news) in actions.items() if is_news})
        if news:
            self.turns.wake()

    async def _turn(self) -> float:
        await self.look(() if self._has_begun and self._news else None)
        return _LOOK_S

    async def look(self, only: Collection[str] | None = None) -> None:
        """Look at all jobs that may have changed, or at `only` these and those of which there is news; record it."""
        async with self._alone:
            try:
                names = await asyncio.to_thread(folders, self._paths)
            except OSError as error:
                _LOG.warning("jobs cannot be listed: %s", error)
                return
            if not self._has_begun:
                self._has_begun = True
                self._news |= await asyncio.to_thread(_newer, self._paths, [*self.rows.values()])
            news, self._news = self._news, set()
            now = self._clock.now()
            ids = due(self.rows, names, news, now) if only is None else sorted(names & {*only, *news})
            gone = [name for name in self.rows if name not in names]
            for name in gone:
                del self.rows[name]
            has_moved = bool(gone)
            for start in range(0, max(len(ids), 1), _AT_ONCE):
                seen = await asyncio.to_thread(_look, self._paths, ids[start : start + _AT_ONCE])
                words = {}
                for one in seen:
                    has_moved |= self._take(one, now)
                    if (word := last_word(self.rows[one.id], one)) is not None:
                        words[one.id] = word
                if has_moved or only is None:
                    self._record(gone)
                if words:
                    await asyncio.to_thread(_write, self._paths, words)

    def _take(self, seen: JobSeen, now: float) -> bool:
        """Take in what a folder shows; whether the job's state is another."""
        before = self.rows.get(seen.id)
        row = taken_in(before, seen, self._told(seen.id), self._quiet_s(seen, now), now)
        if row != before:
            self.rows[row.id] = row
            self._unwritten.add(row.id)
        return before is None or row.state != before.state

    def _told(self, name: str) -> JobTold | None:
        want = self._supervisor.wants.get(name)
        is_kept = want is not None and want.workload.kind.traits.has_outcome
        return told_of(want, self._supervisor.tasks(name)) if want is not None and is_kept else None

    def _quiet_s(self, seen: JobSeen, now: float) -> float:
        """For how long it has written nothing; times in which this host stood still, or its clock was set, are none."""
        lived_s = lived(self._clock)
        heard_at, at = self._heard.get(seen.id, (0.0, lived_s - max(0.0, now - seen.heard_at)))
        if heard_at != seen.heard_at:
            at = lived_s if heard_at else at
            self._heard[seen.id] = (seen.heard_at, at)
        return lived_s - at

    def _record(self, gone: Sequence[str]) -> None:
        rows = [self.rows[name] for name in self._unwritten if name in self.rows]
        if not rows and not gone:
            return
        try:
            self._journal.store.record_jobs(self._journal.fence, rows, gone)
        except RemudaError as error:
            if not self._is_stuck:
                _LOG.warning("jobs cannot be recorded: %s", error)
            self._is_stuck = True
        else:
            self._is_stuck = False
            self._unwritten.clear()

    async def answer(self, job_id: str = "", *, brief: bool = False) -> bytes:
        """JSON of all jobs, or of one, by its id or by the name that its id was made of.

        Raises:
            NotFound: there is none.
            Conflict: it is something else.
        """
        await self.look([job_id] if job_id in self.rows else None)
        want = self._supervisor.wants.get(job_id)
        if want is not None and not want.workload.kind.traits.has_outcome:
            kind = want.workload.kind.value
            raise Conflict(f"{job_id!r} is a {kind}, not a job", hint=f"remuda status {job_id}")
        rows = [find(self.rows, job_id, self.rows)] if job_id else [*self.rows.values()]
        names = BRIEF if brief else WHOLE
        return orjson.dumps({"columns": names, "rows": [*map(attrgetter(*names), rows)]})

    async def prune(self, before: float) -> int:
        """Forget jobs that ended before `before`, seconds since the epoch; their checkpoints are elsewhere."""
        old = [row.id for row in self.rows.values() if row.state in ENDED and row.ended_at < before]
        for name in old:
            await asyncio.to_thread(shutil.rmtree, self._paths.jobs / name, ignore_errors=True)
        await self.look()
        return len(old)


def _look(paths: StatePaths, names: Sequence[str]) -> list[JobSeen]:
    return [seen for name in names if (seen := JobFolder(paths, name).look()) is not None]


def _newer(paths: StatePaths, rows: Sequence[JobRow]) -> set[str]:
    """Jobs that have ended, and of which a word is later than that."""
    return {
        row.id for row in rows if row.state in ENDED and JobFolder(paths, row.id).changed_at(OUTCOME) > row.ended_at
    }


def _write(paths: StatePaths, words: Mapping[str, Mapping[str, Any]]) -> None:
    """Write down ends that no driver lived to write. What one has written meanwhile is truer."""
    for name, word in words.items():
        folder = JobFolder(paths, name)
        with suppress(RemudaError):
            if (last := folder.read(OUTCOME)) and BY not in last:
                continue
            if folder.path.is_dir():
                folder.write(OUTCOME, word)
