"""The loop with a backend that is silent, refuses, forgets and loses answers."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from tests.fakes.backend import FakeBackend
from tests.unit.supervise.build import group

from remuda.base.errors import Fenced, RemudaError
from remuda.plan.model import Replace
from remuda.store import lease as leases
from remuda.supervise.decide import decide
from remuda.supervise.model import FINAL, Cause, Phase
from remuda.supervise.reconciler import Due, Moment, Reconciler
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.supervise.bed import Bed

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Task, Want


async def test_it_brings_up_keeps_up_and_takes_down(bed: Bed) -> None:
    bed.up(group(count=2))
    await bed.all_ready()
    assert bed.phases() == [Phase.READY, Phase.READY]
    bed.backend.end(bed.task(1).token, 1)
    await bed.go(30)
    assert [task.attempt for task in bed.tasks()] == [1, 2]
    assert len(bed.backend.living()) == 2
    bed.change(running=False)
    await bed.go(5)
    assert bed.phases() == bed.written() == [Phase.STOPPED, Phase.STOPPED]
    assert bed.backend.living() == []
    assert bed.backend.count("kill") == 0


async def test_silence_changes_no_state(bed: Bed) -> None:
    bed.up(group(count=3))
    await bed.all_ready()
    before = bed.tasks()
    bed.backend.silent = {"observe", "submit", "find", "cancel", "kill"}
    bed.backend.end(bed.task(2).token, 1)
    await bed.go(7200)
    assert bed.tasks() == before
    assert len(bed.backend.made) == 3
    assert bed.host.unreachable == {"fake": "fake does not answer observe"}
    bed.backend.silent = set()
    await bed.go(30)
    assert [task.attempt for task in bed.tasks()] == [1, 1, 2]
    assert bed.host.unreachable == {}


async def test_an_answer_that_nobody_understands_is_silence(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    other = bed.others["other"] = FakeBackend(bed.clock, "other")
    bed.new_host()
    bed.up(group(count=1))
    bed.up(group(count=1), name="w2", backend="other")
    await bed.all_ready()

    async def observe(_: object) -> Mapping[str, object]:
        raise KeyError("STATE")

    monkeypatch.setattr(other, "observe", observe)
    bed.backend.end(bed.task().token, 1)
    await bed.go(30)
    assert bed.task().attempt == 2
    assert bed.host.unreachable == {"other": "KeyError: 'STATE'"}
    assert bed.phases("w2") == [Phase.STARTING]


async def test_a_refused_submission_counts_and_ends(bed: Bed) -> None:
    bed.up(group(count=1, replace=Replace(max_failures=3, backoff_initial_s=10, backoff_max_s=60)))
    for attempt in range(1, 4):
        bed.backend.refuse[f"w.replica.0.{attempt}.u1"] = "no such partition"
    await bed.go(600)
    task = bed.task()
    assert (task.phase, task.attempt) == (Phase.FAILED, 3)
    assert task.reason == "given up after 3 failures, the last: refused: no such partition"
    assert bed.backend.count("submit") == 3
    bed.change()
    await bed.go()
    assert (bed.task().phase, bed.task().attempt) == (Phase.PENDING, 4)


async def test_a_lost_answer_never_makes_a_twin(bed: Bed) -> None:
    bed.backend.lose_answers = {"submit"}
    bed.up(group(count=2))
    await bed.go()
    assert bed.phases() == bed.written() == [Phase.SUBMITTING, Phase.SUBMITTING]
    assert "the answer of fake to submit was lost" in bed.task().reason
    assert len(bed.backend.living()) == 2
    await bed.go(60)
    assert len(bed.backend.made) == 2
    assert [name for name, _ in bed.backend.calls if name in ("submit", "find")] == ["submit", "find"]
    assert bed.phases() == [Phase.STARTING, Phase.STARTING]


async def test_what_was_never_made_is_made_under_its_first_name(bed: Bed) -> None:
    bed.backend.silent = {"submit"}
    bed.up(group(count=1))
    await bed.go(60)
    assert bed.backend.made == {}
    bed.backend.silent = {"find"}
    await bed.go(60)
    assert bed.backend.made == {}
    bed.backend.silent = set()
    await bed.go(10)
    assert bed.backend.living() == ["w.replica.0.1.u1"]
    assert bed.task().failures == 0


async def test_taken_down_while_nobody_knows_whether_it_was_made(bed: Bed) -> None:
    bed.backend.lose_answers = {"submit"}
    bed.up(group(count=1))
    await bed.go()
    bed.change(running=False)
    await bed.go(5)
    assert (bed.phases(), bed.backend.living()) == ([Phase.STOPPED], [])


async def test_an_unknown_backend_is_a_refusal(bed: Bed) -> None:
    bed.up(group(count=1, replace=Replace(max_failures=1)), backend="moon")
    await bed.go()
    assert bed.phases() == [Phase.FAILED]
    assert "this host has no backend 'moon'" in bed.task().reason


async def test_the_cause_of_an_end_is_kept(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.backend.end(bed.task().token, 7, evidence="last words", reason="ended with exit code 7")
    ended = bed.clock.now()
    await bed.go(2)
    (first, *_) = bed.journal.allocations("w")
    assert (first.exit_code, first.cause, first.evidence) == (7, Cause.APPLICATION, "last words")
    assert first.ended_at == ended


# Bugs stay where they are


async def test_a_bug_in_render_stops_one_workload_only(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    good = bed.backend.render

    def render(request: object) -> object:
        if request.workload.name == "w":  # type: ignore[attr-defined]
            raise ZeroDivisionError("of the backend")
        return good(request)  # type: ignore[arg-type]

    monkeypatch.setattr(bed.backend, "render", render)
    bed.up(group(count=1))
    bed.up(group(count=1), name="w2")
    await bed.go(3600)
    assert bed.phases("w2") == [Phase.STARTING]
    assert bed.phases() == [Phase.FAILED]
    assert bed.bugs() == ["ZeroDivisionError: of the backend"]
    assert bed.bugs("w2") == []


async def test_a_bug_in_submit_stops_one_workload_only(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    good = bed.backend.submit

    async def submit(rendered: object) -> object:
        if any(item.token.startswith("w.") for item in rendered):  # type: ignore[attr-defined]
            raise ValueError("cannot read the answer")
        return await good(rendered)  # type: ignore[arg-type]

    monkeypatch.setattr(bed.backend, "submit", submit)
    bed.up(group(count=1))
    bed.up(group(count=1), name="w2")
    await bed.go(600)
    assert bed.phases("w2") == [Phase.STARTING]
    assert bed.phases() == [Phase.SUBMITTING]
    assert bed.bugs() == ["ValueError: cannot read the answer"]
    monkeypatch.undo()
    await bed.go(10)
    assert bed.phases() == [Phase.STARTING]
    assert len(bed.backend.made) == 2


async def test_a_bug_in_deciding_stops_one_workload_only(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> object:
        if want.workload.name == "w":
            raise AssertionError("no such move")
        return decide(want, tasks, now)

    bed.up(group(count=1))
    await bed.all_ready()
    monkeypatch.setattr("remuda.supervise.loop.decide", broken)
    bed.up(group(count=1), name="w2")
    bed.backend.end(bed.task().token, 1)
    steps = 0
    end = bed.clock.now() + 600
    while bed.clock.now() < end:
        bed.clock.advance(await bed.host.step())
        steps += 1
    assert bed.phases("w2") == [Phase.STARTING]
    assert steps <= 601, "what is broken must not keep the machine busy"
    assert bed.bugs() == ["AssertionError: no such move"]
    monkeypatch.undo()
    await bed.go(10)
    assert (bed.task().phase, bed.task().attempt) == (Phase.STARTING, 2)


async def test_a_bug_in_cancelling_stops_one_workload_only(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    good = bed.backend.cancel

    async def cancel(handle: object, *, force: bool = False) -> None:
        if handle.token.startswith("w.") and not force:  # type: ignore[attr-defined]
            raise OSError("no space left")
        await good(handle, force=force)  # type: ignore[arg-type]

    bed.up(group(count=1))
    bed.up(group(count=1), name="w2")
    await bed.go()
    monkeypatch.setattr(bed.backend, "cancel", cancel)
    bed.change(running=False)
    bed.change("w2", running=False)
    await bed.go(5)
    assert (bed.phases(), bed.phases("w2")) == ([Phase.STOPPING], [Phase.STOPPED])
    assert bed.bugs() == ["OSError: no space left"]
    await bed.go(60)
    assert (bed.phases(), bed.backend.living()) == ([Phase.STOPPED], []), "what cannot be asked is killed in the end"


async def test_a_bug_in_a_follower_stops_nothing(bed: Bed) -> None:
    class Broken(Reconciler[str, str]):
        def due(self, at: Moment) -> Due[str, str]:
            raise LookupError(at.want.workload.name)

    bed.after.append(Broken())
    bed.new_host()
    bed.up(group(count=1))
    await bed.all_ready()
    await bed.go(60)
    assert bed.phases() == [Phase.READY]
    assert bed.bugs() == ["LookupError: w"]


# The journal


async def test_nothing_is_done_that_cannot_be_written(bed: Bed) -> None:
    def full(moment: str) -> None:
        if moment == "before record":
            raise RemudaError("the disk is full")

    bed.journal.hook = full
    bed.up(group(count=2))
    await bed.go(60)
    assert bed.backend.made == {}
    bed.journal.hook = lambda _: None
    await bed.go(10)
    assert bed.phases() == bed.written() == [Phase.STARTING, Phase.STARTING]
    assert [line.phase for line in bed.story()].count("submitting") == 2


async def test_what_could_not_be_written_is_asked_kindly_later(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.change(running=False)
    broken = True

    def full(moment: str) -> None:
        if moment == "before record" and broken:
            raise RemudaError("the disk is full")

    bed.journal.hook = full
    await bed.go(3600)
    assert bed.backend.count("cancel") + bed.backend.count("kill") == 0
    broken = False
    await bed.go(3)
    assert (bed.backend.count("cancel"), bed.backend.count("kill")) == (1, 0)
    assert bed.written() == [Phase.STOPPED]


async def test_what_a_removed_workload_left_unwritten_blocks_nobody(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.change(running=False)
    await bed.host.step()

    def full(moment: str) -> None:
        if moment == "before record":
            raise RemudaError("the disk is full")

    bed.journal.hook = full
    bed.clock.advance(1)
    await bed.host.step()
    assert (bed.phases(), bed.written()) == ([Phase.STOPPED], [Phase.STOPPING])
    bed.journal.hook = lambda _: None
    bed.store.remove_workload(bed.journal.fence, "w")
    bed.host.forget("w")
    bed.up(group(count=1), name="w2")
    await bed.go(5)
    assert bed.phases("w2") == [Phase.STARTING]


async def test_an_answer_that_was_not_written_is_found_by_the_next_host(bed: Bed) -> None:
    count = 0

    def fail_second(moment: str) -> None:
        nonlocal count
        count += moment == "before record"
        if moment == "before record" and count >= 2:
            raise RemudaError("the disk is full")

    bed.journal.hook = fail_second
    bed.up(group(count=1))
    await bed.host.step()
    assert (bed.phases(), bed.written()) == ([Phase.PENDING], [Phase.SUBMITTING])
    bed.new_host()
    await bed.go(5)
    assert bed.phases() == bed.written() == [Phase.STARTING]
    assert len(bed.backend.made) == 1


async def test_another_host_ends_this_one(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.go()
    old = bed.host
    taken = leases.acquire(bed.store, identify(1), 20.0, bed.clock.now() + 60)
    assert isinstance(taken, leases.Lease)
    bed.backend.end(bed.task().token, 1)
    bed.clock.advance(60)
    calls = len(bed.backend.calls)
    with pytest.raises(Fenced):
        await asyncio.wait_for(old.run(), 90)
    assert [name for name, _ in bed.backend.calls[calls:]] == ["observe"]


async def test_run_goes_on_when_it_is_woken(bed: Bed) -> None:
    running = asyncio.create_task(bed.host.run())
    try:
        await asyncio.sleep(0)
        bed.up(group(count=1))
        async with asyncio.timeout(90):
            while not bed.backend.living():
                await asyncio.sleep(0.001)
            bed.host.take(bed.backend.report(bed.backend.living()[0]))
            while bed.phases() != [Phase.READY]:
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# Time and size
# Time and size
# Time and size


async def test_two_hours_of_backoff_take_no_time(bed: Bed) -> None:
    rule = Replace(max_failures=100, backoff_initial_s=10, backoff_max_s=1800)
    bed.up(group(count=1, replace=rule))
    begin, clock_begin = time.perf_counter(), bed.clock.now()
    waits = []
    while bed.clock.now() - clock_begin < 7200:
        await bed.go()
        bed.backend.end(bed.backend.living()[0], 1)
        ended = bed.clock.now()
        while not bed.backend.living():
            bed.clock.advance(await bed.host.step())
        waits.append(bed.clock.now() - ended)
    assert time.perf_counter() - begin < 300
    assert all(8 <= wait <= 1800 for wait in waits)
    assert waits[:5] == sorted(waits[:5])
    assert bed.task().attempt == len(waits) + 1


async def test_a_backoff_is_over_exactly_when_it_is_due(bed: Bed) -> None:
    bed.up(group(count=1, replace=Replace(max_failures=9, backoff_initial_s=4000, backoff_max_s=4000)))
    await bed.go()
    bed.backend.end(bed.task().token, 1)
    await bed.go(1)
    due = bed.task().not_before
    bed.clock.advance(due - bed.clock.now() - 0.02)
    pause = await bed.host.step()
    assert (bed.task().attempt, round(pause, 3)) == (1, 0.02)
    bed.clock.advance(pause)
    await bed.host.step()
    assert bed.task().attempt == 2


async def test_stubborn_tasks_get_their_grace_and_are_then_killed(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.go()
    bed.backend.made[bed.task().token].is_stubborn = True
    bed.change(running=False)
    begin = bed.clock.now()
    while bed.backend.living():
        assert bed.clock.now() - begin < 60
        bed.clock.advance(await bed.host.step())
    assert bed.backend.count("cancel") == 1
    assert 15.0 <= bed.clock.now() - begin <= 17.0


async def test_silence_while_stopping_takes_nothing_from_the_grace(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.go()
    bed.backend.made[bed.task().token].is_stubborn = True
    bed.backend.silent = {"cancel", "kill"}
    bed.change(running=False)
    await bed.go(100)
    bed.backend.silent = set()
    begin = bed.clock.now()
    await bed.go(10)
    assert bed.backend.living(), "it was asked a moment ago"
    await bed.go(10)
    assert (bed.backend.living(), bed.phases()) == ([], [Phase.STOPPED])
    assert bed.backend.made["w.replica.0.1.u1"].asked == 1
    assert bed.clock.now() - begin == 20


async def test_a_thousand_tasks(bed: Bed) -> None:
    bed.up(group(count=1000))
    await bed.all_ready()
    assert bed.phases() == [Phase.READY] * 1000
    assert bed.backend.count("submit") == 1
    observed = bed.backend.count("observe")
    bed.clock.advance(1)
    await bed.host.step()
    assert bed.backend.count("observe") == observed + 1
    for token in bed.backend.living()[::2]:
        bed.backend.end(token, 1)
    await bed.go(30)
    assert len(bed.backend.living()) == 1000
    assert bed.backend.count("submit") < 500, "those that are due together are sent together"
    assert bed.twins() == []
    bed.change(running=False)
    await bed.go(5)
    assert set(bed.phases()) <= FINAL
    assert bed.backend.living() == []


async def test_a_backend_that_is_down_at_the_very_first_round(bed: Bed) -> None:
    bed.backend.silent = {"observe", "submit", "find"}
    bed.up(group(count=1))
    bed.new_host()
    await bed.go(300)
    assert bed.task().token
    bed.backend.silent = set()
    await bed.go(10)
    assert len(bed.backend.made) == 1


async def test_a_workload_that_is_removed_while_it_is_submitted(bed: Bed) -> None:
    bed.up(group(count=1))
    bed.up(group(count=1), name="w2")

    def remove(moment: str) -> None:
        if moment == "before submit" and "w" in bed.host.wants:
            bed.store.remove_workload(bed.journal.fence, "w")
            bed.host.forget("w")

    bed.backend.hook = remove
    await bed.go(5)
    assert (bed.phases(), bed.phases("w2"), bed.bugs("w2")) == ([], [Phase.STARTING], [])


async def test_what_ends_at_once_is_seen_at_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that had not begun is gone as soon as it is cancelled: nobody waits for the next look at the queue."""
    bed.up()
    await bed.all_ready()
    monkeypatch.setattr(bed.backend, "poll_s", 15.0, raising=False)
    bed.change(running=False)
    looks, asked = bed.backend.count("observe"), bed.clock.now()
    while (pause_s := await bed.host.step()) < 5.0 and bed.phases() != [Phase.STOPPED, Phase.STOPPED]:
        bed.clock.advance(pause_s)
    assert bed.phases() == [Phase.STOPPED, Phase.STOPPED]
    assert bed.clock.now() - asked < 0.5
    assert bed.backend.count("observe") - looks == 1
