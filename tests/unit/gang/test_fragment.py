"""Parts of a model that are averaged in turn, for an optimizer like torchft's; the calls are in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.gang.copies import new_url, store, together

from remuda.base.errors import InputError
from remuda.gang.fragment import Fragments
from remuda.gang.objects.layout import of_vector
from remuda.gang.outer import Momentum

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = [300, 5]


class Piece:
    def __init__(self, values: NDArray[np.float32]) -> None:
        self.values, self.size = values, len(values)

    def read(self, out: NDArray[np.float32]) -> None:
        out[:] = self.values

    def write(self, values: NDArray[np.float32]) -> None:
        self.values[:] = values


class Part:
    """A vector of parameters, the shared one, and the outer optimizer."""

    def __init__(self, size: int) -> None:
        self.layout = of_vector(size)
        self.original, self.local = np.zeros(size, np.float32), np.zeros(size, np.float32)
        self.outer = Momentum(0.7, 0.9)

    def step(self, mean: NDArray[np.float32]) -> None:
        ahead = self.original - self.local
        self.outer.step(self.original, mean)
        self.local = self.original - ahead

    def state(self) -> dict[str, NDArray[np.float32]]:
        return {"parameters": self.original.copy(), **{name: one.copy() for name, one in self.outer.state().items()}}

    def load(self, arrays: Any) -> None:
        ahead = self.original - self.local
        self.original = arrays["parameters"].copy()
        self.outer.load({name: one.copy() for name, one in arrays.items() if name != "parameters"})
        self.local = self.original - ahead


class Trainer:
    """`torchft.local_sgd.DiLoCo` 0.2.0, as far as it calls its manager (`_step_post_hook`, `perform_sync`)."""

    def __init__(self, url: str, rank: int, parts: int = 2, world_size: int = 2, **options: Any) -> None:
        self.store = store(url, rank, world_size, **options)
        self.rounds = Fragments(self.store, parts)
        self.parts = [Part(sum(SIZES) + number) for number in range(parts)]
        for part in self.parts:
            self.rounds.add(part)

    def sync(self, step: float) -> bool:
        for part in self.parts:
            part.local -= np.float32(step)
        self.rounds.start_quorum()
        part = self.parts[self.rounds.current_step() % len(self.parts)]
        update = part.original - part.local
        pieces = [Piece(update[:300]), Piece(update[300:])]
        turn = self.rounds.turn()
        for piece in pieces:
            turn.collect(piece)
        for _ in pieces:
            self.rounds.finish(turn)
        part.local = part.original.copy()
        if self.rounds.should_commit():
            part.outer.step(part.original, update)
            part.local = part.original.copy()
        return self.rounds.should_commit()

    def until(self, rounds: int) -> list[NDArray[np.float32]]:
        while self.rounds.current_step() < rounds:
            self.sync(1 + self.store.rank + self.rounds.current_step())
        return [part.original for part in self.parts]


@pytest.mark.parametrize("parts", [1, 3])
def test_parts_take_turns_and_are_the_same_everywhere(parts: int) -> None:
    url = new_url()
    first, second = together(lambda rank: Trainer(url, rank, parts, state_every=2).until(7), 2)
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one, other)
        assert one.any()


@pytest.mark.parametrize("parts", [1, 2])
def test_one_that_comes_back_has_parameters_and_momentum_of_the_others(parts: int) -> None:
    url = new_url()

    def copy(rank: int) -> list[NDArray[np.float32]]:
        if rank:
            Trainer(url, rank, parts, state_every=3).until(5)
        return Trainer(url, rank, parts, state_every=3).until(9)

    first, second = together(copy, 2)
    assert all(np.array_equal(one, other) for one, other in zip(first, second, strict=True))


def test_a_round_that_fails_is_not_committed_and_its_update_is_owed() -> None:
    url = new_url()
    early = Trainer(url, 0, 1, timeout=0.01)
    for _ in range(2):
        assert not early.sync(2.0)
        assert early.rounds.errored() is not None
        assert not early.parts[0].local.any(), "training goes on from the shared parameters"
    other = store(url, 1, 2)
    other.open(early.parts[0].layout)
    other.close()
    assert early.sync(3.0)
    # The first failed update was in round 0, the second one and this one in round 1: nothing is lost.
    expected = np.zeros_like(early.parts[0].original)
    momentum = Momentum(0.7, 0.9)
    for given in (2.0, 5.0):
        momentum.step(expected, np.full_like(expected, given))
    np.testing.assert_allclose(early.parts[0].original, expected)
    assert early.rounds.num_participants() == 1


def test_one_round_for_all_tensors_of_a_part() -> None:
    one = Trainer(new_url(), 0, 1, world_size=1)
    puts = one.store.counts.puts
    assert one.sync(1.0)
    assert one.store.counts.puts - puts == 4, "contribution, manifest, shard and commit"


def test_tensors_that_are_not_the_part_are_refused() -> None:
    one = Trainer(new_url(), 0, 1, world_size=1)
    turn = one.rounds.turn()
    turn.collect(Piece(np.zeros(4, np.float32)))
    with pytest.raises(InputError, match="4 values were given of a part that has 305"):
        one.rounds.finish(turn)


def test_who_registers_no_fragment_is_refused() -> None:
    with pytest.raises(InputError, match="0 of 2 fragments were registered"):
        Fragments(store(new_url(), 0, 1), 2).turn()
