"""What is known of workloads, as faces show it. Reads only; `Service` is the one that changes."""

from __future__ import annotations

import json
import time
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from remuda.backends.base import Handle, Log, TaskKey, make_token, read_token
from remuda.backends.logs import Logs, until_dead
from remuda.backends.rundir import allocation_dir
from remuda.base.clock import SystemClock
from remuda.base.errors import HostUnreachable, InputError, NotFound
from remuda.base.hostlist import compress_numbers
from remuda.base.text import brief, did_you_mean
from remuda.store import lease, ops
from remuda.store.timeshift import kept_offset
from remuda.supervise.advice import advise
from remuda.supervise.explain import explain
from remuda.supervise.groups.handover import holder
from remuda.supervise.loop import Supervisor
from remuda.supervise.model import FINAL, LIVE, Phase, Task, Want
from remuda.supervise.records import StoreJournal
from remuda.supervise.summary import WorkloadSummary, is_first_enough
from remuda.views.unknown_allocs import forgotten, note
from remuda.views.workloads import (
    ExplainView,
    LineView,
    RouterView,
    WorkloadView,
    allocation_view,
    line_view,
    workload_view,
)
from remuda.wire.place import Place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence

    from remuda.base.clock import Clock
    from remuda.base.disk.paths import StatePaths
    from remuda.plan.model import Workload
    from remuda.store.database import Store

_NEXT_ATTEMPT_S = 0.5
"""Between two looks for the next attempt of a run whose output is followed."""

_LINES = 1000
"""Who has missed more lines of stories than that asks for the story of a workload."""


@dataclass(frozen=True)
class _Part:
    """What is asked for of a task's output."""

    stderr: bool
    follow: bool
    tail: int
    after: Place | None


