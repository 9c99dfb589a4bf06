"""What nobody asks, or whose time is over, is taken down: with a real database, and a clock that jumps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import Bed
from tests.unit.supervise.build import group, key, workload

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict
from remuda.host.reconcilers.reaper import Reaper, over_for
from remuda.host.service import Service
from remuda.plan.model import Endpoint, Kind, Role, Workload
from remuda.supervise.model import Phase, Task, Want
from remuda.supervise.reconciler import Moment
from remuda.views.workloads import RouterView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IDLE_S = 1800.0
LIFETIME_S = DAY = 86400.0


class Site:
    """A swarm that is up, on a host that can be started anew."""

    def __init__(self, root: Path, **changes: object) -> None:
        self.bed = Bed(root / "remuda.db")
        self.paths = StatePaths(root)
        self.workload = Workload(
            name="w", kind=Kind.SWARM, uid="u1", backend="fake", run_dir=str(self.paths.workload("w")),
            groups=(group(count=1), group("router", 1, role=Role.ROUTER)), idle_timeout_s=IDLE_S,
            endpoint=Endpoint(port=9000, router="router"),
        ).model_copy(update=changes)  # fmt: skip
        self.requests = self.running = 0.0
        self.new_host()
        self.service.create(self.workload)

    def new_host(self) -> None:
        self.service = Service(self.bed.journal, self.bed.host, self.paths, self.bed.clock)
        self.reaper = Reaper(self.service)

    def move_to(self, backend: str) -> None:
        """Let it be one of another place, with the same tasks."""
        want = self.bed.host.wants["w"]
        self.bed.host.backends = {**self.bed.host.backends, backend: self.bed.backend}
        self.bed.host.adopt(replace(want, workload=want.workload.model_copy(update={"backend": backend})))

    def restart_host(self) -> None:
        """As after kill -9: only the database is left."""
        self.bed.new_host()
        self.new_host()

    async def up(self) -> None:
        await self.bed.all_ready()

    async def live(self, seconds: float, step_s: float = 15.0) -> None:
        """Let time pass; the router's counters are read at each step."""
        end = self.bed.clock.now() + seconds
        while self.bed.clock.now() < end:
            self.bed.clock.advance(min(step_s, end - self.bed.clock.now()))
            stats = {"requests": self.requests, "running": self.running}
            self.service.routers["w"] = RouterView(
                url="http://r", members=["a"], stats=stats, counted_at=self.bed.clock.now()
            )
            self.reaper.step(Moment(self.bed.host.wants["w"], self.bed.host.tasks("w"), self.bed.clock.now()))

    @property
    def phase(self) -> str:
        view = self.service.view("w")
        return f"{view.phase} {view.reason}".strip()

    @property
    def said(self) -> tuple[str, str]:
        view = self.service.view("w")
        return view.phase, view.reason

    def is_wanted(self) -> bool:
        return self.bed.host.wants["w"].running


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.bed.close()


async def test_idle_is_taken_down_and_says_why(site: Site) -> None:
    await site.up()
    await site.live(IDLE_S - 60)
    assert site.is_wanted()
    await site.live(120)
    assert not site.is_wanted()
    await site.bed.go(60)
    assert site.phase == "DOWN idle for 30m: nothing was asked of its endpoint"
    assert site.bed.story()[-1].reason.startswith("idle for 30m")


async def test_what_is_used_stays(site: Site) -> None:
    await site.up()
    for _ in range(10):
        await site.live(IDLE_S - 60)
        site.requests += 1
    site.running = 1.0
    await site.live(3 * IDLE_S)
    assert site.is_wanted(), "one long answer is use, too"
    site.running = 0.0
    await site.live(IDLE_S + 60)
    assert not site.is_wanted()


