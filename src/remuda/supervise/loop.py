"""Look, think, write down, do. The only place that acts.

Written before done: a host that dies in between finds SUBMITTING and STOPPING tasks and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from remuda.backends.base import Backend, Handle, Life, Observed, Rendered, Request, TaskKey
from remuda.base.errors import BackendUnreachable, Fenced, RemudaError
from remuda.supervise import facts
from remuda.supervise.decide import Action, Cancel, Drop, Note, Submit, decide, next_due
from remuda.supervise.model import LIVE, Allocation, Line, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from remuda.base.clock import Clock
    from remuda.wire.report import Report

_LOG = logging.getLogger("remuda.supervise")
#: Fields whose change is worth a write; the others are seen again with the next report.
_MATERIAL = (
    "phase", "attempt", "generation", "token", "native", "failures", "not_before", "ready_since", "kill_at",
    "cause", "reason", "node", "url", "pid", "restarts", "exit_code",
)  # fmt: skip


class Journal(Protocol):
    """Where the loop writes: everything of one call in one transaction, refused once another host took over."""

    def wants(self) -> Sequence[Want]:
        """All recorded intents."""
        ...

    def tasks(self) -> Sequence[Task]:
        """All recorded tasks."""
        ...

    def record(
        self,
        *,
        tasks: Sequence[Task] = (),
        dropped: Sequence[TaskKey] = (),
        allocations: Sequence[Allocation] = (),
        lines: Sequence[Line] = (),
    ) -> None:
        """Write all of it or nothing.

        Raises:
            Fenced: another host holds the lease.
        """
        ...


class After(Protocol):
    """Something that follows the tasks' state, like the router's membership."""

    async def step(self, want: Want, tasks: Mapping[TaskKey, Task]) -> float | None:
        """Follow; seconds until it wants to be called again although nothing changed."""
        ...


class Supervisor:
    """Keeps all workloads of one host. One instance, one task of the event loop; other tasks call `wake`."""

    def __init__(
        self, journal: Journal, backends: Mapping[str, Backend], clock: Clock, after: Sequence[After] = ()
    ) -> None:
        self.journal = journal
        self.backends = backends
        self.clock = clock
        self.after = after
        self.wants: dict[str, Want] = {want.workload.name: want for want in journal.wants()}
        self.all: dict[str, dict[TaskKey, Task]] = defaultdict(dict)
        for task in journal.tasks():
            self.all[task.key.workload][task.key] = task
        self.unreachable: dict[str, str] = {}
        self._inbox: list[Report] = []
        self._unwritten = Changes()
        self._is_first_round = True
        self._wake = asyncio.Event()

    # What other tasks of the host call

    def take(self, report: Report) -> None:
        """Queue a report; it is taken in with the next step."""
        self._inbox.append(report)
        self._wake.set()

    def wake(self) -> None:
        """Let the next step come at once."""
        self._wake.set()

    def adopt(self, want: Want) -> None:
        """Follow a new or changed intent, which is recorded already."""
        self.wants[want.workload.name] = want
        self._wake.set()

    def forget(self, name: str) -> None:
        """Stop following a workload whose record was removed."""
        self.wants.pop(name, None)
        self.all.pop(name, None)

    def tasks(self, name: str) -> Mapping[TaskKey, Task]:
        """Tasks of one workload, as of the last step."""
        return self.all.get(name, {})

    # The loop

    async def run(self) -> None:
        """Step for ever, when something happened or is due.

        Raises:
            Fenced: another host took over; nothing more was written.
        """
        while True:
            self._wake.clear()
            pause = await self.step()
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def step(self) -> float:
        """One round: observe, take facts in, decide, record, act. Returns seconds until the next is due."""
        changes = Changes()
        await self._observe(changes)
        self._take_reports(changes)
        actions = self._decide(changes)
        if not self._write(changes):
            return 1.0
        await self._act([*actions, *self._unfinished_cancels()])
        pauses = [await self._follow(), self._poll_s()]
        now = self.clock.now()
        pauses += [due for tasks in self.all.values() if (due := next_due(tasks, now)) is not None]
        return max(0.01, min(pauses))

    def _poll_s(self) -> float:
        busy = {task.backend for tasks in self.all.values() for task in tasks.values() if task.phase in LIVE}
        return min((self.backends[name].poll_s for name in busy if name in self.backends), default=30.0)

    async def _observe(self, changes: Changes) -> None:
        handles: dict[str, list[Handle]] = defaultdict(list)
        for tasks in self.all.values():
            for task in tasks.values():
                if task.phase in LIVE and task.phase is not Phase.SUBMITTING:
                    handles[task.backend].append(Handle(task.token, task.native))
        for name, wanted in handles.items():
            answers = await self._ask(name, wanted)
            by_token = {
                task.token: task for tasks in self.all.values() for task in tasks.values() if task.backend == name
            }
            for token, seen in answers.items():
                if token in by_token:
                    with self._isolate(by_token[token].key.workload, changes):
                        self._put(changes, by_token[token], self._take_observed(by_token[token], seen, changes))

    async def _ask(self, name: str, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """Observe; silence changes nothing but what `explain` says about the backend."""
        backend = self.backends.get(name)
        if backend is None:
            return {}
        try:
            answers = await backend.observe(handles)
        except BackendUnreachable as error:
            if name not in self.unreachable:
                _LOG.warning("backend %s does not answer: %s", name, error)
            self.unreachable[name] = str(error)
            return {}
        if self.unreachable.pop(name, None) is not None:
            _LOG.info("backend %s answers again", name)
        return answers

    def _take_observed(self, task: Task, seen: Observed, changes: Changes) -> Task:
        group = self.wants[task.key.workload].workload.group(task.key.group)
        now = self.clock.now()
        if seen.report is not None:
            task = facts.reported(task, seen.report, now)
        after = facts.observed(task, group, seen, now)
        if seen.life in (Life.ENDED, Life.GONE):
            changes.allocations.append(_end_of(task, after, seen, now))
        return facts.healed(after, group, now)

    def _take_reports(self, changes: Changes) -> None:
        inbox, self._inbox = self._inbox, []
        if not inbox:
            return
        by_token = {task.token: task.key for tasks in self.all.values() for task in tasks.values() if task.token}
        for report in inbox:
            key = by_token.get(report.token)
            if key is not None:
                task = self.all[key.workload][key]
                with self._isolate(key.workload, changes):
                    self._put(changes, task, facts.reported(task, report, self.clock.now()))

    @contextmanager
    def _isolate(self, workload: str, changes: Changes) -> Iterator[None]:
        """One workload's bug must not stop the others; it becomes a line of its story."""
        try:
            yield
        except Fenced:
            raise
        except Exception as error:  # noqa: BLE001 - the loop's edge: whatever it is, the others go on
            _LOG.exception("bug in the supervision of %s", workload)
            changes.lines.append(Line(self.clock.now(), workload, "bug", f"{type(error).__name__}: {error}"))

    def _put(self, changes: Changes, before: Task | None, after: Task) -> None:
        self.all[after.key.workload][after.key] = after
        changes.note(before, after, self.clock.now())

    def _decide(self, changes: Changes) -> list[Action]:
        actions: list[Action] = []
        now = self.clock.now()
        for name, want in self.wants.items():
            tasks = self.all[name]
            with self._isolate(name, changes):
                decided = decide(want, tasks, now)
                for action in decided:
                    self._intend(changes, tasks, action, now)
                actions += decided
        return actions

    def _unfinished_cancels(self) -> list[Action]:
        """In the first round: what an earlier host wanted to end is asked again, kindly, before it is killed."""
        if not self._is_first_round:
            return []
        self._is_first_round = False
        return [Cancel(task) for tasks in self.all.values() for task in tasks.values() if task.phase is Phase.STOPPING]

    def _intend(self, changes: Changes, tasks: dict[TaskKey, Task], action: Action, now: float) -> None:
        match action:
            case Drop(key):
                del tasks[key]
                changes.dropped.append(key)
            case Submit(task, again):
                self._put(changes, tasks.get(task.key), task)
                if not again:
                    changes.allocations.append(
                        Allocation(task.token, task.key, task.attempt, task.backend, submitted_at=now)
                    )
            case Cancel(task) | Note(task):
                self._put(changes, tasks.get(task.key), task)

    def _write(self, changes: Changes) -> bool:
        """Write down, with what could not be written before. False: the store refused, nothing may be done now."""
        self._unwritten.add(changes)
        if self._unwritten.is_empty():
            return True
        try:
            self.journal.record(
                tasks=list(self._unwritten.tasks.values()),
                dropped=self._unwritten.dropped,
                allocations=self._unwritten.allocations,
                lines=self._unwritten.lines,
            )
        except Fenced:
            raise
        except RemudaError:
            _LOG.exception("the state database cannot be written; nothing is done until it can")
            return False
        self._unwritten = Changes()
        return True

    async def _act(self, actions: Sequence[Action]) -> None:
        submits: dict[str, list[Submit]] = defaultdict(list)
        for action in actions:
            if isinstance(action, Submit):
                submits[action.task.backend].append(action)
        cancels = [action for action in actions if isinstance(action, Cancel)]
        await asyncio.gather(*(self._cancel(action) for action in cancels))
        changes = Changes()
        for name, batch in submits.items():
            await self._submit(name, batch, changes)
        self._write(changes)

    async def _cancel(self, action: Cancel) -> None:
        backend = self.backends.get(action.task.backend)
        if backend is None:
            return
        try:
            await backend.cancel(Handle(action.task.token, action.task.native), force=action.force)
        except RemudaError as error:
            # The next due time of a STOPPING task brings it back here, so nothing is lost.
            _LOG.warning("cannot cancel %s now: %s", action.task.key, error)

    async def _submit(self, name: str, batch: Sequence[Submit], changes: Changes) -> None:
        backend = self.backends.get(name)
        if backend is None:
            self._refuse(batch, f"this host has no backend {name!r}", changes)
            return
        outcomes = await self._outcomes(backend, batch)
        now = self.clock.now()
        for action, outcome in zip(batch, outcomes, strict=True):
            current = self.all[action.task.key.workload].get(action.task.key)
            if current is None or current.token != action.task.token:
                continue
            group = self.wants[current.key.workload].workload.group(current.key.group)
            if isinstance(outcome, Handle):
                after = facts.accepted(current, outcome.native, now)
            elif isinstance(outcome, BackendUnreachable):
                after = facts.unanswered(current, str(outcome), now)
            else:
                after = facts.refused(current, group, str(outcome), now)
            self._put(changes, current, after)

    def _refuse(self, batch: Sequence[Submit], reason: str, changes: Changes) -> None:
        for action in batch:
            group = self.wants[action.task.key.workload].workload.group(action.task.key.group)
            self._put(changes, action.task, facts.refused(action.task, group, reason, self.clock.now()))

    async def _outcomes(self, backend: Backend, batch: Sequence[Submit]) -> Sequence[Handle | Exception]:
        """One outcome per action: those recorded by an earlier life are looked for before they are made."""
        try:
            again = [action.task.token for action in batch if action.again]
            known = await backend.find(again) if again else {}
            rendered = [self._render(backend, action) for action in batch if action.task.token not in known]
            sendable = [item for item in rendered if isinstance(item, Rendered)]
            sent = iter(await backend.submit(sendable) if sendable else ())
        except BackendUnreachable as error:
            return [error] * len(batch)
        made = iter([next(sent) if isinstance(item, Rendered) else item for item in rendered])
        return [known.get(action.task.token) or next(made) for action in batch]

    def _render(self, backend: Backend, action: Submit) -> Rendered | RemudaError:
        task = action.task
        workload = self.wants[task.key.workload].workload
        request = Request(task.key, task.attempt, task.token, workload, workload.group(task.key.group))
        try:
            return backend.render(request)
        except RemudaError as error:
            return error

    async def _follow(self) -> float:
        pauses = [30.0]
        changes = Changes()
        for name, want in list(self.wants.items()):
            for after in self.after:
                pause: float | None = 5.0
                with self._isolate(name, changes):
                    pause = await after.step(want, self.all[name])
                pauses += [pause] if pause is not None else []
        self._write(changes)
        return min(pauses)


