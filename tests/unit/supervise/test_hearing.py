"""What the loop does when a task is not heard any more, and the backend says that it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.unit.supervise.build import group

from remuda.backends.base import Feature
from remuda.supervise.model import Cause, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.supervise.bed import Bed

HEARD = group(count=3).model_copy(update={"silence_s": 60.0})


async def speak(bed: Bed, indices: Iterable[int], seconds: float, every_s: float = 2.0) -> None:
    """Let time pass in which these report over the line."""
    spent = 0.0
    while spent < seconds:
        for index in indices:
            bed.host.take(bed.backend.report(bed.task(index).token))
        await bed.go(every_s)
        spent += every_s


def on(bed: Bed, index: int, node: str) -> None:
    """Let a task be on another node than the others."""
    tasks = bed.host.all["w"]
    made = bed.backend.made[bed.task(index).token]
    made.seen = replace(made.seen, node=node)
    tasks[bed.task(index).key] = replace(bed.task(index), node=node)


async def herd(bed: Bed) -> None:
    bed.up(HEARD)
    await bed.all_ready()
    await speak(bed, range(3), 6)
    assert bed.phases() == [Phase.READY] * 3


async def test_one_that_is_silent_is_left_out_and_comes_back(bed: Bed) -> None:
    await herd(bed)
    await speak(bed, (0, 1), 14)
    assert bed.phases() == [Phase.READY, Phase.READY, Phase.UNHEALTHY]
    assert "nothing heard of it for" in bed.task(2).reason
    await speak(bed, range(3), 2)
    assert bed.phases() == [Phase.READY] * 3
    assert bed.task(2).attempt == 1
    assert bed.backend.count("cancel") == 0


async def test_one_that_stays_silent_is_begun_again(bed: Bed) -> None:
    await herd(bed)
    old = bed.task(2).token
    on(bed, 2, "another-node")
    await speak(bed, (0, 1), 76)
    assert bed.task(2).attempt == 2
    assert bed.task(2).cause is Cause.NODE
    assert old not in bed.backend.living()
    assert bed.task(2).failures == 0, "its node is to blame"
    assert [bed.task(index).attempt for index in (0, 1)] == [1, 1]
    assert not bed.twins()


async def test_one_on_a_lost_node_is_begun_again_before_the_scheduler_gives_the_node_up(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    await herd(bed)
    old = bed.task(2).token
    on(bed, 2, "another-node")
    made = bed.backend.made[old]
    completing = replace(made.seen, lingers=True)

    def hook(verb: str) -> None:
        if verb in ("after cancel", "after kill"):
            made.seen = completing

    bed.backend.hook = hook
    await speak(bed, (0, 1), 90)
    assert (bed.task(2).phase, bed.task(2).attempt) == (Phase.STOPPING, 1), "its node may be killing it"
    await speak(bed, (0, 1), 60)
    assert (bed.task(2).attempt, bed.task(2).cause, bed.task(2).failures) == (2, Cause.NODE, 0)
    assert [(item.kind, item.node) for item in bed.journal.store.evidence(0.0)] == [("silent", "another-node")]
    (gone,) = [item for item in bed.journal.allocations("w") if item.token == old]
    assert (gone.cause, gone.reason) == (Cause.NODE, "its node does not say how it ended")
    bed.backend.hook = lambda _: None
    bed.backend.end(old, 137)
    await speak(bed, (0, 1), 20)
    assert bed.task(2).attempt == 2, "whatever becomes of the old one is nothing to it"


async def test_a_node_on_which_others_are_heard_is_not_to_blame(bed: Bed) -> None:
    await herd(bed)
    await speak(bed, (0, 1), 76)
    assert bed.task(2).attempt == 2
    assert bed.task(2).cause is Cause.UNKNOWN
    assert any("while others on its node did" in line.reason for line in bed.story())


async def test_when_nobody_is_heard_nothing_is_concluded(bed: Bed) -> None:
    await herd(bed)
    await bed.go(600)
    assert bed.phases() == [Phase.READY] * 3
    await speak(bed, (1,), 2)
    assert bed.phases() == [Phase.READY] * 3, "the first that is heard again is no witness"
    await speak(bed, range(3), 10)
    assert bed.phases() == [Phase.READY] * 3


async def test_another_workload_of_the_backend_is_a_witness(bed: Bed) -> None:
    bed.up(HEARD)
    bed.up(HEARD.model_copy(update={"count": 1}), name="other")
    await bed.all_ready()
    await bed.all_ready(name="other")
    for _ in range(10):
        bed.host.take(bed.backend.report(bed.task(0, name="other").token))
        await bed.go(2)
    assert bed.phases() == [Phase.UNHEALTHY] * 3
    assert bed.phases("other") == [Phase.READY]


async def test_nobody_is_replaced_while_the_scheduler_does_not_answer(bed: Bed) -> None:
    await herd(bed)
    bed.backend.silent = {"observe"}
    await speak(bed, (0, 1), 200)
    assert bed.task(2).phase is Phase.UNHEALTHY
    assert bed.task(2).attempt == 1
    bed.backend.silent = set()
    await speak(bed, (0, 1), 16)
    assert bed.task(2).attempt == 2


async def test_a_suspended_job_is_left_out_and_not_replaced(bed: Bed) -> None:
    await herd(bed)
    made = bed.backend.made[bed.task(2).token]
    made.seen = replace(made.seen, unread=True)
    await speak(bed, (0, 1), 200)
    assert bed.task(2).phase is Phase.UNHEALTHY
    assert bed.task(2).attempt == 1


async def test_reports_by_file_are_heard_as_well(bed: Bed) -> None:
    """Of one whose line is broken the files are read with each look, and that is often enough."""
    await herd(bed)
    made = bed.backend.made[bed.task(2).token]
    for _ in range(30):
        made.seen = replace(made.seen, report=bed.backend.report(bed.task(2).token))
        await speak(bed, (0, 1), 10)
        assert bed.task(2).phase is Phase.READY
    assert bed.task(2).attempt == 1


async def test_a_new_host_does_not_hold_the_time_before_it_against_anybody(bed: Bed) -> None:
    await herd(bed)
    bed.clock.advance(1000)
    bed.new_host()
    await speak(bed, (0,), 6)
    assert bed.phases() == [Phase.READY] * 3
    await speak(bed, range(3), 10)
    assert bed.phases() == [Phase.READY] * 3


async def test_where_silence_is_not_listened_to_nothing_changes(bed: Bed) -> None:
    bed.up(group(count=2))
    await bed.all_ready()
    await speak(bed, (0,), 300)
    assert bed.phases() == [Phase.READY] * 2
