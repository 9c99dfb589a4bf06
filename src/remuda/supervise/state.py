"""What the loop and its hands share: intents, tasks, backends, and what is to be written."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from remuda.base.errors import Fenced, RemudaError, Unwritable
from remuda.store.rows import StoryLine
from remuda.supervise.changes import Changes
from remuda.supervise.shifted import believed, believed_want

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from remuda.backends.base import Backend, TaskKey
    from remuda.base.clock import Clock
    from remuda.plan.model import Group
    from remuda.supervise.model import Task, Want
    from remuda.supervise.records import StoreJournal

_LOG = logging.getLogger("remuda.supervise")


class State:
    """Tasks as they are, and the writing down of what changes."""

    def __init__(self, journal: StoreJournal, backends: Mapping[str, Backend], clock: Clock) -> None:
        self.journal = journal
        self.backends = backends
        self.clock = clock
        now = clock.now()
        self.wants: dict[str, Want] = {want.workload.name: believed_want(want, now) for want in journal.wants()}
        self.all: dict[str, dict[TaskKey, Task]] = defaultdict(dict)
        for task in journal.tasks():
            self.all[task.key.workload][task.key] = believed(task, now)
        self.bugs: dict[str, str] = {}
        self.has_bug = False
        self.only_ends = False
        """Nothing can be recorded now, and nobody else is in charge: what is to end is ended all the same."""
        self._unwritten = Changes()
        self._is_refused = False

    def group_of(self, task: Task) -> Group:
        """The group of a task of a workload that is followed."""
        return self.wants[task.key.workload].workload.group(task.key.group)

    def every(self) -> Iterator[Task]:
        """All tasks of all workloads."""
        for tasks in self.all.values():
            yield from tasks.values()

    def current(self, task: Task) -> Task | None:
        """The task as it is now, if it still is about the same allocation."""
        now = (self.all.get(task.key.workload) or {}).get(task.key)
        return now if now is not None and now.token == task.token else None

    def put(self, changes: Changes, before: Task | None, after: Task) -> None:
        """Keep a task as it is now."""
        self.all[after.key.workload][after.key] = after
        changes.note(before, after, self.clock.now())

    def isolate(self, workload: str, changes: Changes) -> Isolated:
        """One workload's bug must not stop the others; it becomes a line of its story."""
        return Isolated(self, workload, changes)

    def note_bug(self, workload: str, error: Exception, changes: Changes) -> None:
        """Tell it once: a bug that comes back in every round must not fill the log and the database."""
        self.has_bug = True
        text = text_of(error)
        if self.bugs.get(workload) != text:
            self.bugs[workload] = text
            _LOG.error("bug in the supervision of %s", workload, exc_info=error)
            changes.lines.append(StoryLine(self.clock.now(), workload, "bug", text))

    def write(self, changes: Changes) -> bool:
        """Write down, with what could not be written before. False: the store refused, nothing may be done now."""
        self._unwritten.add(changes)
        if self._unwritten.is_empty():
            return True
        try:
            self.journal.record(
                tasks=self._present(self._unwritten.tasks),
                allocations=self._unwritten.allocations,
                lines=self._unwritten.lines,
                evidence=self._unwritten.evidence,
            )
        except Fenced:
            raise
        except RemudaError as error:
            if not self._is_refused:
                _LOG.exception("the state database cannot be written; nothing is started until it can")
            self._is_refused, self.only_ends = True, isinstance(error, Unwritable)
            return False
        self._unwritten, self._is_refused, self.only_ends = Changes(), False, False
        return True

    def _present(self, keys: Iterable[TaskKey]) -> list[Task]:
        """Tasks as they are now; those of a workload that was removed meanwhile are no more."""
        known = ((self.all.get(key.workload) or {}).get(key) for key in keys)
        return [task for task in known if task is not None]


class Isolated:
    """The loop's edge: whatever is raised within, the others go on. Entered for each follower of each workload."""

    __slots__ = ("_changes", "_state", "_workload")

    def __init__(self, state: State, workload: str, changes: Changes) -> None:
        self._state, self._workload, self._changes = state, workload, changes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, Fenced):
            return False
        self._state.note_bug(self._workload, error, self._changes)
        return True


def text_of(error: Exception) -> str:
    """What happened in words; a bug with the name of its class."""
    return str(error) if isinstance(error, RemudaError) else f"{type(error).__name__}: {error}"
