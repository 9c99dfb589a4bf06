"""The decisions of a round, from what objects are there: a table, and any order of looks and deaths."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.gang.machine import (
    Behind,
    Commit,
    Contribute,
    Done,
    Look,
    Propose,
    ReadManifest,
    Reduce,
    RoundView,
    Step,
    Take,
    Terms,
    Wait,
    decide,
)

ALL, FOUR = frozenset(range(4)), (0, 1, 2, 3)
TERMS = Terms(rank=1, shards=4, quorum=3, grace_s=60, take_over_s=30)
LATER = RoundView(here=ALL, expected=ALL, manifest=FOUR, manifest_there=True, looked=True)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        pytest.param(RoundView(frozenset(), ALL), Contribute(), id="nothing is there"),
        pytest.param(RoundView(frozenset({1}), ALL), Wait((0, 2, 3), "contributions"), id="alone"),
        pytest.param(RoundView(frozenset({0, 1, 2}), ALL, quorum_s=59), Wait((3,), "contributions"), id="grace"),
        pytest.param(
            RoundView(frozenset({0, 1, 2}), ALL, quorum_s=60),
            Propose((0, 1, 2), "a quorum of 3 and 60 s of grace"), id="grace is over",
        ),
        pytest.param(RoundView(ALL, ALL), Propose(FOUR, "all ranks are here"), id="everybody"),
        pytest.param(RoundView(frozenset({0}), ALL, manifest_there=True), ReadManifest(), id="too late to contribute"),
        pytest.param(replace(LATER, looked=False), Look(), id="is it still there"),
        pytest.param(LATER, Reduce(1), id="its own shard"),
        pytest.param(replace(LATER, shards=frozenset({1, 2}), held=frozenset({1})), Take((2,)), id="take what is new"),
        pytest.param(
            replace(LATER, shards=frozenset({1}), held=frozenset({1})), Wait((0, 2, 3), "reduced shards"), id="wait",
        ),
        pytest.param(
            replace(LATER, shards=frozenset({1, 2, 3}), held=frozenset({1, 2, 3}), quiet_s=30),
            Reduce(0), id="take over",
        ),
        pytest.param(replace(LATER, shards=ALL, held=ALL), Commit(), id="commit"),
        pytest.param(replace(LATER, shards=ALL, held=ALL, committed=True), Done(took_part=True), id="done"),
        pytest.param(
            replace(LATER, manifest=(0, 2, 3), shards=ALL, held=ALL, committed=True),
            Done(took_part=False), id="left out",
        ),
        pytest.param(replace(LATER, behind=True), Behind(), id="behind"),
    ],
)  # fmt: skip
def test_decide(view: RoundView, expected: Step) -> None:
    assert decide(TERMS, view) == expected


class Toy:
    """A round as a set of names; ranks see it when they look, and may die between any two steps."""

    def __init__(self, ranks: int, quorum: int | None) -> None:
        self.ranks, self.quorum = ranks, quorum
        self.there: dict[str, Any] = {}
        self.views: dict[int, RoundView] = {}
        self.results: dict[int, bool] = {}

    def look(self, rank: int, waited_s: float) -> None:
        def numbers(kind: str) -> frozenset[int]:
            return frozenset(int(name[1:]) for name in self.there if name[0] == kind and name[1:].isdigit())

        fresh = RoundView(numbers("c"), frozenset(range(self.ranks)))
        self.views[rank] = replace(
            self.views.get(rank, fresh), here=numbers("c"), shards=numbers("m"),
            manifest_there="manifest" in self.there, committed="COMMIT" in self.there, quorum_s=waited_s,
            quiet_s=waited_s,
        )  # fmt: skip

    def step(self, rank: int) -> Step:
        view = self.views[rank]
        step = decide(Terms(rank, self.ranks, self.quorum, 60, 30), view)
        match step:
            case Contribute():
                self.there.setdefault(f"c{rank}", rank)
            case Propose():
                assert set(step.ranks) <= view.here
                self.there.setdefault("manifest", step.ranks)
            case ReadManifest():
                view = replace(view, manifest=self.there["manifest"])
            case Look():
                view = replace(view, looked=True)
            case Reduce():
                self.there.setdefault(f"m{step.shard}", self.there["manifest"])
            case Take():
                view = replace(view, held=view.held | set(step.shards))
            case Commit():
                assert all(f"m{shard}" in self.there for shard in range(self.ranks))
                self.there.setdefault("COMMIT", self.there["manifest"])
            case Done():
                self.results[rank] = step.took_part
            case _:
                pass
        self.views[rank] = view
        return step


@settings(max_examples=200)
@given(st.integers(1, 5), st.booleans(), st.integers(0, 10**6), st.integers(0, 60))
def test_any_order_and_any_deaths_end_in_one_manifest(ranks: int, has_quorum: bool, seed: int, chaos: int) -> None:
    order, toy = random.Random(seed), Toy(ranks, max(1, ranks - 1) if has_quorum else None)
    for turn in range(chaos + 400):
        rank = order.randrange(ranks)
        if turn < chaos and order.random() < 0.2:
            toy.views.pop(rank, None)  # It dies, and begins again knowing nothing.
        if rank not in toy.results:
            toy.look(rank, order.choice([0, 61]) if turn < chaos else 61)
            toy.step(rank)
    assert set(toy.results) == set(range(ranks))
    assert toy.results == {rank: rank in toy.there["manifest"] for rank in range(ranks)}
    assert {toy.there[f"m{shard}"] for shard in range(ranks)} == {toy.there["manifest"]}
