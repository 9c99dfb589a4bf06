"""Whatever order, deaths, stalls and lost answers: the same bytes on all ranks, nothing lost, nothing counted twice."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.gang.contents import contribution, marks
from tests.unit.gang.copies import new_url
from tests.unit.gang.stage import Mishap, Stage, Staged

from remuda.gang import ObjectStoreAllReduce
from remuda.gang.objects.layout import of_vector

if TYPE_CHECKING:
    from tests.unit.gang.stage import Copy

RANKS, ROUNDS, GIVES, STEP = 3, 4, 40, 10
ELEMENTS = RANKS * GIVES * STEP
"""Each vector that is given has a place of its own, so sums tell what is in them."""


class Play:
    """One run on the stage, and what an onlooker writes down."""

    def __init__(self, seed: int, mishaps: dict[tuple[int, int], dict[int, Mishap]], **options: Any) -> None:
        random.seed(seed)  # Of the pauses between two looks.
        self.url, self.options = new_url(), options
        self.stage = Stage(self._act, RANKS, mishaps, seed)
        self.given = [0] * RANKS
        self.complete: set[int] = set()
        self.ranks: dict[int, list[int]] = {}
        self.means: dict[int, set[bytes]] = defaultdict(set)
        self.through: set[int] = set()
        self.held: dict[int, set[int]] = {}

    def _note(self, path: str, data: bytes) -> None:
        """What the store has taken."""
        if re.search(r"/c/\d+$", path):
            self.complete |= marks(contribution(data, ELEMENTS, RANKS), STEP)
        elif found := re.search(r"r(\d+)/manifest$", path):
            # A copy that slept through the clearing away of a round may write a second one, and must notice.
            self.ranks.setdefault(int(found[1]), json.loads(data.splitlines()[0])["ranks"])

    def _act(self, stage: Stage, copy: Copy) -> None:
        store = ObjectStoreAllReduce(
            self.url, run_id="run", rank=copy.rank, world_size=RANKS, timeout=100_000,
            clock=lambda: stage.now, sleep=lambda seconds: stage.wait(copy, seconds), **self.options,
        )  # fmt: skip
        store._bucket.raw = Staged(store._bucket.raw, stage, copy, self._note)
        follower = Total(self)
        store.open(of_vector(ELEMENTS), follower)
        while store.round < ROUNDS:
            stage.wait(copy, 10.0)  # It trains.
            store.reduce(None if store.has_open_round else self._vector(copy.rank))
        self.held[copy.rank] = marks(store.residual, STEP)
        self.through.add(copy.rank)
        store.close()

    def _vector(self, rank: int) -> Any:
        vector = np.zeros(ELEMENTS, np.float32)
        vector[(rank * GIVES + self.given[rank]) * STEP] = 1.0
        self.given[rank] += 1
        return vector


class Total:
    """Follows the rounds by adding their means."""

    def __init__(self, play: Play) -> None:
        self.total, self._play = np.zeros(ELEMENTS, np.float32), play

    def apply(self, number: int, mean: Any) -> None:
        self._play.means[number].add(mean.tobytes())
        self.total += mean

    def state(self) -> Any:
        return {"total": self.total}

    def load(self, arrays: Any) -> None:
        self.total = arrays["total"]


MISHAPS = st.dictionaries(
    st.tuples(st.integers(0, RANKS - 1), st.integers(0, 2)),
    st.dictionaries(st.integers(1, 60), st.sampled_from(list(Mishap)), min_size=1, max_size=3),
    max_size=4,
)
OPTIONS = st.sampled_from([{}, {"quorum": 2}, {"quorum": 1, "grace": 20.0}, {"keep": 1, "state_every": 2, "quorum": 2}])


@settings(max_examples=40)
@given(seed=st.integers(0, 1000), mishaps=MISHAPS, options=OPTIONS)
@example(seed=0, mishaps={}, options={})
@example(  # Its contribution is taken and cleared away before it hears that it was written.
    seed=0,
    mishaps={
        (1, 0): {56: Mishap.STALL, 32: Mishap.DIE_BEFORE, 59: Mishap.READ_LESS},
        (0, 0): {27: Mishap.STALL, 19: Mishap.STALL},
    },
    options={"keep": 1, "state_every": 2, "quorum": 2},
)
@example(  # It stalls until only the COMMIT and the state of its round are left.
    seed=105,
    mishaps={(2, 0): {35: Mishap.STALL, 34: Mishap.STALL}, (1, 0): {46: Mishap.DIE_BEFORE, 48: Mishap.STALL}},
    options={"quorum": 2},
)
def test_any_order(seed: int, mishaps: dict[tuple[int, int], dict[int, Mishap]], options: dict[str, Any]) -> None:
    check(Play(seed, mishaps, **options))


def check(play: Play) -> None:
    """Let it run, and look at what came of it."""
    play.stage.run()
    assert len(play.through) == RANKS
    assert all(len(means) == 1 for means in play.means.values()), "ranks hold other bytes"
    summed: set[int] = set()
    for number, (mean,) in play.means.items():
        in_it = marks(np.frombuffer(mean, np.float32) * len(play.ranks[number]), STEP)
        assert not in_it & summed, "in two sums"
        summed |= in_it
    still_held = set().union(*play.held.values())
    assert not summed & still_held, "in a sum and still owed"
    assert play.complete <= summed | still_held, "lost"
