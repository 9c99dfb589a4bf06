"""What is known of workloads, as faces show it. Reads only; `Service` is the one that changes."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.backends.base import Handle, Log, TaskKey, make_token
from remuda.backends.logs import Logs, until_dead
from remuda.backends.rundir import allocation_dir
from remuda.base.errors import InputError, NotFound
from remuda.control.views import (
    ExplainView,
    LineView,
    RouterView,
    WorkloadView,
    allocation_view,
    line_view,
    workload_view,
)
from remuda.plan.model import Kind, Workload
from remuda.supervise.explain import explain
from remuda.supervise.model import FINAL, LIVE, Phase, Task, Want
from remuda.supervise.succession import holder
from remuda.supervise.summary import SERVING, is_first_enough

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from remuda.base.clock import Clock
    from remuda.supervise.loop import Supervisor
    from remuda.supervise.records import StoreJournal

_NEXT_ATTEMPT_S = 0.5
"""Between two looks for the next attempt of a run whose output is followed."""


class Lookout:
    """Views over one supervisor. Not thread-safe: the host calls it from its event loop."""

    def __init__(self, journal: StoreJournal, supervisor: Supervisor, clock: Clock) -> None:
        self.journal = journal
        self.supervisor = supervisor
        self.clock = clock
        self.created = {row.name: row.created_at for row in journal.store.workloads()}
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
        want = self._want(name)
        view = workload_view(
            want,
            self.supervisor.tasks(name),
            created_at=self.created.get(name, 0.0),
            unreachable=self.supervisor.unreachable.get(want.workload.backend, ""),
        )
        return _with_router(view, want, self.routers.get(name))

    async def fresh_view(self, name: str) -> WorkloadView:
        """One workload, with the router's numbers as they are now."""
        if self.refresh_router is not None:
            await self.refresh_router(name, self._want(name).workload)
        return self.view(name)

    def spec(self, name: str) -> dict[str, object]:
        """What the user wrote, resolved, and the plan that was made of it."""
        self._want(name)
        row = self.journal.store.workload(name)
        return {"name": name, "spec": row.spec, "plan": json.loads(row.plan), "generation": row.generation}

    def story(self, name: str, *, limit: int = 100, after: int | None = None) -> list[LineView]:
        """Lines of a workload's story, oldest first; also of one that is forgotten, as long as its story is kept.

        Raises:
            NotFound: there is none of that name, and no story of one.
        """
        lines = self.journal.story(name, limit=limit, after=after)
        if not lines and after is None:
            self._want(name)
        return [line_view(line) for line in lines]

    def explain(self, name: str) -> ExplainView:
        """Why it is as it is."""
        want = self._want(name)
        ends = self.journal.allocations(name)
        text = explain(
            want,
            self.supervisor.tasks(name),
            self.journal.story(name),
            [item for item in ends if item.ended_at],
            self.supervisor.unreachable.get(want.workload.backend, ""),
            self.clock.now(),
        )
        return ExplainView(name=name, text=text, allocations=[allocation_view(item) for item in ends])

    def logs(self, name: str, task: str, *, follow: bool, tail: int, stderr: bool = False, attempt: int = 0) -> Log:
        """A task's output, or its standard error where that is apart.

        Args:
            name: of the workload.
            task: `group/index`; empty: the first of its main group.
            follow: go on with new lines while the attempt lives; of a run or a job, over all attempts that come.
            tail: only the last so many of what is there; 0: all.
            stderr: the other stream.
            attempt: number of the attempt; 0: the newest.

        Raises:
            NotFound: no such task or attempt, or it was never started.
        """
        want = self._want(name)
        known = self.supervisor.tasks(name)
        group, _, index = (task or main_task(want, known)).partition("/")
        if not index.isdigit():
            raise InputError(f"{task!r} is not a task", hint="write group/index, e.g. replica/0")
        found = known.get(TaskKey(name, group, int(index)))
        if found is None or not found.token:
            names = ", ".join(f"{key.group}/{key.index}" for key in sorted(known))
            raise NotFound(f"{name!r} has no task {group}/{index} that ever ran", hint=f"it has: {names or 'none yet'}")
        if attempt not in (0, found.attempt):
            found = self._earlier(want, found, attempt)
        if follow and not attempt and want.workload.kind in (Kind.RUN, Kind.JOB):
            return Log(self._over_attempts(found.key, stderr=stderr, tail=tail))
        return self._output(want, found, stderr=stderr, follow=follow, tail=tail)

    def _output(self, want: Want, task: Task, *, stderr: bool, follow: bool, tail: int) -> Log:
        if stderr:
            return self._errors(want, task, follow=follow, tail=tail)
        backend = self.supervisor.backends[task.backend]
        return backend.logs(Handle(task.token, task.native), follow=follow, tail=tail)

    async def _over_attempts(self, key: TaskKey, *, stderr: bool, tail: int) -> AsyncGenerator[bytes, None]:
        """One attempt after the other, until the task has ended for good."""
        shown = ""
        while True:
            want, task = self.supervisor.wants.get(key.workload), self.supervisor.tasks(key.workload).get(key)
            if want is None or task is None:
                return
            if task.token and task.token != shown and task.phase is not Phase.SUBMITTING:
                if shown:
                    yield f"--- attempt {task.attempt} ---\n".encode()
                log = self._output(want, task, stderr=stderr, follow=True, tail=tail)
                async with aclosing(log.blocks()) as blocks:
                    async for block in blocks:
                        yield block
                shown, tail = task.token, 0
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

    def _errors(self, want: Want, task: Task, *, follow: bool, tail: int) -> Log:
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
        return self._errors_read.read(path, tail, partial(until_dead, lives) if follow else None)

    def live_tasks(self) -> int:
        """Tasks that may have an allocation now."""
        return sum(task.phase in LIVE for tasks in self.supervisor.all.values() for task in tasks.values())

    def known(self, name: str) -> Want:
        """The recorded intent of a workload.

        Raises:
            NotFound: there is none of that name; the nearest names are in the hint.
        """
        return self._want(name)

    def _want(self, name: str) -> Want:
        want = self.supervisor.wants.get(name)
        if want is None:
            import difflib

            near = difflib.get_close_matches(name, self.supervisor.wants, 3)
            hint = f"did you mean {', '.join(near)}?" if near else "`remuda status` lists what there is"
            raise NotFound(f"nothing is called {name!r}", hint=hint)
        return want


def _with_router(view: WorkloadView, want: Want, router: RouterView | None) -> WorkloadView:
    """The endpoint is announced only once its router has members: before that it answers nobody."""
    endpoint = want.workload.endpoint
    changes: dict[str, object] = {"router": router}
    if endpoint is not None and endpoint.router and view.phase in ("RUNNING", "DEGRADED"):
        members = len(router.members) if router is not None else 0
        if members < (1 if is_first_enough(want) else view.wanted):
            changes |= {"phase": "STARTING", "reason": "the router is being told of its replicas"}
        elif members < view.wanted and view.phase == "RUNNING" and endpoint.ready == "all":
            changes |= {"phase": "DEGRADED", "reason": "the router is being told of its replicas"}
    return view.model_copy(update=changes)


def main_task(want: Want, tasks: Mapping[TaskKey, Task]) -> str:
    """The first task that serves, as `group/index`."""
    groups = want.workload.groups
    group = next((group for group in groups if group.role in SERVING), groups[0])
    task = holder(want.workload, group, 0, tasks)
    return f"{group.name}/{task.key.index if task is not None else 0}"