class Changes:
    """What one round has to write down."""

    def __init__(self) -> None:
        self.tasks: dict[TaskKey, Task] = {}
        self.dropped: list[TaskKey] = []
        self.allocations: list[Allocation] = []
        self.lines: list[Line] = []

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.tasks or self.dropped or self.allocations or self.lines)

    def note(self, before: Task | None, after: Task, now: float) -> None:
        """Keep a changed task; a new phase is a line of its story."""
        if before is not None and all(getattr(before, name) == getattr(after, name) for name in _MATERIAL):
            return
        self.tasks[after.key] = after
        if before is None or before.phase is not after.phase or before.attempt != after.attempt:
            task = f"{after.key.group}/{after.key.index}"
            self.lines.append(
                Line(now, after.key.workload, "move", after.reason, task, after.attempt, after.phase.value)
            )

    def add(self, later: Changes) -> None:
        """Take in what came after these."""
        self.tasks.update(later.tasks)
        self.dropped += later.dropped
        self.allocations += later.allocations
        self.lines += later.lines
        for key in later.dropped:
            self.tasks.pop(key, None)


def _end_of(task: Task, after: Task, seen: Observed, now: float) -> Allocation:
    return Allocation(
        token=task.token,
        key=task.key,
        attempt=task.attempt,
        backend=task.backend,
        submitted_at=task.submitted_at,
        native=task.native,
        node=seen.node or task.node,
        ended_at=seen.ended_at or now,
        exit_code=seen.exit_code,
        signal=seen.signal,
        cause=after.cause,
        reason=seen.reason or after.reason,
        evidence=seen.evidence,
    )


def all_ended(tasks: Iterable[Task]) -> bool:
    """Whether no allocation can be left of these tasks."""
    return not any(task.phase in LIVE for task in tasks)


def with_group_count(want: Want, group: str, count: int) -> Want:
    """The intent with another count for one group."""
    return replace(want, counts={**want.counts, group: count}, generation=want.generation + 1)