async def test_what_nobody_can_ask_is_not_idle(site: Site) -> None:
    """It waits in the queue for days, is up for a while, and is away again."""
    await site.live(10 * IDLE_S)
    assert site.is_wanted()
    await site.up()
    await site.live(IDLE_S - 60)
    task = site.bed.task(0)
    site.bed.host.take(replace(site.bed.backend.report(task.token, "unhealthy"), reason="ill"))
    await site.bed.go(1)
    await site.live(IDLE_S)
    assert site.is_wanted()
    site.bed.host.take(site.bed.backend.report(task.token))
    await site.bed.go(1)
    await site.live(120)
    assert not site.is_wanted()


async def test_unread_counters_conclude_nothing(site: Site) -> None:
    await site.up()
    await site.live(60)
    for _ in range(100):
        site.bed.clock.advance(60)
        site.reaper.step(Moment(site.bed.host.wants["w"], site.bed.host.tasks("w"), site.bed.clock.now()))
    assert site.is_wanted()


@pytest.mark.parametrize("asked", [False, True])
async def test_a_host_that_comes_later_remembers(site: Site, asked: bool) -> None:
    await site.up()
    site.requests = 7.0
    await site.live(IDLE_S / 2)
    site.restart_host()
    site.requests += asked
    await site.live(IDLE_S / 2 + 120)
    assert site.is_wanted() is asked
    await site.live(IDLE_S)
    assert not site.is_wanted()


async def test_brought_up_again_it_begins_anew(site: Site) -> None:
    await site.up()
    await site.live(IDLE_S + 60)
    await site.bed.go(60)
    site.bed.clock.advance(10 * IDLE_S)
    site.service.restart("w")
    await site.up()
    await site.live(IDLE_S - 60)
    assert site.is_wanted()
    await site.live(120)
    assert not site.is_wanted()


async def test_scaling_is_a_sign_of_use(site: Site) -> None:
    await site.up()
    await site.live(IDLE_S - 60)
    site.service.scale("w", {"": 2})
    await site.live(IDLE_S - 60)
    assert site.is_wanted()


async def test_a_lifetime_is_over(tmp_path: Path) -> None:
    site = Site(tmp_path, lifetime_s=LIFETIME_S, idle_timeout_s=0.0)
    await site.up()
    await site.live(LIFETIME_S / 2, 600)
    site.restart_host()
    await site.live(LIFETIME_S / 2 - 60, 600)
    assert site.is_wanted()
    await site.live(120)
    await site.bed.go(60)
    assert site.phase == "DOWN its lifetime of 1d is over"
    site.service.restart("w")
    await site.live(LIFETIME_S - 60, 600)
    assert site.is_wanted(), "brought up again it has its whole lifetime again"
    site.bed.close()


async def fail(site: Site) -> None:
    """Let the only replica end until it is given up."""
    for _ in range(20):
        await site.bed.go(1)
        for token in site.bed.backend.living("w.replica"):
            site.bed.backend.end(token, 1)
        await site.bed.go(120)
    assert site.phase.startswith("FAILED")


@pytest.mark.parametrize("place", ["fake", "local"])
async def test_what_failed_is_ended_and_stays_failed_until_somebody_says_what_is_to_become_of_it(
    tmp_path: Path, place: str
) -> None:
    site = Site(tmp_path)
    await site.up()
    await fail(site)
    assert site.bed.backend.living(), "the router still has its node"
    said = site.said
    site.move_to(place)
    await site.live(15)
    assert not site.is_wanted()
    assert site.said == said, "while it ends"
    await site.bed.go(60)
    assert site.bed.backend.living() == []
    assert site.said == said
    assert [view.name for view in site.service.workloads()] == ["w"], "plain `status` shows it"
    assert any(line.reason == f"it failed: {said[1]}" for line in site.bed.story())
    site.restart_host()
    assert site.said == said, "the next host knows it, too"
    site.service.scale("w", {"": 2})
    assert site.said == said, "that is no wish to have it"
    (ending,) = await site.service.endings(["w"], swept=True)
    assert (ending.phase, ending.over) == ("DOWN", True), "nothing of it is left to wait for"
    site.service.down("w")
    assert site.phase == "DOWN"
    assert site.service.workloads() == []
    site.bed.close()


