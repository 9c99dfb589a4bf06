"""Months of a swarm that outlives its time limits, in invented time: the real `decide` and facts, an invented queue."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.supervise.build import group, report, want

from remuda.backends.base import Ending, Life, Observed
from remuda.plan.lasting import LEAD_MAX_S, LEAD_SHARE
from remuda.plan.model import Replace, Succession
from remuda.supervise import facts
from remuda.supervise.decide import Cancel, Submit, decide, next_due
from remuda.supervise.groups.handover import SETTLE_S, SUCCESSOR
from remuda.supervise.model import FINAL, LIVE, Phase, Task

if TYPE_CHECKING:
    from remuda.backends.base import TaskKey

HOUR = 3600.0
TICK_S = 15.0
"""So late the loop sees what happens."""


@dataclass
class Job:
    """One allocation as it really is."""

    runs_at: float
    ready_at: float
    limit_at: float
    dies_at: float
    seq: int = 0
    over: str = ""


@dataclass(frozen=True)
class Site:
    """What the swarm has to live with, in seconds."""

    limit_s: float
    queue_s: float
    start_s: float
    deaths_s: tuple[float, ...] = ()
    """How long an allocation lives, one after the other; 0: to its limit. The last of them stays 0."""


class World:
    """One swarm of `count` members, and the cluster."""

    def __init__(
        self, site: Site, lead_s: float, drain_s: float, count: int = 2, *, follows_queue: bool = False
    ) -> None:
        rule = Replace(max_failures=6, backoff_initial_s=10, backoff_max_s=60, heal_after_s=600)
        self.group = group(count=count, replace=rule).model_copy(
            update={"succession": Succession(lead_s=lead_s, drain_s=drain_s, follows_queue=follows_queue)}
        )
        plain = want(self.group)
        workload = plain.workload.model_copy(update={"lifetime_s": 1e9})
        self.want = replace(plain, workload=workload)
        self.site = site
        self.deaths = list(site.deaths_s)
        self.now = 1_000_000.0
        self.tasks: dict[TaskKey, Task] = {}
        self.jobs: dict[str, Job] = {}
        self.gaps: list[tuple[float, int]] = []
        """When which slot had no ready member."""
        self.most = 0
        """Most allocations that one slot had at once."""

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            self.step()
            due = next_due(self.tasks, self.now, self.want)
            times = [
                at for job in self.jobs.values() if not job.over for at in (job.runs_at, job.ready_at, job.dies_at)
            ]
            seen = min((at + TICK_S for at in times if at + TICK_S > self.now), default=end)
            self.now = max(self.now + 0.01, min(end, seen, end if due is None else self.now + due))

    def step(self) -> None:
        for task in list(self.tasks.values()):
            if task.token in self.jobs and task.phase in LIVE:
                self.tasks[task.key] = self._look(task)
        for action in decide(self.want, self.tasks, self.now):
            task = action.task
            self.tasks[task.key] = task
            if isinstance(action, Submit):
                self._submit(task)
            elif isinstance(action, Cancel):
                self.jobs[task.token].over = "cancelled"
        self._note()

    def _submit(self, task: Task) -> None:
        site, dies_s = self.site, self.deaths.pop(0) if self.deaths else 0.0
        runs_at = self.now + site.queue_s
        limit_at = runs_at + site.limit_s
        dies_at = runs_at + dies_s if dies_s else limit_at
        self.jobs[task.token] = Job(runs_at, runs_at + site.start_s, limit_at, min(dies_at, limit_at))
        self.tasks[task.key] = facts.accepted(task, "1", self.now)

    def _look(self, task: Task) -> Task:
        job, now = self.jobs[task.token], self.now
        if not job.over and now >= job.dies_at:
            job.over = "limit" if job.dies_at >= job.limit_at else "died"
        if job.over:
            ending = Ending.TIME_LIMIT if job.over == "limit" else Ending.NONE
            return facts.observed(task, self.group, Observed(Life.ENDED, exit_code=1, ending=ending), now)
        if now < job.runs_at:
            return facts.observed(task, self.group, Observed(Life.PENDING), now)
        task = facts.observed(task, self.group, Observed(Life.RUNNING, limit_at=job.limit_at), now)
        if now >= job.ready_at and task.phase is not Phase.READY:
            job.seq += 1
            task = facts.reported(task, report(task.token, "ready", job.seq, attempt=task.attempt), now)
        return facts.healed(task, self.group, now)

    def _note(self) -> None:
        lives: dict[int, int] = defaultdict(int)
        serves: set[int] = set()
        for task in self.tasks.values():
            slot = task.key.index % SUCCESSOR
            job = self.jobs.get(task.token)
            lives[slot] += job is not None and not job.over
            if task.phase is Phase.READY and not task.yields_at and job is not None and self.now < job.dies_at:
                serves.add(slot)
        self.most = max(self.most, *lives.values(), 0)
        self.gaps += [(self.now, slot) for slot in range(self.want.count("replica")) if slot not in serves]


@given(
    limit_s=st.floats(1 * HOUR, 48 * HOUR),
    queue_s=st.floats(0, 2 * HOUR),
    start_s=st.floats(0, 900),
    spare_s=st.floats(60, HOUR),
    drain_s=st.floats(0, HOUR),
)
@settings(max_examples=150, deadline=None)
def test_with_enough_lead_a_member_is_always_there(
    limit_s: float, queue_s: float, start_s: float, spare_s: float, drain_s: float
) -> None:
    needed = queue_s + start_s + SETTLE_S + 4 * TICK_S
    limit_s = max(limit_s, needed + spare_s + start_s + drain_s + 600)
    world = World(Site(limit_s, queue_s, start_s), needed + spare_s, drain_s)
    begun = world.now
    world.run(5 * limit_s)
    late = [at for at, _ in world.gaps if at > begun + queue_s + start_s + 2 * TICK_S]
    assert late == []
    assert world.most <= 2
    used = {task.key.index // SUCCESSOR for task in world.tasks.values()}
    assert used == {0, 1}, "both of a slot had their turn"
    assert all(task.attempt >= 2 for task in world.tasks.values())


@given(
    limit_s=st.floats(600, 8 * HOUR),
    lead_share=st.floats(0.01, 0.9),
    queue_s=st.floats(0, 2 * HOUR),
    start_s=st.floats(0, 900),
    drain_s=st.floats(0, HOUR),
    deaths_s=st.lists(st.floats(0, 8 * HOUR), max_size=12),
)
@settings(max_examples=150, deadline=None)
def test_whatever_dies_it_comes_back_and_ends(
    limit_s: float, lead_share: float, queue_s: float, start_s: float, drain_s: float, deaths_s: list[float]
) -> None:
    site = Site(limit_s, queue_s, min(start_s, limit_s / 3), tuple(deaths_s))
    world = World(site, lead_share * limit_s, drain_s)
    world.run(6 * (limit_s + queue_s) + 4 * HOUR)
    assert world.most <= 2, "no third of a slot"
    assert not world.deaths, "all that was to die has died"
    given_up = [task for task in world.tasks.values() if task.phase is Phase.FAILED]
    for slot in range(2):
        mine = [task for task in world.tasks.values() if task.key.index % SUCCESSOR == slot]
        assert any(task.phase in LIVE or task.phase is Phase.WAITING for task in mine) or given_up, mine
    world.want = replace(world.want, running=False)
    world.run(120)
    assert all(task.phase in FINAL for task in world.tasks.values())
    assert all(job.over for job in world.jobs.values())


def test_a_lifetime_ends_without_useless_successors() -> None:
    world = World(Site(10 * HOUR, 600, 60), HOUR, 60, count=1)
    world.want = replace(world.want, ends_at=world.now + 25 * HOUR)
    world.run(25 * HOUR)
    assert len(world.jobs) == 3, "the third job's limit comes after the end of the lifetime"


def test_a_successor_that_comes_too_late_takes_the_place() -> None:
    """The old one ends by its limit; nothing is submitted twice for its slot."""
    world = World(Site(2 * HOUR, 1.5 * HOUR, 60), HOUR, 60, count=1)
    world.run(3.2 * HOUR)
    assert len(world.jobs) == 2, "the first, and its successor that still waits"
    world.run(HOUR)
    assert len(world.jobs) == 2
    (serves,) = [task for task in world.tasks.values() if task.phase is Phase.READY]
    assert serves.key.index == SUCCESSOR


def test_scaled_while_one_is_succeeded() -> None:
    world = World(Site(2 * HOUR, 60, 60), HOUR, 600, count=3)
    world.run(1.2 * HOUR)
    assert any(task.yields_at for task in world.tasks.values())
    world.want = replace(world.want, counts={"replica": 1}, generation=2)
    world.run(300)
    living = {task.key.index % SUCCESSOR for task in world.tasks.values() if task.phase in LIVE}
    assert living == {0}
    world.want = replace(world.want, counts={"replica": 2}, generation=3)
    world.run(1800)
    serving = [task.key.index % SUCCESSOR for task in world.tasks.values() if task.phase is Phase.READY]
    assert sorted(set(serving)) == [0, 1]
    assert world.most <= 2


@given(limit_s=st.floats(2 * HOUR, 48 * HOUR), queue_share=st.floats(0, 0.45), start_share=st.floats(0, 0.4))
@settings(max_examples=100, deadline=None)
def test_a_lead_that_follows_the_queue_is_enough(limit_s: float, queue_share: float, start_share: float) -> None:
    lead_s = min(LEAD_SHARE * limit_s, LEAD_MAX_S)
    site = Site(limit_s, queue_share * limit_s, start_share * lead_s)
    world = World(site, lead_s, 60, follows_queue=True)
    begun = world.now
    world.run(5 * limit_s)
    assert [at for at, _ in world.gaps if at > begun + site.queue_s + site.start_s + 2 * TICK_S] == []
    assert world.most <= 2


def test_a_queue_that_grows_is_followed() -> None:
    """The fixed lead of 2 h leaves the member away for hours each time, the one that follows only the first time."""

    def missing_s(*, follows_queue: bool) -> list[float]:
        world = World(Site(8 * HOUR, 60, 300), 2 * HOUR, 60, count=1, follows_queue=follows_queue)
        world.run(HOUR)
        world.site = Site(8 * HOUR, 4 * HOUR, 300)
        world.gaps.clear()
        world.run(60 * HOUR)
        ends = [job.dies_at for job in world.jobs.values()]
        begins = sorted(job.ready_at for job in world.jobs.values())
        return [gap for end in ends if (gap := min((at for at in begins if at > end), default=end) - end) > 60
                and not any(job.ready_at < end + 60 < job.dies_at for job in world.jobs.values())]  # fmt: skip

    assert len(missing_s(follows_queue=False)) > 3
    assert len(missing_s(follows_queue=True)) == 1
