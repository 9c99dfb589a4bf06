"""Gangs as the host accepts them: no GPU has two owners, whatever ends and begins again, and no run two gangs."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.backend import FakeBackend
from tests.unit.plan.test_gang import plan
from tests.unit.supervise.bed import Bed

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, NotFound
from remuda.host.reconcilers.reaper import Reaper
from remuda.host.service import NewWorkload, Service
from remuda.look.allocate import devices_by_task
from remuda.supervise.model import LIVE
from remuda.supervise.reconciler import Moment

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = ("0", "1", "2", "3")


class Site:
    """A host's use cases over a machine of four GPUs whose processes are invented."""

    def __init__(self, root: Path) -> None:
        self.bed = Bed(root / "remuda.db")
        self.machine = FakeBackend(self.bed.clock, "local")
        self.bed.others = {"local": self.machine}
        self.bed.new_host()
        self.paths = StatePaths(root)
        self.service = Service(self.bed.journal, self.bed.host, self.paths, self.bed.clock)
        self.reaper = Reaper(self.service)

    def create(self, name: str, ranks: int, gpus: int = 1, **fields: Any) -> None:
        workload = plan(name, MACHINE, ranks=ranks, resources={"gpus": gpus}, max_retries=0, **fields)
        placed = workload.model_copy(update={"run_dir": str(self.paths.workload(name))})
        self.service.create_many([NewWorkload(placed)])

    def end(self, name: str, code: int) -> None:
        """All ranks of a gang that run now end."""
        for token in self.machine.living(f"{name}."):
            self.machine.start(token)
            self.machine.end(token, code)

    async def go(self) -> None:
        await self.bed.go(1)
        for name, want in list(self.bed.host.wants.items()):
            self.reaper.step(Moment(want, self.bed.host.tasks(name), self.bed.clock.now()))
        await self.bed.go(1)

    def owners(self) -> Counter[str]:
        """How many tasks that may have a process have each GPU."""
        host = self.bed.host
        return Counter(
            device
            for name, want in host.wants.items()
            for key, devices in devices_by_task(want.workload).items()
            for device in devices
            if (task := host.tasks(name).get(key)) is not None and task.phase in LIVE
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path)
    yield one
    one.bed.close()


verbs = ("create", "create", "done", "failed", "restart", "down")
steps = st.tuples(
    st.sampled_from(verbs), st.sampled_from(["a", "b"]), st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1)])
)


@settings(max_examples=40)
@given(story=st.lists(steps, min_size=20, max_size=30))
def test_no_gpu_has_two_owners(story: list[tuple[str, str, tuple[int, int]]]) -> None:
    async def live(site: Site) -> None:
        for verb, name, numbers in story:
            with suppress(Conflict, NotFound):
                match verb:
                    case "create":
                        site.create(name, *numbers)
                    case "restart":
                        site.service.restart(name)
                    case "done" | "failed":
                        site.end(name, 0 if verb == "done" else 3)
                    case _:
                        site.service.down(name)
            if verb != "down":  # another is asked for while it still ends
                await site.go()
            assert [device for device, count in site.owners().items() if count > 1] == [], "a GPU is given out twice"

    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        try:
            asyncio.run(live(site))
        finally:
            site.bed.close()


async def test_what_is_over_holds_nothing_and_gets_others_when_it_begins_again(site: Site) -> None:
    site.create("a", 2)
    await site.go()
    assert sorted(site.owners()) == ["0", "1"]
    with pytest.raises(Conflict, match="3 GPUs are needed and 2 of this machine's 4 are free") as refused:
        site.create("b", 3)
    assert refused.value.hint == "in use by: a"
    site.end("a", 0)
    await site.go()
    assert site.service.view("a").phase == "DONE"
    site.create("b", 3)
    await site.go()
    with pytest.raises(Conflict, match="2 GPUs are needed and 1 of this machine's 4 are free"):
        site.service.restart("a")
    assert site.service.view("a").phase == "DONE", "it is as it was"
    site.service.down("b")
    await site.go()
    site.end("b", 1)
    await site.bed.go(120)
    site.service.restart("a")
    await site.go()
    assert sum(site.owners().values()) == 2


async def test_a_rank_that_failed_for_good_ends_the_others(site: Site) -> None:
    site.create("a", 3)
    await site.go()
    first, *_ = site.machine.living("a.rank.1.")
    site.machine.start(first)
    site.machine.end(first, 3)
    await site.go()
    view = site.service.view("a")
    assert (view.phase, view.reason.partition(":")[0]) == ("FAILED", "rank/1")
    assert {task.task: task.phase for task in view.tasks if task.phase == "failed"} == {"rank/1": "failed"}
    await site.bed.go(200)
    assert site.machine.living("a.") == []
    assert not site.owners()


async def test_no_two_gangs_train_the_same(site: Site) -> None:
    where: dict[str, Any] = {"rendezvous": "s3://bucket/x", "run_id": "r7"}
    site.create("a", 1, **where)
    with pytest.raises(Conflict, match="the gang 'a' trains 'r7' at s3://bucket/x now") as refused:
        site.create("b", 1, **where)
    assert refused.value.hint == "end it first (remuda down a), or train another: -s run_id=OTHER"
    site.create("b", 1, **{**where, "run_id": "r8"})
    await site.go()
    site.end("a", 0)
    await site.go()
    site.create("c", 1, **where)
    with pytest.raises(Conflict, match="the gang 'c' trains 'r7'"):
        site.service.restart("a")