class Queries:
    """Views over one supervisor. Not thread-safe: the host calls it from its event loop."""

    is_memory = False
    """Whether it is all that was recorded, and nobody knows who is behind a router."""

    def __init__(self, journal: StoreJournal, supervisor: Supervisor, clock: Clock) -> None:
        self.journal = journal
        self.supervisor = supervisor
        self.clock = clock
        self.created = {row.name: row.created_at for row in journal.store.workloads()}
        self.forgotten: Sequence[str] = ()
        """Names of what ran from here, and was not in the database when the host started."""
        self._errors_read = Logs()
        self.routers: dict[str, RouterView] = {}
        self.refresh_router: Callable[[str, Workload], Awaitable[None]] | None = None

    def workloads(self, kind: str = "", *, everything: bool = False) -> list[WorkloadView]:
        """Workloads of one kind (empty: all), those that are down too if `everything`."""
        names = [name for name, want in self.supervisor.wants.items() if not kind or want.workload.kind == kind]
        views = [self.view(name) for name in sorted(names)]
        return [view for view in views if everything or view.phase != "DOWN"]

    def view(self, name: str) -> WorkloadView:
        """One workload.

        Raises:
            NotFound: there is none of that name; the nearest names are in the hint.
        """
        want = self.known(name)
        view = workload_view(
            want,
            self.supervisor.tasks(name),
            created_at=self.created.get(name, 0.0),
            unreachable=self.supervisor.unreachable.get(want.workload.backend, ""),
        )
        return view if self.is_memory and want.announced else with_router(view, want, self.routers.get(name))

    async def fresh_view(self, name: str) -> WorkloadView:
        """One workload, with the router's numbers as they are now."""
        if self.refresh_router is not None:
            await self.refresh_router(name, self.known(name).workload)
        return self.view(name)

    def spec(self, name: str) -> dict[str, object]:
        """What the user wrote, resolved, and the plan that was made of it."""
        self.known(name)
        row = self.journal.store.workload(name)
        return {"name": name, "spec": row.spec, "plan": json.loads(row.plan), "generation": row.generation}

    def story(
        self, name: str, *, limit: int = 100, after: int | None = None, all_lives: bool = False
    ) -> list[LineView]:
        """Lines of a workload's story, oldest first; also of one that is forgotten, as long as its story is kept.

        Args:
            name: of the workload.
            limit: how many at most.
            after: the first ones behind this id; None: the last ones.
            all_lives: those of earlier workloads of that name, too.

        Raises:
            NotFound: there is none of that name, and no story of one.
        """
        begun_at = None if all_lives else self.created.get(name)
        lines = self.journal.store.events(name, limit=limit, after_id=after, begun_at=begun_at)
        if not lines and after is None:
            self.known(name)
        return [line_view(line) for line in lines]

    def lines(self, after: int | None) -> list[dict[str, object]]:
        """Lines of all stories with a higher id than that, the newest ones; None: the newest line alone."""
        found = ops.lines(self.journal.store, after, _LINES)
        return [{"workload": line.workload, **line_view(line).model_dump()} for line in found]

    def explain(self, name: str, *, all_lives: bool = False, task: str = "") -> ExplainView:
        """Why it is as it is, or one `task` of it; with `all_lives` also what became of its namesakes before it."""
        want = self.known(name)
        only = self._task(want, task).key if task else None
        uid, begun_at = (None, None) if all_lives else (want.workload.uid, self.created.get(name))
        ends = [item for item in self.journal.allocations(name) if uid in (None, read_token(item.token).uid)]
        ends = [item for item in ends if only in (None, item.key)]
        past, tasks = [item for item in ends if item.ended_at], self.supervisor.tasks(name)
        silence = self.supervisor.unreachable.get(want.workload.backend, "")
        of = f"{only.group}/{only.index}" if only is not None else None
        story = self.journal.store.events(name, begun_at=begun_at, task=of)
        text = explain(want, tasks, story, past, silence, self.clock.now(), only=only)
        mine = [item for item in past if read_token(item.token).uid == want.workload.uid]
        advice = advise(want, tasks, mine, silence)
        return ExplainView(name=name, text=text, advice=advice, allocations=[allocation_view(item) for item in ends])

    def logs(
        self, name: str, task: str, *, follow: bool, tail: int, stderr: bool = False, attempt: int = 0,
        after: Place | None = None,
    ) -> Log:  # fmt: skip
        """A task's output, or its standard error where that is apart.

        Args:
            name: of the workload.
            task: `group/index`, of an array also the index alone; empty: the first of its main group.
            follow: go on with new lines while the attempt lives; of a run, gang or job, over all attempts.
            tail: only the last so many of what is there; 0: all.
            stderr: the other stream.
            attempt: number of the attempt; 0: the newest.
            after: a place in this output that was told before: only what comes behind it, whatever `tail` says.

        Raises:
            NotFound: no such task or attempt, or it was never started.
        """
        want = self.known(name)
        found = self._task(want, task, " that ever ran")
        part = _Part(stderr=stderr, follow=follow, tail=0 if after else tail, after=after)
        if follow and not attempt and want.workload.kind.traits.is_followed:
            return self._over_attempts(found.key, part)
        return self._of(want, found, attempt or (after.attempt if after else 0), part)

    def _task(self, want: Want, words: str, which: str = "") -> Task:
        """The task that is meant, with `which` of those that ever ran; raises where the words name none."""
        name, tasks = want.workload.name, self.supervisor.tasks(want.workload.name)
        known = {key: one for key, one in tasks.items() if one.token or not which}
        is_index = want.workload.is_array and words.isdigit()
        full = f"{want.workload.groups[0].name}/{words}" if is_index else words or main_task(want, known)
        group, _, index = full.partition("/")
        if not index.isdigit():
            raise InputError(f"{words!r} is not a task", hint="write group/index, e.g. replica/0")
        found = known.get(TaskKey(name, group, int(index)))
        if found is None:
            groups = groupby(sorted(known), key=lambda key: key.group)
            names = ", ".join(f"{group}/{compress_numbers(key.index for key in keys)}" for group, keys in groups)
            raise NotFound(f"{name!r} has no task {group}/{index}{which}", hint=f"it has: {names or 'none yet'}")
        return found

    def _of(self, want: Want, task: Task, attempt: int, part: _Part) -> Log:
        """Output of one attempt; 0: the newest."""
        if attempt not in (0, task.attempt):
            task = self._earlier(want, task, attempt)
        number = task.attempt
        log = self._output(want, task, part)
        return Log(log.blocks(), lambda: replace(log.place(), attempt=number))

    def _output(self, want: Want, task: Task, part: _Part) -> Log:
        if part.stderr:
            return self._errors(want, task, part)
        backend = self.supervisor.backends[task.backend]
        return backend.logs(Handle(task.token, task.native), follow=part.follow, tail=part.tail, after=part.after)

    def _over_attempts(self, key: TaskKey, part: _Part) -> Log:
        """One attempt after the other, until the task has ended for good."""
        place = part.after or Place()

        async def blocks() -> AsyncGenerator[bytes, None]:
            nonlocal place
            async for number, log in self._attempts(key, part):
                if place.attempt not in (0, number):
                    place = Place(attempt=number)
                    yield f"--- attempt {number} ---\n".encode()
                async with aclosing(log.blocks()) as pieces:
                    async for piece in pieces:
                        place = log.place()
                        yield piece

        return Log(blocks(), lambda: place)

    async def _attempts(self, key: TaskKey, part: _Part) -> AsyncGenerator[tuple[int, Log], None]:
        """Each attempt from the newest, or from the one where a reader is, when it has begun."""
        shown = part.after.attempt - 1 if part.after is not None and part.after.attempt else -1
        while True:
            want, task = self.supervisor.wants.get(key.workload), self.supervisor.tasks(key.workload).get(key)
            if want is None or task is None:
                return
            begun = task.attempt - (task.phase is Phase.SUBMITTING) if task.token else 0
            if shown < 0 < begun or shown > task.attempt:  # those of a run that was begun anew count from the first
                shown = begun - 1
            if 0 <= shown < begun:
                shown += 1
                with suppress(NotFound):  # one that was recorded and never begun
                    log = self._of(want, task, shown, part)
                    part = replace(part, tail=0, after=None)
                    yield shown, log
            elif task.phase in FINAL:
                return
            else:
                await self.clock.sleep(_NEXT_ATTEMPT_S)

    def _earlier(self, want: Want, task: Task, attempt: int) -> Task:
        """The task as it was in an earlier attempt, as far as its output is concerned.

        Raises:
            NotFound: it had no such attempt.
        """
        token = make_token(task.key, attempt, want.workload.uid)
        ends = {end.token: end for end in self.journal.allocations(task.key.workload)}
        if token not in ends:
            raise NotFound(f"{task.key} has no attempt {attempt}", hint=f"the newest is {task.attempt}")
        return replace(task, attempt=attempt, token=token, native=ends[token].native)

    def _errors(self, want: Want, task: Task, part: _Part) -> Log:
        """A script's standard error.

        Raises:
            InputError: the task's two streams are one.
        """
        group = want.workload.group(task.key.group)
        if group.watch is None:
            raise InputError(f"{task.key} has one output for both streams", hint="leave --stderr out")

        def lives() -> bool:
            now = self.supervisor.tasks(task.key.workload).get(task.key)
            return now is not None and now.token == task.token and now.phase in LIVE

        path = allocation_dir(Path(want.workload.run_dir).parent, task.token) / "child.err"
        return self._errors_read.read(path, part.tail, partial(until_dead, lives) if part.follow else None, part.after)

    def live_tasks(self) -> int:
        """Tasks that may have an allocation now."""
        return sum(task.phase in LIVE for tasks in self.supervisor.all.values() for task in tasks.values())

    def known(self, name: str) -> Want:
        """The recorded intent of a workload.

        Raises:
            NotFound: there is none of that name; the nearest names are in the hint.
        """
        want = self.supervisor.wants.get(name)
        if want is None:
            hint = did_you_mean(name, self.supervisor.wants, "`remuda status` lists what there is", most=3)
            hint = note([name]) if name in self.forgotten else hint
            raise NotFound(f"nothing is called {brief(name)!r}", hint=hint)
        return want


