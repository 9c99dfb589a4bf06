"""What users change while things run: scale, restart, down and up again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.unit.supervise.build import group

from remuda.plan.model import Replace, Role
from remuda.supervise.loop import all_ended
from remuda.supervise.model import Phase
from remuda.supervise.summary import current, summarise

if TYPE_CHECKING:
    from tests.unit.supervise.bed import Bed


async def test_scaling_up_leaves_the_others_alone(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    first = bed.task()
    bed.change(replica=3)
    await bed.go(2)
    assert bed.task().token == first.token
    assert bed.phases() == [Phase.READY, Phase.STARTING, Phase.STARTING]


async def test_scaling_down_ends_the_last_ones(bed: Bed) -> None:
    bed.up(group(count=3))
    await bed.all_ready()
    want = bed.change(replica=1)
    await bed.go(5)
    assert bed.backend.living() == ["w.replica.0.1.u1"]
    assert [key.index for key in current(want, bed.host.tasks("w"))] == [0]
    assert (summarise(want, bed.host.tasks("w")).phase, summarise(want, bed.host.tasks("w")).wanted) == ("RUNNING", 1)


async def test_what_is_scaled_up_again_is_a_new_attempt(bed: Bed) -> None:
    """A token is the name of one allocation for ever; a second one of the same name would be taken for the first."""
    bed.up(group(count=2))
    await bed.all_ready()
    for attempt in (2, 3):
        bed.change(replica=1)
        await bed.go(5)
        bed.new_host()
        bed.change(replica=2)
        await bed.go(5)
        assert bed.backend.living() == ["w.replica.0.1.u1", f"w.replica.1.{attempt}.u1"]
    assert (bed.task(1).phase, bed.task(1).failures) == (Phase.STARTING, 0)


async def test_scaled_up_while_the_surplus_still_ends(bed: Bed) -> None:
    bed.up(group(count=2))
    await bed.all_ready()
    bed.backend.made[bed.task(1).token].is_stubborn = True
    bed.change(replica=1)
    await bed.go(2)
    bed.change(replica=2)
    await bed.go(2)
    assert bed.phases() == [Phase.READY, Phase.STOPPING]
    await bed.go(30)
    assert bed.backend.living() == ["w.replica.0.1.u1", "w.replica.1.2.u1"]
    assert bed.twins() == []


async def test_scaled_down_while_it_waits(bed: Bed) -> None:
    bed.up(group(count=2))
    await bed.all_ready()
    bed.backend.end(bed.task(1).token, 1)
    await bed.go(2)
    assert bed.phases() == [Phase.READY, Phase.WAITING]
    bed.change(replica=1)
    await bed.go(60)
    assert bed.phases() == [Phase.READY, Phase.STOPPED]
    assert len(bed.backend.made) == 2


async def test_asked_for_again_revives_what_failed_and_leaves_the_rest(bed: Bed) -> None:
    bed.up(group(count=2, replace=Replace(max_failures=1)))
    await bed.all_ready()
    bed.backend.end(bed.task(1).token, 1)
    await bed.go(600)
    assert bed.phases() == [Phase.READY, Phase.FAILED]
    want = bed.change()
    await bed.go(2)
    assert bed.phases() == [Phase.READY, Phase.STARTING]
    assert [(task.attempt, task.generation, task.failures) for task in bed.tasks()] == [
        (1, want.generation, 0), (2, want.generation, 0),
    ]  # fmt: skip


async def test_a_goal_that_was_reached_is_run_again_only_when_asked_for(bed: Bed) -> None:
    script = group("script", 1, replace=Replace(policy="on-failure"), role=Role.SCRIPT)
    bed.up(script)
    await bed.go()
    bed.backend.end(bed.backend.living()[0], 0)
    await bed.go(3600)
    assert bed.phases() == [Phase.DONE]
    bed.new_host()
    await bed.go(3600)
    assert bed.phases() == [Phase.DONE]
    bed.change()
    await bed.go()
    assert [token.split(".")[-2] for token in bed.backend.living()] == ["2"]


async def test_down_and_wanted_again(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.change(running=False)
    await bed.go(5)
    bed.change(running=True)
    await bed.go(5)
    assert bed.backend.living() == ["w.replica.0.2.u1"]


async def test_wanted_again_before_it_is_down(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.backend.made[bed.task().token].is_stubborn = True
    bed.change(running=False)
    await bed.go(2)
    bed.change(running=True)
    await bed.go(60)
    assert bed.backend.living() == ["w.replica.0.2.u1"]
    assert bed.twins() == []


async def test_down_of_what_failed_keeps_the_reason(bed: Bed) -> None:
    bed.up(group(count=1, replace=Replace(max_failures=1)))
    await bed.all_ready()
    bed.backend.end(bed.task().token, 3)
    await bed.go(2)
    want = bed.change(running=False)
    await bed.go(2)
    assert bed.phases() == [Phase.FAILED]
    assert "exit code 3" in bed.task().reason
    assert summarise(want, bed.host.tasks("w")).phase == "DOWN"
    assert all_ended(bed.tasks())


async def test_what_vanished_is_replaced(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.backend.lose(bed.task().token)
    await bed.go(30)
    assert (bed.task().attempt, bed.task().phase) == (2, Phase.STARTING)
    assert "does not know the allocation any more" in bed.journal.allocations("w")[0].reason


async def test_pending_is_waited_for_a_long_time(bed: Bed) -> None:
    bed.backend.starts_at_once = False
    bed.up(group(count=1))
    await bed.go(10_000)
    assert (bed.phases(), bed.backend.count("submit")) == ([Phase.PENDING], 1)
    bed.backend.start(bed.task().token)
    await bed.go(2)
    assert bed.phases() == [Phase.STARTING]


async def test_a_workload_that_was_removed_is_not_followed(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.change(running=False)
    await bed.go(5)
    bed.store.remove_workload(bed.journal.fence, "w")
    bed.host.forget("w")
    bed.up(group(count=1))
    await bed.go(5)
    assert bed.backend.living() == ["w.replica.0.1.u2"]
    assert bed.task().attempt == 1


async def test_one_group_is_begun_again_and_the_others_are_left_alone(bed: Bed) -> None:
    """What runs there is ended and begun again at once, what ended there too; what ended elsewhere stays so."""
    once = Replace(max_failures=1)
    bed.up(group("prefill", 2, role=Role.PREFILL, replace=once), group("decode", 2, role=Role.DECODE, replace=once))
    await bed.all_ready()
    for name in ("prefill", "decode"):
        bed.backend.end(bed.task(1, name).token, 1)
    await bed.go(30)
    old = bed.host.wants["w"]
    bed.host.adopt(replace(old, group_marks={"prefill": 1}))
    await bed.go(5)
    attempts = {str(task.key): (task.phase, task.attempt, task.failures) for task in bed.tasks()}
    assert attempts == {
        "w/decode/0": (Phase.READY, 1, 0), "w/decode/1": (Phase.FAILED, 1, 1),
        "w/prefill/0": (Phase.STARTING, 2, 0), "w/prefill/1": (Phase.STARTING, 2, 0),
    }  # fmt: skip
    await bed.all_ready()
    await bed.go(3600)
    assert len(bed.backend.made) == 6, "once is enough"
    assert bed.twins() == []
