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

from remuda.backends.base import Backend, Handle, Life, Observed, Rendered, Request, TaskKey, read_token
from remuda.base.errors import BackendUnreachable, Fenced, RemudaError
from remuda.supervise import facts
from remuda.supervise.changes import Changes
from remuda.supervise.decide import KILL_AGAIN_S, Action, Cancel, Note, Submit, decide, next_due
from remuda.supervise.model import LIVE, Allocation, Line, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from remuda.base.clock import Clock
    from remuda.wire.report import Report

_LOG = logging.getLogger("remuda.supervise")
_AFTER_BUG_S = 1.0
"""Between two rounds while something is broken, so that it does not keep the machine busy."""
_HURRY_FOR_S = 5.0
_EARLY_S = 0.01
"""A look is not put off for so little: two clocks are never quite the same."""


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
        self._looked_at: dict[str, float] = {}
        self._bugs: dict[str, str] = {}
        self._has_bug = False
        self._hurry_until = 0.0
        # Allocations that are to end and did not hear of it yet: asked kindly before they are killed. Those that an
        # earlier host wanted to end may have heard; they are asked again.
        self._unasked = {
            task.token for tasks in self.all.values() for task in tasks.values() if task.phase is Phase.STOPPING
        }
        self._wake = asyncio.Event()

    # What other tasks of the host call

    def take(self, report: Report) -> None:
        """Queue a report; it is taken in with the next step, which comes at once if it is news."""
        self._inbox.append(report)
        if report.state in ("exited", "stopping"):
            self._hurry()
        if self._is_news(report):
            self._wake.set()

    def _is_news(self, report: Report) -> bool:
        """Whether it may change what is done. That a ready task still is can wait, and there is much of that."""
        try:
            parts = read_token(report.token)
        except ValueError:
            return False
        task = self.tasks(parts.workload).get(TaskKey(parts.workload, parts.group, parts.index))
        if task is None or task.token != report.token:
            return False
        said = (report.state, report.url, report.pid, report.restarts)
        return task.phase is not Phase.READY or said != ("ready", task.url, task.pid, task.restarts)

    def wake(self) -> None:
        """Let the next step come at once."""
        self._wake.set()

    def adopt(self, want: Want) -> None:
        """Follow a new or changed intent, which is recorded already."""
        self.wants[want.workload.name] = want
        self._bugs.pop(want.workload.name, None)
        self._wake.set()

    def forget(self, name: str) -> None:
        """Stop following a workload whose record was removed."""
        self.wants.pop(name, None)
        self.all.pop(name, None)
        self._bugs.pop(name, None)

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
        self._has_bug = False
        await self._observe(changes)
        self._take_reports(changes)
        actions = self._decide(changes)
        if not self._write(changes):
            return 1.0
        await self._act(actions)
        pauses = [await self._follow(), self._look_pause_s()]
        now = self.clock.now()
        pauses += [due for tasks in self.all.values() if (due := next_due(tasks, now)) is not None]
        return max(_AFTER_BUG_S if self._has_bug else 0.01, min(pauses))

    def _look_pause_s(self) -> float:
        """Seconds until a backend is to be asked how its allocations are."""
        busy = {task.backend for tasks in self.all.values() for task in tasks.values() if task.phase in LIVE}
        return min((self._look_due_s(name) for name in busy if name in self.backends), default=30.0)

    def _look_due_s(self, name: str) -> float:
        """The same for one backend. News of a task come by themselves and do not make it due earlier."""
        now, backend = self.clock.now(), self.backends[name]
        every = backend.hurry_s if now < self._hurry_until else backend.poll_s
        since = now - self._looked_at.get(name, 0.0)
        return max(0.0, every - since) if since >= 0 else 0.0  # the machine's clock may be set back

    def _hurry(self) -> None:
        """Something is about to end: look more often for a while, so that what follows comes soon."""
        self._hurry_until = self.clock.now() + _HURRY_FOR_S

    async def _observe(self, changes: Changes) -> None:
        handles: dict[str, list[Handle]] = defaultdict(list)
        for tasks in self.all.values():
            for task in tasks.values():
                if task.phase in LIVE and task.phase is not Phase.SUBMITTING:
                    handles[task.backend].append(Handle(task.token, task.native))
        for name in self.backends:
            if self._look_due_s(name) > _EARLY_S:
                continue
            self._looked_at[name] = self.clock.now()
            answers = await self._ask(name, handles[name]) if name in handles else {}
            by_token = {
                task.token: task for tasks in self.all.values() for task in tasks.values() if task.backend == name
            }
            for token, seen in answers.items():
                if token in by_token:
                    with self._isolate(by_token[token].key.workload, changes):
                        self._put(changes, by_token[token], self._take_observed(by_token[token], seen, changes))

    async def _ask(self, name: str, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """Observe; silence, or an answer that nobody understands, changes only what `explain` says of the backend."""
        try:
            answers = await self.backends[name].observe(handles)
        except Exception as error:  # noqa: BLE001 - other backends go on
            if name not in self.unreachable:
                bug = None if isinstance(error, RemudaError) else error
                _LOG.warning("backend %s does not answer: %s", name, error, exc_info=bug)
            self.unreachable[name] = _text(error)
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
            self._note_bug(workload, error, changes)

    def _note_bug(self, workload: str, error: Exception, changes: Changes) -> None:
        """Tell it once: a bug that comes back in every round must not fill the log and the database."""
        self._has_bug = True
        text = _text(error)
        if self._bugs.get(workload) != text:
            self._bugs[workload] = text
            _LOG.error("bug in the supervision of %s", workload, exc_info=error)
            changes.lines.append(Line(self.clock.now(), workload, "bug", text))

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

    def _intend(self, changes: Changes, tasks: dict[TaskKey, Task], action: Action, now: float) -> None:
        match action:
            case Submit(task, again):
                self._put(changes, tasks.get(task.key), task)
                if not again:
                    changes.allocations.append(
                        Allocation(task.token, task.key, task.attempt, task.backend, submitted_at=now)
                    )
            case Cancel(task, force):
                self._put(changes, tasks.get(task.key), task)
                if not force:
                    self._unasked.add(task.token)
            case Note(task):
                self._put(changes, tasks.get(task.key), task)

    def _write(self, changes: Changes) -> bool:
        """Write down, with what could not be written before. False: the store refused, nothing may be done now."""
        self._unwritten.add(changes)
        if self._unwritten.is_empty():
            return True
        try:
            self.journal.record(
                tasks=self._current(self._unwritten.tasks),
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

    def _current(self, keys: Iterable[TaskKey]) -> list[Task]:
        """Tasks as they are now; those of a workload that was removed meanwhile are no more."""
        known = ((self.all.get(key.workload) or {}).get(key) for key in keys)
        return [task for task in known if task is not None]

    async def _act(self, actions: Sequence[Action]) -> None:
        submits: dict[str, list[Submit]] = defaultdict(list)
        for action in actions:
            if isinstance(action, Submit):
                submits[action.task.backend].append(action)
        changes = Changes()
        asked = await self._ask_to_end(changes)
        kills = [action for action in actions if isinstance(action, Cancel) and action.force]
        await asyncio.gather(*(self._cancel(action, changes) for action in kills if action.task.token not in asked))
        for name, batch in submits.items():
            await self._submit(name, batch, changes)
        self._write(changes)

    async def _ask_to_end(self, changes: Changes) -> set[str]:
        """Ask those kindly that did not hear of it yet; returns the tokens of those that now did."""
        if not self._unasked:
            return set()
        stopping = [
            task
            for tasks in self.all.values()
            for task in tasks.values()
            if task.phase is Phase.STOPPING and task.token in self._unasked
        ]
        heard = await asyncio.gather(*(self._cancel(Cancel(task), changes) for task in stopping))
        asked = {task.token for task, did_hear in zip(stopping, heard, strict=True) if did_hear}
        self._unasked = {task.token for task in stopping} - asked
        return asked

    async def _cancel(self, action: Cancel, changes: Changes) -> bool:
        """Whether the backend took it. If not, it comes back here with the next round, or when a kill is due."""
        task = action.task
        backend = self.backends.get(task.backend)
        if backend is None:
            return False
        try:
            await backend.cancel(Handle(task.token, task.native), force=action.force)
        except RemudaError as error:
            _LOG.warning("cannot cancel %s now: %s", task.key, error)
            self._say_why_not(task, error, changes)
            return False
        except Exception as error:  # noqa: BLE001 - others are to end, too
            self._note_bug(task.key.workload, error, changes)
            return False
        if not action.force:
            self._give_grace(task, changes)
        return True

    def _say_why_not(self, task: Task, error: RemudaError, changes: Changes) -> None:
        """So that `status` tells why something does not end."""
        current = (self.all.get(task.key.workload) or {}).get(task.key)
        if current is not None and current.token == task.token and current.phase is Phase.STOPPING:
            self._put(changes, current, replace(current, reason=f"cannot be ended now: {error}"))

    def _give_grace(self, task: Task, changes: Changes) -> None:
        """What was asked late is killed late."""
        current = (self.all.get(task.key.workload) or {}).get(task.key)
        if current is None or current.token != task.token or current.phase is not Phase.STOPPING:
            return
        grace = self.wants[task.key.workload].workload.group(task.key.group).kill_grace_s
        kill_at = self.clock.now() + grace + KILL_AGAIN_S
        if kill_at > current.kill_at + 1.0:
            self._put(changes, current, replace(current, kill_at=kill_at))

    async def _submit(self, name: str, batch: Sequence[Submit], changes: Changes) -> None:
        backend = self.backends.get(name)
        if backend is None:
            self._refuse(batch, f"this host has no backend {name!r}", changes)
            return
        try:
            outcomes = await self._outcomes(backend, batch, changes)
        except Exception as error:  # noqa: BLE001 - nobody knows what was made
            shares = _by_workload(batch)
            if len(shares) > 1:
                # One workload's bug must not keep the others from being submitted.
                for share in shares:
                    await self._submit(name, share, changes)
                return
            self._note_bug(batch[0].task.key.workload, error, changes)
            outcomes = [BackendUnreachable(_text(error))] * len(batch)
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
                after = facts.refused(current, group, _text(outcome), now)
            self._put(changes, current, after)

    def _refuse(self, batch: Sequence[Submit], reason: str, changes: Changes) -> None:
        for action in batch:
            group = self.wants[action.task.key.workload].workload.group(action.task.key.group)
            self._put(changes, action.task, facts.refused(action.task, group, reason, self.clock.now()))

    async def _outcomes(
        self, backend: Backend, batch: Sequence[Submit], changes: Changes
    ) -> Sequence[Handle | Exception]:
        """One outcome per action: those recorded by an earlier life are looked for before they are made."""
        try:
            again = [action.task.token for action in batch if action.again]
            known = await backend.find(again) if again else {}
            rendered = [self._render(backend, action, changes) for action in batch if action.task.token not in known]
            sendable = [item for item in rendered if isinstance(item, Rendered)]
            sent = await backend.submit(sendable) if sendable else []
        except BackendUnreachable as error:
            return [error] * len(batch)
        answers = dict(zip((item.token for item in sendable), sent, strict=True))
        made = iter([answers[item.token] if isinstance(item, Rendered) else item for item in rendered])
        return [known.get(action.task.token) or next(made) for action in batch]

    def _render(self, backend: Backend, action: Submit, changes: Changes) -> Rendered | Exception:
        task = action.task
        workload = self.wants[task.key.workload].workload
        request = Request(task.key, task.attempt, task.token, workload, workload.group(task.key.group))
        try:
            return backend.render(request)
        except RemudaError as error:
            return error
        except Exception as error:  # noqa: BLE001 - counts as a refusal, so that it ends
            self._note_bug(task.key.workload, error, changes)
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


def _text(error: Exception) -> str:
    """What happened in words; a bug with the name of its class."""
    return str(error) if isinstance(error, RemudaError) else f"{type(error).__name__}: {error}"


def _by_workload(batch: Sequence[Submit]) -> list[list[Submit]]:
    """Shares of a batch that may have been sent: each is looked for before it is sent again."""
    shares: dict[str, list[Submit]] = defaultdict(list)
    for action in batch:
        shares[action.task.key.workload].append(replace(action, again=True))
    return list(shares.values())


def all_ended(tasks: Iterable[Task]) -> bool:
    """Whether no allocation can be left of these tasks."""
    return not any(task.phase in LIVE for task in tasks)


def with_group_count(want: Want, group: str, count: int) -> Want:
    """The intent with another count for one group."""
    return replace(want, counts={**want.counts, group: count}, generation=want.generation + 1)
