"""Hand allocations to their backends: rendered, submitted or found again, recorded, and only then released."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import Amends, Backend, Handle, Rendered, Request, pack_token
from remuda.base.errors import BackendUnreachable, Impossible, RemudaError
from remuda.store.rows import StoryLine
from remuda.supervise import facts
from remuda.supervise.changes import Changes
from remuda.supervise.failures.avoid import Advice, asked_pools
from remuda.supervise.groups import addresses
from remuda.supervise.model import AVOIDS_ALL, AVOIDS_BANS, AVOIDS_NOTHING, Phase
from remuda.supervise.state import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.supervise.decide import Submit
    from remuda.supervise.failures.ledger import Exclusion, Judgement
    from remuda.supervise.model import Task
    from remuda.supervise.state import State

_LOG = logging.getLogger("remuda.supervise")
_RECONSIDER_S = 15.0
"""Between two looks at what those that wait avoid."""
_TOLD = 5
"""So many nodes are named in a line of a story."""


class Submitter:
    """Submits and releases. What is submitted held starts only after its native name was recorded."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._advice = Advice(state)
        self._held: set[str] = set()
        """Tokens that are recorded, and that nobody released yet."""
        self._told: dict[tuple[str, str], str] = {}
        self._sent: dict[str, tuple[str, ...]] = {}
        """What allocations that wait avoid, by token; not of those that an earlier host submitted."""
        self._reconsidered_at = float("-inf")

    async def submit(self, name: str, batch: Sequence[Submit], changes: Changes) -> None:
        """Submit to one backend; one answer for each task goes into `changes`."""
        backend = self._state.backends.get(name)
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
                    await self.submit(name, share, changes)
                return
            self._state.note_bug(batch[0].task.key.workload, error, changes)
            outcomes = [BackendUnreachable(text_of(error))] * len(batch)
        now = self._state.clock.now()  # one for all: those of a pack are due again in one step
        for action, outcome in zip(batch, outcomes, strict=True):
            self._take_outcome(action.task, outcome, changes, now)

    def _take_outcome(self, task: Task, outcome: Handle | Exception, changes: Changes, now: float) -> None:
        state = self._state
        current = state.current(task)
        if current is None:
            return
        if isinstance(outcome, Handle):
            after = facts.accepted(current, outcome.native, now)
            self._held.add(task.token)
        elif isinstance(outcome, addresses.NotYet):
            after = facts.put_off(current, str(outcome), now)
        elif isinstance(outcome, BackendUnreachable):
            after = facts.put_off(current, f"{facts.UNANSWERED}{outcome}", now)
        else:
            permanent = isinstance(outcome, Impossible)
            after = facts.refused(current, state.group_of(current), text_of(outcome), now, permanent=permanent)
        state.put(changes, current, after)

    def hold(self, task: Task) -> None:
        """A look said that the allocation is held; it is released with the next round, unless it was before."""
        if not task.released and task.phase is Phase.PENDING:
            self._held.add(task.token)

    async def release(self, changes: Changes) -> None:
        """Let start what is recorded. What a silent backend did not hear comes back with the next look."""
        held, self._held = self._held, set()
        if not held:
            return
        tasks: dict[str, list[Task]] = defaultdict(list)
        for task in self._state.every():
            if task.token in held and task.phase is Phase.PENDING and not task.released:
                tasks[task.backend].append(task)
        for name, mine in tasks.items():
            await self._release(name, mine, changes)

    async def _release(self, name: str, tasks: Sequence[Task], changes: Changes) -> None:
        backend = self._state.backends.get(name)
        if backend is None:
            return
        try:
            await backend.release([Handle(task.token, task.native) for task in tasks])
        except RemudaError as error:
            _LOG.warning("cannot release %d allocations now: %s", len(tasks), error)
            return
        except Exception as error:  # noqa: BLE001 - other backends go on
            for workload in {task.key.workload for task in tasks}:
                self._state.note_bug(workload, error, changes)
            return
        for task in tasks:
            current = self._state.current(task)
            if current is not None:
                self._state.put(changes, current, facts.released(current))

    async def reconsider(self, changes: Changes) -> None:
        """Let allocations that wait have the nodes that they need not avoid any more: nobody else would tell them."""
        now = self._state.clock.now()
        if 0 <= now - self._reconsidered_at < _RECONSIDER_S:
            return
        self._reconsidered_at = now
        waiting = [one for one in self._state.every() if one.phase is Phase.PENDING and one.released and one.avoids]
        self._sent = {task.token: self._sent[task.token] for task in waiting if task.token in self._sent}
        for name, backend in self._state.backends.items():
            if isinstance(backend, Amends) and (mine := [task for task in waiting if task.backend == name]):
                await self._amend(backend, mine, changes)

    async def _amend(self, backend: Amends, tasks: Sequence[Task], changes: Changes) -> None:
        """How much each avoids is recorded afterwards, so it is never more than is recorded."""
        advice = await self._advice.of(backend, tasks)
        items = {task.token: _items(task, advice) for task in tasks}
        told: dict[Handle, Rendered] = {}
        for task in tasks:
            nodes = _nodes(items[task.token])
            if nodes != self._sent.get(task.token) and _level(items[task.token]) <= task.avoids:
                rendered = self._render(backend, task, nodes, changes)
                told |= {Handle(task.token, task.native): rendered} if isinstance(rendered, Rendered) else {}
        try:
            await backend.amend(told)
        except Exception as error:  # noqa: BLE001 - what waits, waits as before
            _LOG.warning("cannot change %d allocations now: %s", len(told), error)
            return
        changed = [task for task in map(self._state.current, tasks) if task and Handle(task.token, task.native) in told]
        for task in changed:
            self._sent[task.token] = _nodes(items[task.token])
            self._state.put(changes, task, replace(task, avoids=_level(items[task.token])))
        self._tell(changed, advice, changes)

    def _refuse(self, batch: Sequence[Submit], reason: str, changes: Changes) -> None:
        for action in batch:
            group = self._state.group_of(action.task)
            now = self._state.clock.now()
            self._state.put(changes, action.task, facts.refused(action.task, group, reason, now))

    async def _outcomes(
        self, backend: Backend, batch: Sequence[Submit], changes: Changes
    ) -> Sequence[Handle | Exception]:
        """One outcome per action: those recorded by an earlier life are looked for before they are made."""
        try:
            again = [action.task.token for action in batch if action.again]
            known = await backend.find(again) if again else {}
            fresh = [action.task for action in batch if action.task.token not in known]
            advice = await self._advice.of(backend, fresh)
            self._tell(fresh, advice, changes)
            avoided = self._avoided(fresh, advice)
            rendered = _whole(fresh, [self._render(backend, task, avoided[task.token], changes) for task in fresh])
            sendable = [item for item in rendered if isinstance(item, Rendered)]
            sent = await backend.submit(sendable) if sendable else []
        except BackendUnreachable as error:
            return [error] * len(batch)
        answers = dict(zip((item.token for item in sendable), sent, strict=True))
        made = iter([answers[item.token] if isinstance(item, Rendered) else item for item in rendered])
        return [known.get(action.task.token) or next(made) for action in batch]

    def _avoided(self, tasks: Sequence[Task], advice: Mapping[Kind, Judgement]) -> dict[str, tuple[str, ...]]:
        """Nodes that each allocation keeps away from, by token.

        How much that is, is recorded before anything is sent: a «never» of the scheduler is believed only of an
        allocation that avoids nothing, and a host that is killed in between must not take one for that.
        """
        avoided: dict[str, tuple[str, ...]] = {}
        noted = Changes()
        for task in tasks:
            items = _items(task, advice)
            avoided[task.token] = self._sent[task.token] = _nodes(items)
            current = self._state.current(task)
            if current is not None and current.avoids != _level(items):
                self._state.put(noted, current, replace(current, avoids=_level(items)))
        if not noted.is_empty() and not self._state.write(noted):
            raise BackendUnreachable("what is to be avoided cannot be recorded now")
        return avoided

    def _render(self, backend: Backend, task: Task, avoided: tuple[str, ...], changes: Changes) -> Rendered | Exception:
        workload = self._state.wants[task.key.workload].workload
        group = workload.group(task.key.group)
        try:
            if any(one.role.stays for one in workload.groups):
                group = addresses.told(group, self._state.all[workload.name])
                group = addresses.kept(group, task) if group.role.stays else group
            request = Request(
                task.key,
                task.attempt,
                task.token,
                workload,
                group,
                exclude_nodes=avoided,
                pools=asked_pools(group, task.pool),
            )
            return backend.render(request)
        except RemudaError as error:
            return error
        except Exception as error:  # noqa: BLE001 - counts as a refusal, so that it ends
            self._state.note_bug(task.key.workload, error, changes)
            return error

    def _tell(self, tasks: Iterable[Task], advice: Mapping[Kind, Judgement], changes: Changes) -> None:
        """A line of the story when other nodes are avoided than before."""
        for kind in dict.fromkeys(_kind(task) for task in tasks):
            workload, group, _ = kind
            text = _words(advice[kind]) if kind in advice else ""
            if text != self._told.get((workload, group), ""):
                self._told[workload, group] = text
                line = text or "no node is avoided any more"
                changes.lines.append(StoryLine(self._state.clock.now(), workload, "nodes", f"{group}: {line}"))


