"""A host that is killed at every step of what it does, before and after: nothing is lost, nothing is doubled."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import Killed
from tests.unit.supervise.build import group

from remuda.plan.model import Replace
from remuda.supervise.model import FINAL, Phase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.unit.supervise.bed import Bed

COUNT = 3
STEPS = ("before record", "after record", "before submit", "after submit", "before cancel", "after cancel",
         "before find", "after find", "before kill", "after kill")  # fmt: skip


class Killer:
    """Kills the host at its k-th step of any kind; a killed host does nothing more."""

    def __init__(self, bed: Bed, at: int) -> None:
        self.bed = bed
        self.left = at
        self.moment = ""

    def __call__(self, moment: str) -> None:
        if self.moment:
            raise Killed
        if moment in STEPS:
            self.left -= 1
        if self.left == 0:
            self.moment = moment
            raise Killed(moment)

    async def run(self, act: Callable[[], Awaitable[None]]) -> bool:
        """Whether the host was killed within `act`."""
        self.bed.journal.hook = self
        self.bed.backend.hook = self
        try:
            await act()
        except Killed:
            return True
        finally:
            self.bed.journal.hook = _nothing
            self.bed.backend.hook = _nothing
        return False


def _nothing(_: str) -> None:
    """Nobody is killed."""


async def life(bed: Bed) -> None:
    """All that a host does for a workload: up, one replaced, scaled up and down, silence, down."""
    await bed.go(2)
    bed.backend.end(bed.backend.living()[0], 1)
    await bed.go(30)
    bed.change(replica=COUNT + 1)
    await bed.go(2)
    bed.change(replica=COUNT)
    await bed.go(2)
    bed.backend.lose_answers = {"submit"}
    bed.backend.end(bed.backend.living()[0], 1)
    await bed.go(30)
    bed.backend.lose_answers = set()
    await bed.go(30)


async def end(bed: Bed) -> None:
    """Down, with one that does not listen."""
    await bed.go(2)
    bed.backend.made[bed.backend.living()[0]].is_stubborn = True
    bed.change(running=False)
    await bed.go(60)


async def check_up(bed: Bed) -> None:
    bed.backend.lose_answers = set()
    bed.new_host()
    bed.change(replica=COUNT)
    await bed.go(60)
    assert bed.twins() == []
    assert sorted(token.rsplit(".", 2)[0] for token in bed.backend.living()) == [
        f"w.replica.{index}" for index in range(COUNT)
    ]
    assert {task.token for task in bed.tasks() if task.key.index < COUNT} == set(bed.backend.living())


async def check_down(bed: Bed) -> None:
    bed.new_host()
    bed.change(running=False)
    await bed.go(60)
    assert bed.backend.living() == []
    assert set(bed.phases()) <= FINAL
    assert bed.written() == bed.phases()


@pytest.mark.parametrize("part", ["life", "end"])
async def test_killed_at_every_step(make_bed: Callable[[str], Bed], part: str) -> None:
    act = {"life": life, "end": end}[part]
    moments: list[str] = []
    for at in itertools.count(1):
        bed = make_bed(f"{part}{at}")
        bed.up(group(count=COUNT))
        if part == "end":
            await bed.go(2)
        killer = Killer(bed, at)
        was_killed = await killer.run(lambda bed=bed: act(bed))  # type: ignore[misc]
        moments.append(killer.moment)
        assert bed.twins() == [], killer.moment
        if part == "life":
            await check_up(bed)
        await check_down(bed)
        if not was_killed:
            break
    expected = {"life": {"record", "submit", "cancel", "find"}, "end": {"record", "cancel", "kill"}}[part]
    assert {moment.split()[1] for moment in moments if moment} == expected
    assert len(moments) > {"life": 25, "end": 8}[part]


async def test_a_new_host_asks_kindly_first(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.go()
    bed.backend.made[bed.task().token].is_stubborn = True
    bed.change(running=False)
    killer = Killer(bed, at=3)
    assert await killer.run(bed.host.step)  # type: ignore[arg-type]
    assert killer.moment == "before cancel"
    bed.clock.advance(3600)
    bed.new_host()
    assert bed.phases() == [Phase.STOPPING]
    await bed.go(10)
    assert (bed.backend.count("kill"), bed.backend.made["w.replica.0.1.u1"].asked) == (0, 1)
    await bed.go(10)
    assert (bed.phases(), bed.backend.living()) == ([Phase.STOPPED], [])


async def test_killed_again_and_again(bed: Bed) -> None:
    """Each new host is killed at its first act outside; still it ends in the wanted state."""
    bed.up(group(count=2))
    for _ in range(5):
        killer = Killer(bed, at=1)

        def at_submit(moment: str, killer: Killer = killer) -> None:
            if moment in ("after submit", "after find"):
                killer.left = 1
                killer(moment)

        bed.backend.hook = at_submit
        with pytest.raises(Killed):
            await bed.go(20)
        bed.backend.hook = _nothing
        bed.new_host()
    await bed.go(10)
    assert len(bed.backend.made) == 2
    assert bed.phases() == [Phase.STARTING, Phase.STARTING]


async def test_a_host_that_was_stopped_adopts_everything(bed: Bed) -> None:
    bed.up(group(count=2))
    await bed.all_ready()
    before = bed.tasks()
    bed.new_host()
    await bed.go(60)
    assert bed.tasks() == before
    assert bed.backend.count("submit") == 1


async def deployment(bed: Bed) -> None:
    """Groups that begin after each other, one that is replaced, and the end of all with the last."""
    await bed.all_ready()
    await bed.all_ready()
    await bed.all_ready()
    bed.backend.end(next(token for token in bed.backend.living() if token.startswith("w.worker.1.")), 1)
    await bed.go(30)
    bed.backend.end(next(token for token in bed.backend.living() if token.startswith("w.generator.")), 3)
    await bed.go(60)


async def test_killed_at_every_step_of_groups_that_wait_for_each_other(make_bed: Callable[[str], Bed]) -> None:
    groups = [group(name, count).model_copy(update={"after": names}) for name, count, names in
              (("service", 1, ()), ("worker", 2, ("service",)), ("generator", 1, ("worker",)))]  # fmt: skip
    groups[-1] = groups[-1].model_copy(update={"replace": Replace(policy="never")})
    for at in itertools.count(1):
        bed = make_bed(f"deployment{at}")
        bed.up(*groups, ends_with="generator")
        killer = Killer(bed, at)
        was_killed = await killer.run(lambda bed=bed: deployment(bed))  # type: ignore[misc]
        if was_killed:
            bed.new_host()
            for _ in range(3):
                await bed.all_ready()
            for token in [token for token in bed.backend.living() if token.startswith("w.generator.")]:
                bed.backend.end(token, 3)
            await bed.go(60)
        assert bed.twins() == [], killer.moment
        assert bed.backend.living() == [], killer.moment
        assert bed.task(0, "generator").exit_code == 3
        assert [token for token in bed.backend.made if token.startswith("w.generator.")] == ["w.generator.0.1.u1"]
        began = list(dict.fromkeys(token.split(".")[1] for token in bed.backend.made))
        assert began == ["service", "worker", "generator"]
        cancelled = [token for verb, tokens in bed.backend.calls if verb == "cancel" for token in tokens]
        assert [token.split(".")[1] for token in cancelled][-1] == "service", killer.moment
        if not was_killed:
            break
    assert at > 12
