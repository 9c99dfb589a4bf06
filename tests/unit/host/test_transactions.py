"""Memory and database say the same, whatever fails and when; and what was refused can be asked for again."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.fakes.backend import FakeBackend
from tests.unit.supervise.bed import Bed
from tests.unit.supervise.build import RULE, group

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, RemudaError, Unavailable
from remuda.host.nodes import Nodes
from remuda.host.service import NewWorkload, Service
from remuda.plan.model import Endpoint, Kind, Role, Workload
from remuda.supervise.model import Phase
from remuda.views.nodes import SmokeResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@dataclass
class Fault:
    """The statement or commit, counted from 1, at which the database fails; 0: none. What it failed at is told."""

    at: int = 0
    seen: list[str] = field(default_factory=list)

    def step(self, what: str) -> None:
        self.seen.append(what)
        if len(self.seen) == self.at:
            raise sqlite3.OperationalError("disk I/O error")


class Site:
    """A host's use cases over a real database that fails when it is told to."""

    def __init__(self, root: Path) -> None:
        self.bed = Bed(root / "remuda.db")
        self.paths = StatePaths(root)
        self.bed.others = {"slurm": FakeBackend(self.bed.clock, "slurm")}
        self.bed.new_host()
        self.service = Service(self.bed.journal, self.bed.host, self.paths, self.bed.clock)
        self.nodes = Nodes.of(self.service)
        self.fault = Fault()
        engine = self.bed.store.engine
        event.listen(engine, "before_cursor_execute", lambda *told: self.fault.step(told[2].split("\n")[0]))
        event.listen(engine, "commit", lambda _: self.fault.step("COMMIT"))

    def workload(self, name: str, uid: str = "u1", kind: Kind = Kind.SWARM) -> Workload:
        rule = RULE.model_copy(update={"max_failures": 1})
        return Workload(
            name=name, kind=kind, uid=uid, backend="fake", run_dir=str(self.paths.workload(name)),
            groups=(group(count=1, replace=rule), group("router", 1, role=Role.ROUTER)),
            endpoint=Endpoint(port=9000, router="router"),
        )  # fmt: skip

    async def prepared(self) -> None:
        """One that runs, one that is down, one that has long been done, one paused; a ban."""
        for name in ("up", "down", "old", "still"):
            self.service.create(self.workload(name, kind=Kind.RUN if name == "up" else Kind.SWARM))
        await self.bed.go(2)
        for name in ("down", "old"):
            self.service.down(name)
        self.service.pause("still", paused=True)
        await self.bed.go(30)
        assert {task.phase for task in self.bed.tasks("down")} == {Phase.STOPPED}
        self.nodes.ban("n1", 3600.0, "first", "slurm", by="alice")
        self.nodes.record_tests([SmokeResult(node="n2", outcome="failed")], "slurm")

    def memory(self) -> dict[str, object]:
        """What the host knows, as far as it is recorded."""
        host = self.bed.host
        tasks = {key: task.token for tasks in host.all.values() for key, task in tasks.items()}
        return {"wants": dict(host.wants), "tasks": tasks, "created": dict(self.service.created)}

    def recorded(self) -> dict[str, object]:
        journal = self.bed.journal
        return {
            "wants": {want.workload.name: want for want in journal.wants()},
            "tasks": {task.key: task.token for task in journal.tasks()},
            "created": {row.name: row.created_at for row in journal.store.workloads()},
        }

    def everything(self) -> dict[str, object]:
        """What is recorded, with stories and evidence."""
        stories = {name: [line.reason for line in self.bed.story(name)] for name in ("up", "down", "old", "new", "too")}
        evidence = [(item.node, item.kind, item.detail) for item in self.nodes.store.evidence(self.bed.clock.now())]
        history = {name: len(self.bed.journal.store.node_history(name)) for name in ("n1", "n2", "n3")}
        return {**self.recorded(), "stories": stories, "evidence": evidence, "history": history}


def _new(site: Site, *names: str) -> list[NewWorkload]:
    return [NewWorkload(site.workload(name, "u2")) for name in names]