Kind = tuple[str, str, str]
"""Workload, group and pool: tasks that avoid the same nodes."""


def _items(task: Task, advice: Mapping[Kind, Judgement]) -> tuple[Exclusion, ...]:
    said = advice.get(_kind(task))
    return said.within(task.may_avoid) if said is not None else ()


def _nodes(items: Sequence[Exclusion]) -> tuple[str, ...]:
    return tuple(sorted(item.node for item in items))


def _level(items: Sequence[Exclusion]) -> int:
    """How much one that avoids these does without."""
    return AVOIDS_NOTHING if not items else AVOIDS_BANS if all(item.is_ban for item in items) else AVOIDS_ALL


def _kind(task: Task) -> Kind:
    return (task.key.workload, task.key.group, task.pool)


def _whole(tasks: Sequence[Task], rendered: Sequence[Rendered | Exception]) -> list[Rendered | Exception]:
    """The same, and of a pack nothing where one of its tasks cannot be rendered."""
    known = zip(tasks, rendered, strict=True)
    failed = {pack_token(task.token): item for task, item in known if isinstance(item, Exception)}
    return [failed.get(item.pack, item) if isinstance(item, Rendered) else item for item in rendered]


def _words(judgement: Judgement) -> str:
    parts = []
    but = "which nodes there are is not known" if judgement.blind else "needs nodes"
    for words, items in (("avoids", judgement.excluded), (f"would avoid, but {but}:", judgement.spared)):
        if items:
            named = ", ".join(f"{item.node} ({item.why})" for item in items[:_TOLD])
            more = f" and {len(items) - _TOLD} more" if len(items) > _TOLD else ""
            parts.append(f"{words} {named}{more}")
    return "; ".join(parts)


def _by_workload(batch: Sequence[Submit]) -> list[list[Submit]]:
    """Shares of a batch that may have been sent: each is looked for before it is sent again."""
    shares: dict[str, list[Submit]] = defaultdict(list)
    for action in batch:
        shares[action.task.key.workload].append(replace(action, again=True))
    return list(shares.values())
