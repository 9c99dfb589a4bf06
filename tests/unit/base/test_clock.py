"""`now` goes on evenly whatever is done to the machine's clock; gaps are counted."""

from __future__ import annotations

import asyncio
import time

import pytest

from remuda.base import clock as clocks
from remuda.base.clock import SystemClock, lived


class Machine:
    """A machine whose two clocks a test moves."""

    def __init__(self) -> None:
        self.wall, self.up = 1_000_000.0, 50.0

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    one = Machine()
    monkeypatch.setattr(time, "time", lambda: one.wall)
    monkeypatch.setattr(clocks, "steady", lambda: one.up)
    return one


@pytest.mark.parametrize("by", [3600.0, -3600.0, 86400.0, -86400.0, 2.0])
def test_a_clock_that_is_set_shows_only_when_it_is_followed(machine: Machine, by: float) -> None:
    clock = SystemClock()
    machine.go(10)
    machine.wall += by
    assert (clock.now(), clock.drift()) == (1_000_010.0, by)
    clock.follow(by)
    assert (clock.now(), clock.drift()) == (machine.wall, 0.0)


def test_what_comes_of_looking_is_no_drift(machine: Machine) -> None:
    clock = SystemClock()
    machine.wall += 1.0
    assert clock.drift() == 0.0


def test_who_stands_still_between_two_looks_looks_again(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    stalls = iter([5.0, 0.0, 5.0])

    def wall() -> float:
        at = machine.wall
        machine.go(next(stalls, 0.0))
        return at

    monkeypatch.setattr(time, "time", wall)
    clock = SystemClock()
    assert clock.offset == 1_000_000.0 - 50.0
    assert clock.drift() == 0.0
    assert clock.drift() == 0.0


def test_the_next_one_of_the_same_boot_finds_out(machine: Machine) -> None:
    first = SystemClock()
    machine.go(100)
    machine.wall -= 86400
    assert SystemClock(first.offset).drift() == -86400


async def test_gaps_are_counted_while_turns_are_taken(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    machine.go(100)
    assert clock.missed() == 0.0, "nobody looks, so nobody knows"
    pauses = iter([1.0, 1.75, 121.0, 1.0])
    done = asyncio.Event()

    async def sleep(_: float) -> None:
        pause = next(pauses, None)
        if pause is None:
            done.set()
            await asyncio.Event().wait()
        machine.go(pause or 0.0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    keeper = asyncio.create_task(clock.keep())
    await done.wait()
    keeper.cancel()
    assert clock.missed() == 120.0
    before = lived(clock)
    clock.follow(86400)
    machine.go(1)
    assert lived(clock) == pytest.approx(before + 1)


def test_it_is_the_machines_clock() -> None:
    before = time.time()
    now = SystemClock().now()
    assert before - 1.0 < now < time.time() + 1.0
