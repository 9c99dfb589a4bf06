"""What is done beside the loop: one turn at a time, at once when there is news, and again after a pause."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import want

from remuda.supervise.reconciler import Due, Moment, Reconciler, Turns

if TYPE_CHECKING:
    from collections.abc import Mapping


class Work:
    """Turns that end when they are let; the pauses that they ask for are given beforehand."""

    def __init__(self, *pauses: float | Exception | None, is_finished: bool = False) -> None:
        self.turns = Turns(self.turn, "the work", is_finished=is_finished)
        self.pauses = list(pauses)
        self.begun = asyncio.Queue[int]()
        self.let = asyncio.Semaphore(0)
        self.done = 0

    async def turn(self) -> float | None:
        self.begun.put_nowait(self.done)
        await self.let.acquire()
        self.done += 1
        pause = self.pauses.pop(0) if self.pauses else None
        if isinstance(pause, Exception):
            raise pause
        return pause

    async def idle(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_turn_comes_when_it_is_woken_and_one_at_a_time() -> None:
    work = Work()
    await work.idle()
    assert work.begun.empty(), "nobody woke it"
    work.turns.wake()
    assert await work.begun.get() == 0
    for _ in range(3):
        work.turns.wake()  # while it is at it
    await work.idle()
    assert work.begun.empty()
    work.let.release()
    assert await work.begun.get() == 1, "news that came meanwhile are one more turn"
    work.let.release()
    await work.idle()
    assert (work.done, work.begun.empty()) == (2, True)
    await work.turns.close()


async def test_a_turn_comes_again_after_the_pause_it_asked_for() -> None:
    work = Work(0.01, 0.0, None)
    work.turns.wake()
    for number in range(3):
        assert await work.begun.get() == number
        work.let.release()
    await work.idle()
    assert work.begun.empty()
    await work.turns.close()


async def test_a_bug_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(ZeroDivisionError())
    work.turns.wake()
    await work.begun.get()
    work.let.release()
    await work.idle()
    work.turns.wake()
    assert await work.begun.get() == 1
    await work.turns.close()
    assert [record.message for record in caplog.records] == ["bug in what keeps the work"]


@pytest.mark.parametrize("is_finished", [False, True])
async def test_the_end(is_finished: bool) -> None:
    """What is to be finished is, with a last turn for what came meanwhile; else it is broken off."""
    work = Work(60.0, is_finished=is_finished)
    await work.turns.close()
    work.turns.wake()
    await work.begun.get()
    ending = asyncio.create_task(work.turns.close())
    await work.idle()
    assert ending.done() is not is_finished
    work.let.release()
    work.let.release()
    await ending
    assert work.done == (done := 2 if is_finished else 0)
    while not work.begun.empty():
        work.begun.get_nowait()
    work.turns.wake()
    assert await work.begun.get() == done, "it may be woken again"
    work.turns.cancel()


async def test_a_rest_ends_with_the_end_alone() -> None:
    rested = asyncio.Event()

    async def turn() -> None:
        await turns.rest(60.0)
        rested.set()

    turns = Turns(turn, "the work", is_finished=True)
    turns.wake()
    for _ in range(20):
        await asyncio.sleep(0)
    turns.wake()
    assert not rested.is_set()
    await turns.close()
    assert rested.is_set()


class Counted(Reconciler[str, int]):
    """Keeps how often a workload was begun."""

    def __init__(self) -> None:
        self.acted: list[Mapping[str, int]] = []
        self.kept = 0

    def due(self, at: Moment) -> Due[str, int]:
        is_so = self.kept == at.want.generation
        return Due({} if is_so else {at.want.workload.name: at.want.generation}, again_s=at.now)

    def act(self, actions: Mapping[str, int]) -> None:
        self.acted.append(actions)
        self.kept = max(actions.values())


async def test_what_is_as_it_shall_be_is_left_alone() -> None:
    one = Counted()
    for generation in (1, 1, 2):
        assert one.step(Moment(want(generation=generation), {}, 7.0)) == 7.0
    assert one.acted == [{"w": 1}, {"w": 2}]
    await one.close()