async def test_brought_up_again_it_is_a_new_one(site: Site) -> None:
    await site.up()
    await fail(site)
    await site.live(15)
    assert site.service.supervisor.tasks("w"), "the old one"
    with pytest.raises(Conflict, match="'w' still ends") as caught:
        site.service.create(site.workload.model_copy(update={"uid": "u2"}))
    assert caught.value.hint == "wait for that: remuda down w"
    await site.bed.go(60)
    view = site.service.create(site.workload.model_copy(update={"uid": "u2"}))
    assert (view.uid, view.phase) == ("u2", "PENDING")
    await site.up()
    assert site.service.view("w").ready == 1


async def test_asked_for_again_it_is_begun_again(site: Site) -> None:
    await site.up()
    await fail(site)
    await site.live(15)
    await site.bed.go(60)
    site.service.restart("w")
    await site.up()
    assert site.service.view("w").ready == 1
    await site.live(60)
    assert site.is_wanted()


@pytest.mark.parametrize("by", [DAY, -DAY])
async def test_a_clock_that_is_set_makes_nothing_idle_and_keeps_nothing_up(site: Site, by: float) -> None:
    await site.up()
    await site.live(IDLE_S - 120)
    site.bed.clock.set_by(by)
    await site.bed.host.step()
    await site.live(60)
    assert site.is_wanted()
    await site.live(120)
    assert not site.is_wanted()


async def test_while_the_host_stood_still_nobody_could_ask(site: Site) -> None:
    await site.up()
    await site.live(IDLE_S - 120)
    site.bed.clock.stop(DAY)
    await site.bed.host.step()
    await site.live(60)
    assert site.is_wanted()
    await site.live(120)
    assert not site.is_wanted()


@pytest.mark.parametrize("by", [DAY, -DAY])
async def test_a_lifetime_moves_with_the_clock(tmp_path: Path, by: float) -> None:
    site = Site(tmp_path, idle_timeout_s=0.0, lifetime_s=LIFETIME_S)
    await site.up()
    await site.live(LIFETIME_S - 1000, step_s=500)
    site.bed.clock.set_by(by)
    await site.bed.host.step()
    await site.live(500)
    assert site.is_wanted()
    await site.live(600)
    assert not site.is_wanted()
    site.bed.close()


async def test_a_recorded_lifetime_is_no_longer_than_it_was_to_be(tmp_path: Path) -> None:
    """The clock was set back while no host ran, on another boot."""
    site = Site(tmp_path, idle_timeout_s=0.0, lifetime_s=LIFETIME_S)
    site.bed.clock._now -= 30 * LIFETIME_S
    site.restart_host()
    assert site.bed.host.wants["w"].ends_at == site.bed.clock.now() + LIFETIME_S
    site.bed.close()


@pytest.mark.parametrize(
    ("phases", "ends_at", "kind", "why"),
    [
        (["ready", "ready"], 0.0, Kind.SWARM, ""),
        (["ready", "ready"], 101.0, Kind.SWARM, ""),
        (["ready", "ready"], 100.0, Kind.SWARM, "its lifetime of 1d is over"),
        (["ready", "failed"], 0.0, Kind.SWARM, "it failed: broken"),
        (["failed", "ready"], 0.0, Kind.SWARM, "it failed: the router failed: broken"),
        (["failed", "ready"], 99.0, Kind.SWARM, "it failed: the router failed: broken"),
        (["failed", "ready"], 0.0, Kind.RUN, ""),
    ],
)
def test_why_what_is_wanted_is_to_end(phases: list[str], ends_at: float, kind: Kind, why: str) -> None:
    made = workload(group("router", 1, role=Role.ROUTER), group(count=1), endpoint=Endpoint(router="router"))
    want = Want(made.model_copy(update={"kind": kind, "lifetime_s": LIFETIME_S}), running=True, ends_at=ends_at)
    keys = [key(0, "router"), key()]
    tasks = {one: Task(one, "fake", Phase(word), reason="broken") for one, word in zip(keys, phases, strict=True)}
    assert over_for(Moment(want, tasks, 100.0)) == why