class Remembered(Queries):
    """What the last host recorded, for who looks while none runs. What only a host hears is left out of it."""

    is_memory = True

    def __init__(self, paths: StatePaths, store: Store) -> None:
        journal, clock = StoreJournal(store, 0), SystemClock(kept_offset(store))
        super().__init__(journal, Supervisor(journal, {}, clock), clock)
        for tasks in self.supervisor.all.values():
            live = [task for task in tasks.values() if task.phase in LIVE]
            tasks.update({task.key: replace(task, metrics={}, last_seen=0.0) for task in live})
        self.forgotten = forgotten(paths, self.supervisor.wants)

    def answer(self, path: str, query: Mapping[str, object]) -> Any:
        """What a host says to a question, or raises; `HostUnreachable` where only a host can say it."""
        said = {name for name, value in query.items() if str(value).lower() == "true"}
        match path.split("/")[1:]:
            case ["host"]:
                found: object = {"note": "\n".join(filter(None, (self._note(), note(self.forgotten))))}
            case ["workloads"]:
                found = self.workloads(str(query.get("kind", "")), everything="everything" in said)
            case ["workloads", name]:
                found = self.view(name)
            case ["workloads", name, "spec"]:
                found = self.spec(name)
            case ["workloads", name, "explain"]:
                found = self.explain(name, all_lives="all_lives" in said, task=str(query.get("task", "")))
            case ["workloads", name, "events"]:
                found = self.story(name, limit=int(str(query.get("limit", 100))), all_lives="all_lives" in said)
            case _:
                raise HostUnreachable("no host is running", hint="start it: remuda host start")
        return to_jsonable_python(found)

    def _note(self) -> str:
        at = time.strftime("%m-%d %H:%M:%S %Z", time.localtime(lease.last_held(self.journal.store)))
        return f"the host was stopped at {at}; this is what it recorded last (start it: remuda host start)"


