"""Work that can wait: all of it is done, in its order, and others get their turn between slices."""

from __future__ import annotations

import asyncio

import pytest

from remuda.bench.generator import background
from remuda.bench.generator.background import Chores


async def test_all_is_done_in_order() -> None:
    made, found = Chores(), []
    for n in range(100):
        made.add(lambda n=n: found.append(n))  # type: ignore[misc]
    await made.settle()
    made.add(lambda: found.append(100))
    await made.settle()
    assert found == list(range(101))
    await Chores().settle()


async def test_others_get_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_SLICE_NS", 1)
    made, found = Chores(), []
    for n in range(3):
        made.add(lambda n=n: found.append(n))  # type: ignore[misc]
    turns = []
    while len(found) < 3:
        await asyncio.sleep(0)
        turns.append(len(found))
    assert sorted(set(turns) - {0}) == [1, 2, 3]


async def test_a_failure_is_not_lost() -> None:
    made, found = Chores(), list[int]()
    made.add(lambda: found.remove(1))
    with pytest.raises(ValueError, match="not in list"):
        await made.settle()
    with pytest.raises(ValueError, match="not in list"):
        made.add(lambda: None)