USES: dict[str, Callable[[Site], Any]] = {
    "create": lambda site: site.service.create(site.workload("new")),
    "create in place of another": lambda site: site.service.create(site.workload("down", "u2")),
    "create many": lambda site: site.service.create_many(_new(site, "new", "down", "too")),
    "down": lambda site: site.service.down("up"),
    "restart": lambda site: site.service.restart("down"),
    "begin a run again": lambda site: site.service.restart("up"),
    "pause": lambda site: site.service.pause("up", paused=True),
    "unpause": lambda site: site.service.pause("still", paused=False),
    "scale": lambda site: site.service.scale("still", {"": 3}),
    "take many down": lambda site: site.service.change_many("down", ["up", "still"]),
    "restart many": lambda site: site.service.change_many("restart", ["up", "down"]),
    "pause many": lambda site: site.service.change_many("pause", ["up", "still"]),
    "announce": lambda site: site.service.announce(site.bed.host.wants["up"], announced=True),
    "remove": lambda site: site.service.remove("down"),
    "prune": lambda site: site.service.prune(site.bed.clock.now() + 1),
    "ban": lambda site: site.nodes.ban("n1", 60.0, "second", "slurm"),
    "ban many": lambda site: asyncio.run(site.nodes.ban_many("n[1-3]", 60.0, "all", "slurm", force=True)),
    "unban": lambda site: site.nodes.unban("n1", "slurm", by="bob"),
    "a node passed its test": lambda site: site.nodes.record_tests([SmokeResult(node="n2", outcome="ok")], "slurm"),
    "a node failed again": lambda site: site.nodes.record_tests([SmokeResult(node="n2", outcome="failed")], "slurm"),
}


def made(root: Path) -> Site:
    root.mkdir()
    site = Site(root)
    asyncio.run(site.prepared())
    return site


@pytest.mark.parametrize("use", USES)
def test_a_use_case_is_done_or_not_whatever_fails(use: str, tmp_path: Path) -> None:
    calm = made(tmp_path / "calm")
    USES[use](calm)
    assert calm.memory() == calm.recorded()
    # Paths and nothing else differ between two state directories.
    wanted = repr(calm.everything()).replace(str(tmp_path / "calm"), "")
    calm.bed.close()

    site = made(tmp_path / "site")
    before = site.everything()
    at, commits = 0, 0
    while True:
        at += 1
        site.fault = Fault(at)
        try:
            USES[use](site)
        except RemudaError:
            commits += site.fault.seen[-1] == "COMMIT"
        else:
            break
        failed_at, site.fault = site.fault.seen[-1], Fault()
        assert site.everything() == before, failed_at
        assert site.memory() == site.recorded(), failed_at
        assert not site.paths.workload("new").exists(), failed_at
    site.fault = Fault()
    assert at > 3
    assert commits, "the last step of all was tried, too"
    assert site.memory() == site.recorded()
    assert repr(site.everything()).replace(str(tmp_path / "site"), "") == wanted
    site.bed.close()


@pytest.mark.parametrize("use", [use for use in USES if "ban" not in use and "node" not in use])
def test_memory_follows_what_was_recorded_although_the_answer_was_lost(use: str, tmp_path: Path) -> None:
    """As when a server's connection breaks after it has committed: nobody knows what came of it."""
    site = made(tmp_path / "site")
    together = site.bed.store.together

    @contextmanager
    def without_answer(fence: int) -> Iterator[None]:
        with together(fence):
            yield
        raise Unavailable("the connection was lost")

    site.bed.store.together = without_answer  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        USES[use](site)
    site.bed.store.together = together  # type: ignore[method-assign]
    recorded = site.recorded()
    site.service.settle()
    assert site.memory() == site.recorded() == recorded
    if use == "create":
        assert site.service.create(site.workload("new")).name == "new", "asked again, it is there"
    site.bed.close()


@pytest.mark.parametrize(("kind", "flag"), [(Kind.JOB, "--job-id"), (Kind.RUN, "--name")])
async def test_a_name_that_another_kind_has_is_no_reason_to_take_that_down(
    tmp_path: Path, kind: Kind, flag: str
) -> None:
    site = Site(tmp_path)
    await site.prepared()
    with pytest.raises(Conflict) as caught:
        site.service.create(site.workload("still", "u9", kind))
    site.bed.close()
    assert caught.value.message == "the name 'still' is taken by a swarm, which is up"
    assert caught.value.hint == f"give the {kind.value} a name of its own: {flag}"