def with_router(view: WorkloadView, want: Want, router: RouterView | None) -> WorkloadView:
    """The same with what is known of its router, see `routed`. Pure."""
    summary = WorkloadSummary(view.phase, view.ready, view.wanted, view.reason)
    summary = routed(summary, want, ((task.role, task.url) for task in view.tasks), router)
    return view.model_copy(update={"router": router, "phase": summary.phase, "reason": summary.reason})


def routed(
    summary: WorkloadSummary, want: Want, there: Iterable[tuple[str, str]], router: RouterView | None
) -> WorkloadSummary:
    """The endpoint is announced only once its router has members of each role: before that it answers nobody. Pure.

    Args:
        summary: of its tasks.
        want: the intent.
        there: role and address of each task.
        router: what is known of the router.
    """
    endpoint = want.workload.endpoint
    if endpoint is None or not endpoint.router or summary.phase not in ("RUNNING", "DEGRADED"):
        return summary
    members = router.members if router is not None else []
    if endpoint.behind:
        wanted = want.count(endpoint.behind)
        phase = "DEGRADED" if members else "STARTING"
        said = f"the router has {len(members)} of {wanted} {endpoint.behind}s"
        return replace(summary, phase=phase, reason=said) if len(members) < wanted else summary
    said = "the router is adding its replicas"
    if len(members) < (1 if is_first_enough(want) else summary.wanted) or _lacks_a_role(want, there, members):
        return replace(summary, phase="STARTING", reason=said)
    if len(members) < summary.wanted and summary.phase == "RUNNING" and endpoint.ready == "all":
        return replace(summary, phase="DEGRADED", reason=said)
    return summary


def _lacks_a_role(want: Want, there: Iterable[tuple[str, str]], members: Sequence[str]) -> bool:
    """Whether servers of several roles answer a request together, and the router has none of one role."""
    roles = {group.role.value for group in want.workload.groups if group.role.serves and want.count(group.name)}
    return len(roles) > 1 and not roles <= {role for role, url in there if url.rstrip("/") in members}


def main_task(want: Want, tasks: Mapping[TaskKey, Task]) -> str:
    """The first task that serves, as `group/index`."""
    groups = want.workload.groups
    group = next((group for group in groups if group.role.serves), groups[0])
    first = next(iter(want.slots(group.name)), 0)
    task = holder(want.workload, group, first, tasks)
    return f"{group.name}/{task.key.index if task is not None else first}"
