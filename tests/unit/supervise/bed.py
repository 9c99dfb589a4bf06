"""Everything that the loop needs, with a host that can be killed and started anew."""

from __future__ import annotations

import functools
import itertools
import json
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fakes.backend import FakeBackend
from tests.fakes.clock import FakeClock
from tests.unit.supervise.build import group as make_group

from remuda.backends.base import TaskKey
from remuda.plan.model import Group, Kind, Workload
from remuda.store import lease as leases
from remuda.store.engine import open_store
from remuda.store.rows import StoryLine, WorkloadRow
from remuda.supervise.loop import Supervisor
from remuda.supervise.model import Phase, Task, Want
from remuda.supervise.records import StoreJournal
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.store.database import Store
    from remuda.store.rows import Evidence
    from remuda.supervise.model import Allocation
    from remuda.supervise.reconciler import Reconciler


class Killed(BaseException):
    """The host is no more."""


class FlakyJournal(StoreJournal):
    """The real journal, with a hook around its writes."""

    hook: Callable[[str], None] = staticmethod(lambda _: None)

    def record(
        self,
        *,
        tasks: Sequence[Task] = (),
        allocations: Sequence[Allocation] = (),
        lines: Sequence[StoryLine] = (),
        evidence: Sequence[Evidence] = (),
    ) -> None:
        self.hook("before record")
        super().record(tasks=tasks, allocations=allocations, lines=lines, evidence=evidence)
        self.hook("after record")


@functools.cache
def empty_database() -> bytes:
    """A migrated database without any row."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "remuda.db"
        open_store(path).close()
        return path.read_bytes()


def store_at(path: Path) -> Store:
    """The database there, made where there is none: migrating each anew costs more than most tests."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(empty_database())
        path.chmod(0o600)
    return open_store(path)


class Bed:
    """One database, one backend, and the host of the moment."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.backend = FakeBackend(self.clock)
        self.others: dict[str, FakeBackend] = {}
        self.store = store_at(path)
        self.after: list[Reconciler[Any, Any]] = []
        self._uids = (f"u{number}" for number in itertools.count(1))
        self.host = self.new_host()

    def close(self) -> None:
        self.store.close()

    def new_host(self) -> Supervisor:
        """What a fresh host process makes: it knows what the database says and nothing else."""
        taken = leases.acquire(self.store, identify(os.getpid()), 20.0, self.clock.now(), alive=lambda _: False)
        assert isinstance(taken, leases.Lease)
        self.journal = FlakyJournal(self.store, taken.fence)
        backends = {"fake": self.backend, **self.others}
        self.host = Supervisor(self.journal, backends, self.clock, self.after)
        return self.host

    def up(
        self,
        *groups: Group,
        name: str = "w",
        backend: str = "fake",
        place: dict[str, object] | None = None,
        ends_with: str | None = None,
    ) -> Want:
        """Record a workload that shall run, and tell the host."""
        groups = groups or (make_group(),)
        workload = Workload(
            name=name,
            kind=Kind.SWARM,
            uid=next(self._uids),
            backend=backend,
            groups=groups,
            run_dir=f"/run/{name}",
            place=place or {},
            ends_with=ends_with,
        )
        row = WorkloadRow(name, workload.uid, "swarm", backend, workload.model_dump_json())
        self.store.add_workloads(self.journal.fence, [row])
        want = Want(workload, running=True, generation=row.generation)
        self.host.adopt(want)
        return want

    def change(
        self, name: str = "w", *, running: bool = True, paused: bool | None = None, restart: bool = False, **counts: int
    ) -> Want:
        """Record another intent."""
        old = self.host.wants[name]
        merged = {**old.counts, **counts}
        paused = old.paused if paused is None else paused
        mark = old.restart_mark + restart
        generation = self.store.set_intent(
            self.journal.fence, name, running=running, counts=json.dumps(merged), changed_at=self.clock.now(),
            paused=paused, restart_mark=mark,
        )  # fmt: skip
        want = replace(old, running=running, generation=generation, counts=merged, paused=paused, restart_mark=mark)
        self.host.adopt(want)
        return want

    async def go(self, seconds: float = 0.0) -> None:
        """Let the host work until nothing is due for `seconds`; time jumps from one due moment to the next."""
        end = self._steady() + seconds
        for _ in range(20_000):
            pause = await self.host.step()
            if self._steady() + pause > end and pause > 0.01:
                self.clock.advance(max(0.0, end - self._steady()))
                return
            self.clock.advance(pause)
        raise AssertionError("it never comes to rest")

    def _steady(self) -> float:
        return self.clock.now() - self.clock.offset

    async def all_ready(self, *, name: str = "w") -> None:
        """Let every running task report that it answers."""
        await self.go(1)
        for task in self.tasks(name):
            if task.token in self.backend.living():
                self.host.take(self.backend.report(task.token))
        await self.go(1)

    def tasks(self, name: str = "w") -> list[Task]:
        return [task for _, task in sorted(self.host.tasks(name).items())]

    def task(self, index: int = 0, group: str = "replica", name: str = "w") -> Task:
        return self.host.tasks(name)[TaskKey(name, group, index)]

    def phases(self, name: str = "w") -> list[Phase]:
        return [task.phase for task in self.tasks(name)]

    def written(self, name: str = "w") -> list[Phase]:
        """Phases as the database has them."""
        return [
            task.phase for task in sorted(self.journal.tasks(), key=lambda one: one.key) if task.key.workload == name
        ]

    def story(self, name: str = "w") -> list[StoryLine]:
        return self.journal.store.events(name, limit=1000)

    def bugs(self, name: str = "w") -> list[str]:
        return [line.reason for line in self.story(name) if line.kind == "bug"]

    def twins(self) -> list[str]:
        """Tasks with more than one living allocation."""
        counts = Counter(token.rsplit(".", 2)[0] for token in self.backend.living())
        return [task for task, count in counts.items() if count > 1]


def only(bed: Bed) -> Task:
    """The task of a run."""
    return bed.task(0, "script")
