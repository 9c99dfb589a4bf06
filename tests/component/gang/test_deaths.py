"""A rank is killed at each kind of put, before it took effect and after: nobody else notices, and nothing is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.component.gang.drill import KINDS, Drill, Place
from tests.component.gang.rank import RANKS, ROUNDS
from tests.fakes.s3 import Fault, S3Server

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE, AFTER = Fault.KILL_BEFORE, Fault.KILL_AFTER


def both(*kinds: str, first: int = 1) -> list[Place]:
    """Killed before one put of each kind, and after the next one."""
    return [Place(kind, fault, first + index) for kind in kinds for index, fault in enumerate((BEFORE, AFTER))]


RUNS: Final = {
    "coming and going": both("probe", "RUN.json", "members", "left", "start part", "start"),
    "a round": both("contribution", "manifest", "shard", "commit", first=3) + both("join"),
    "a state": both("state part", "state"),
    "a state of whoever is quick": [Place("contribution", AFTER, 5), Place("state part", AFTER, 4)],
}
OPTIONS: Final = {"a state of whoever is quick": {"quorum": 2, "grace": 2.0}}


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as one:
        yield one


@pytest.mark.parametrize("name", RUNS)
def test_nobody_else_notices_a_death(server: S3Server, name: str) -> None:
    Drill(server, name.replace(" ", "-"), RUNS[name], OPTIONS.get(name, {})).run()


def test_one_that_dies_in_the_last_round_and_is_back_when_the_others_have_ended(server: S3Server) -> None:
    last = Place("contribution", AFTER, RANKS * ROUNDS)
    Drill(server, "late", [last], {"take_over": 0.2}, late=True).run()


def test_every_place_is_among_them() -> None:
    there = {(place.kind, place.fault) for places in RUNS.values() for place in places}
    assert there == {(kind, fault) for kind in KINDS for fault in (BEFORE, AFTER)}
