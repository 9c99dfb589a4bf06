"""Look, think, write down, do. The only place that acts.

Written before done: a host that dies in between finds SUBMITTING and STOPPING tasks and goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuda.backends.base import Backend, Feature, Handle, Life, Observed, TaskKey, read_token
from remuda.base.errors import RemudaError
from remuda.supervise import facts
from remuda.supervise.changes import Changes
from remuda.supervise.clock_jumps import Timekeeper
from remuda.supervise.decide import KILL_AGAIN_S, Action, Cancel, Note, Submit, decide, next_due
from remuda.supervise.failures.ends import end_of, evidence_of
from remuda.supervise.failures.liveness import Hearing
from remuda.supervise.failures.recordings import Findings
from remuda.supervise.groups import addresses, together
from remuda.supervise.model import LIVE, RUNNING, Allocation, Phase, Task, Want
from remuda.supervise.reconciler import Moment, Reconciler, within
from remuda.supervise.state import State, text_of
from remuda.supervise.submit import Submitter
from remuda.wire.child import BEAT_S
from remuda.wire.report import without_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from remuda.base.clock import Clock
    from remuda.plan.model import Group
    from remuda.supervise.records import StoreJournal
    from remuda.wire.report import Report

_LOG = logging.getLogger("remuda.supervise")
_AFTER_BUG_S = 1.0
"""Between two rounds while something is broken, so that it does not keep the machine busy."""
_HURRY_FOR_S = 5.0
_UNWRITTEN_S = 1.0
"""Between two tries to write down what could not be."""
_SAME = {Phase.STARTING: "starting", Phase.READY: "ready", Phase.UNHEALTHY: "unhealthy"}
"""What a node program says of a task that is as it was."""
_EARLY_S = 0.01
"""A look is not put off for so little: two clocks are never quite the same."""


class Supervisor:
    """Keeps all workloads of one host. One instance, one task of the event loop; other tasks call `wake`."""

    def __init__(
        self,
        journal: StoreJournal,
        backends: Mapping[str, Backend],
        clock: Clock,
        after: Sequence[Reconciler[Any, Any]] = (),
    ) -> None:
        self._state = State(journal, backends, clock)
        self._submitter = Submitter(self._state)
        self.journal = journal
        self.backends = backends
        self.clock = clock
        self.after = after
        self.wants = self._state.wants
        self.all = self._state.all
        self.unreachable: dict[str, str] = {}
        self._inbox: list[Report] = []
        self._loads: dict[str, Mapping[str, float]] = {}
        self._looked_at: dict[str, float] = {}
        self._hurry_until = 0.0
        self._look_next: set[str] = set()
        """Backends where something has just happened, such as the end of what had not begun."""
        self._hearing = Hearing()
        self._findings = Findings(journal.store.evidence)
        self._time = Timekeeper(self._state, self._hearing)
        # Allocations that are to end and did not hear of it yet: asked kindly before they are killed. Those that an
        # earlier host wanted to end may have heard; they are asked again.
        self._unasked = {task.token for task in self._state.every() if task.phase is Phase.STOPPING}
        self._wake = asyncio.Event()

    # What other tasks of the host call

    def take(self, report: Report) -> None:
        """Queue a report; it is taken in with the next step, which comes at once if it is news."""
        self._inbox.append(report)
        if report.state in ("exited", "stopping"):
            self._hurry()
        if self._is_news(report):
            self._wake.set()

    def take_load(self, token: str, metrics: Mapping[str, float]) -> None:
        """What a follower counted for an allocation that does not count itself; taken in with the next step."""
        self._loads[token] = metrics

    def _is_news(self, report: Report) -> bool:
        """Whether it may change what is done. That a task is as it was can wait, and there is much of that."""
        try:
            parts = read_token(report.token)
        except ValueError:
            return False
        task = self.tasks(parts.workload).get(TaskKey(parts.workload, parts.group, parts.index))
        if task is None or task.token != report.token:
            return False
        if report.state != _SAME.get(task.phase) or (report.url, report.pid, report.restarts) != (
            task.url, task.pid, task.restarts
        ):  # fmt: skip
            return True
        return task.phase is not Phase.READY and without_log(report.reason) != without_log(task.reason)

    def wake(self) -> None:
        """Let the next step come at once."""
        self._wake.set()

    def look(self, backend: str) -> None:
        """Ask a backend at once how its allocations are: something has happened there."""
        self._look_next.add(backend)
        self._wake.set()

    def adopt(self, want: Want) -> None:
        """Follow a new or changed intent, which is recorded already."""
        self.wants[want.workload.name] = want
        self._state.bugs.pop(want.workload.name, None)
        self._wake.set()

    def forget(self, name: str) -> None:
        """Stop following a workload whose record was removed."""
        self.wants.pop(name, None)
        self.all.pop(name, None)
        self._state.bugs.pop(name, None)

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
            await within(await self.step(), self._wake)

    async def step(self) -> float:
        """One round: observe, take facts in, decide, record, act. Returns seconds until the next is due."""
        changes = Changes()
        self._state.has_bug = False
        if self._time.look(changes):
            self._looked_at, self._hurry_until = {}, 0.0
        await self._observe(changes)
        self._take_reports(changes)
        listen_s = self._listen(changes)
        actions = self._decide(changes)
        if not self._state.write(changes):
            if self._state.only_ends:
                await self._act([action for action in actions if isinstance(action, Cancel)])
            return _UNWRITTEN_S
        await self._act(actions)
        pauses = [self._follow(), self._look_pause_s(), listen_s]
        now = self.clock.now()
        dues = [next_due(tasks, now, self.wants.get(name)) for name, tasks in self.all.items()]
        pauses += [due for due in dues if due is not None]
        return max(_AFTER_BUG_S if self._state.has_bug else 0.01, min(pauses))

    def _look_pause_s(self) -> float:
        """Seconds until a backend is to be asked how its allocations are."""
        busy = {task.backend for task in self._state.every() if task.phase in LIVE}
        return min((self._look_due_s(name) for name in busy if name in self.backends), default=30.0)

    def _look_due_s(self, name: str) -> float:
        """The same for one backend. News of a task come by themselves and do not make it due earlier."""
        if name in self._look_next:
            return 0.0
        now, backend = self.clock.now(), self.backends[name]
        every = backend.hurry_s if now < self._hurry_until else backend.poll_s
        return max(0.0, every - (now - self._looked_at.get(name, 0.0)))

    def _hurry(self) -> None:
        """Something is about to end: look more often for a while, so that what follows comes soon."""
        self._hurry_until = self.clock.now() + _HURRY_FOR_S

    async def _observe(self, changes: Changes) -> None:
        handles: dict[str, list[Handle]] = defaultdict(list)
        for task in self._state.every():
            if task.phase in LIVE and task.phase is not Phase.SUBMITTING:
                handles[task.backend].append(Handle(task.token, task.native))
        for name in self.backends:
            if self._look_due_s(name) > _EARLY_S:
                continue
            looked_at = self._looked_at.get(name, self.clock.now())
            self._looked_at[name] = self.clock.now()
            self._look_next.discard(name)
            answers = await self._ask(name, handles[name]) if name in handles else {}
            by_token = {task.token: task for task in self._state.every() if task.backend == name}
            for token, seen in answers.items():
                asked = by_token.get(token)
                known = self._state.current(asked) if asked is not None else None
                if known is not None:
                    with self._state.isolate(known.key.workload, changes):
                        self._learn(changes, known, self._take_observed(known, seen, changes, looked_at))

    async def _ask(self, name: str, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """Observe; silence, or an answer that nobody understands, changes only what `explain` says of the backend."""
        try:
            answers = await self.backends[name].observe(handles)
        except Exception as error:  # noqa: BLE001 - other backends go on
            if name not in self.unreachable:
                bug = None if isinstance(error, RemudaError) else error
                _LOG.warning("backend %s does not answer: %s", name, error, exc_info=bug)
            self.unreachable[name] = text_of(error)
            return {}
        if self.unreachable.pop(name, None) is not None:
            _LOG.info("backend %s answers again", name)
        return answers

    def _take_observed(self, task: Task, seen: Observed, changes: Changes, looked_at: float) -> Task:
        """Take in one answer. A report that is new was written after `looked_at`, when the last look was."""
        group = self._state.group_of(task)
        now = self.clock.now()
        if seen.report is not None and seen.life is not Life.PENDING:
            if seen.report.token == task.token and seen.report.seq > task.seq >= 0:
                self._hearing.by_file(task.token)
            changes.evidence += self._findings.of(task, group, seen.report, now, changes.evidence)
            task = facts.reported(task, seen.report, now, since=looked_at)
        seen = facts.given_up(task, group, seen, now)
        silent_s = self._hearing.silence_s(task, seen.requeues, self._time.presence)
        after = facts.observed(task, group, seen, now, silent_s=silent_s)
        after = facts.lost(after, seen, self._hearing.lost(task.token))
        if seen.life in (Life.ENDED, Life.GONE):
            self._hearing.forget(task.token)
            changes.allocations.append(end_of(task, after, seen, now))
            if Feature.EXCLUDE_NODES in self.backends[task.backend].features:
                changes.evidence += self._findings.at_end(evidence_of(task, group, seen, now), now, changes.evidence)
        elif seen.held:
            self._submitter.hold(after)
        return facts.healed(after, group, now)

    def _take_reports(self, changes: Changes) -> None:
        inbox, self._inbox = self._inbox, []
        loads, self._loads = self._loads, {}
        if not inbox and not loads:
            return
        by_token = {task.token: task.key for task in self._state.every() if task.token}
        now = self.clock.now()
        for report in inbox:
            key = by_token.get(report.token)
            if key is not None:
                self._hearing.by_line(report.token)
                task = self.all[key.workload][key]
                with self._state.isolate(key.workload, changes):
                    group = self._state.group_of(task)
                    changes.evidence += self._findings.of(task, group, report, now, changes.evidence)
                    self._learn(changes, task, facts.reported(task, report, now, since=now))
        for token, metrics in loads.items():
            key = by_token.get(token)
            if key is not None:
                task = self.all[key.workload][key]
                self._state.put(changes, task, facts.loaded(task, metrics, now))

    def _learn(self, changes: Changes, before: Task, after: Task) -> None:
        """Keep what a fact made of a task, and what follows from it for others."""
        self._state.put(changes, before, after)
        tasks = self.all[after.key.workload]
        workload, all_of = self.wants[after.key.workload].workload, tuple(tasks.values())
        healed = together.healed(workload, before, after, all_of)
        for task in (*addresses.misled(workload, before, after, all_of), *healed):
            self._state.put(changes, tasks[task.key], task)

    def _listen(self, changes: Changes) -> float:
        """Note those that are silent while others are heard; seconds until this is due again."""
        pause, now = 30.0, self.clock.now()
        for name, backend in self.backends.items():
            mine = [pair for pair in self._listened_for() if pair[0].backend == name]
            if not mine:
                continue
            pause = BEAT_S
            looked_at = self._looked_at.get(name, 0.0)
            for missed in self._hearing.listen(name, mine, poll_s=backend.poll_s, looked_at=looked_at):
                if missed.is_sure:
                    with self._state.isolate(missed.task.key.workload, changes):
                        self._state.put(changes, missed.task, facts.missed(missed.task, missed.silent_s, now))
                else:
                    self._hurry()
        return pause

    def _listened_for(self) -> Iterator[tuple[Task, Group]]:
        """Running tasks of groups whose silence says something."""
        for name, want in self.wants.items():
            groups = {group.name: group for group in want.workload.groups if group.silence_s > 0}
            if groups:
                for task in self.all[name].values():
                    if task.key.group in groups and task.phase in RUNNING:
                        yield task, groups[task.key.group]

    def _decide(self, changes: Changes) -> list[Action]:
        actions: list[Action] = []
        now = self.clock.now()
        for name, want in self.wants.items():
            tasks = self.all[name]
            with self._state.isolate(name, changes):
                decided = decide(want, tasks, now)
                for action in decided:
                    self._intend(changes, tasks, action, now)
                actions += decided
        return actions

    def _intend(self, changes: Changes, tasks: dict[TaskKey, Task], action: Action, now: float) -> None:
        match action:
            case Submit(task, again):
                self._state.put(changes, tasks.get(task.key), task)
                if not again:
                    changes.allocations.append(
                        Allocation(task.token, task.key, task.attempt, task.backend, submitted_at=now)
                    )
            case Cancel(task, force):
                self._state.put(changes, tasks.get(task.key), task)
                if not force:
                    self._unasked.add(task.token)
            case Note(task):
                self._state.put(changes, tasks.get(task.key), task)

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
            await self._submitter.submit(name, batch, changes)
        if self._state.write(changes):
            changes = Changes()
            await self._submitter.release(changes)
            await self._submitter.reconsider(changes)
            self._state.write(changes)

    async def _ask_to_end(self, changes: Changes) -> set[str]:
        """Ask those kindly that did not hear of it yet; returns the tokens of those that now did."""
        if not self._unasked:
            return set()
        every = self._state.every()
        stopping = [task for task in every if task.phase is Phase.STOPPING and task.token in self._unasked]
        heard = await asyncio.gather(*(self._cancel(Cancel(task), changes) for task in stopping))
        asked = {task.token for task, did_hear in zip(stopping, heard, strict=True) if did_hear}
        self._look_next |= {task.backend for task in stopping if task.token in asked}
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
            self._state.note_bug(task.key.workload, error, changes)
            return False
        if not action.force:
            self._give_grace(task, changes)
        return True

    def _say_why_not(self, task: Task, error: RemudaError, changes: Changes) -> None:
        """So that `status` tells why something does not end."""
        current = self._state.current(task)
        if current is not None and current.phase is Phase.STOPPING:
            self._state.put(changes, current, replace(current, reason=f"cannot be ended now: {error}"))

    def _give_grace(self, task: Task, changes: Changes) -> None:
        """What was asked late is killed late."""
        current = self._state.current(task)
        if current is None or current.phase is not Phase.STOPPING:
            return
        grace = self.wants[task.key.workload].workload.group(task.key.group).kill_grace_s
        kill_at = self.clock.now() + grace + KILL_AGAIN_S
        if kill_at > current.kill_at + 1.0:
            self._state.put(changes, current, replace(current, kill_at=kill_at))

    def _follow(self) -> float:
        pauses = [30.0]
        changes = Changes()
        for name, want in list(self.wants.items()):
            for after in self.after:
                pause: float | None = 5.0
                with self._state.isolate(name, changes):
                    pause = after.step(Moment(want, self.all[name], self.clock.now()))
                pauses += [pause] if pause is not None else []
        self._state.write(changes)
        return min(pauses)


def all_ended(tasks: Iterable[Task]) -> bool:
    """Whether no allocation can be left of these tasks."""
    return not any(task.phase in LIVE for task in tasks)
