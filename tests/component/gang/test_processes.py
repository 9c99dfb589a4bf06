"""Copies as processes average over a store: the same bytes everywhere, whoever dies or is late."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.component.gang.conftest import LIMIT_S, said
from tests.component.gang.worker import vector
from tests.conftest import until

if TYPE_CHECKING:
    from tests.component.gang.conftest import Place

N = 2000


def mean_of(ranks: list[int], number: int) -> str:
    """The mean of these ranks' vectors, summed in their order; SHA-256 of its bytes."""
    return mean_of_vectors([vector(rank, number, N) for rank in ranks])


def mean_of_asked(numbers: list[int]) -> str:
    """The same of all ranks, each with the vector of a round of its own."""
    return mean_of_vectors([vector(rank, number, N) for rank, number in enumerate(numbers)])


def mean_of_vectors(vectors: list[Any]) -> str:
    total = np.zeros(N, np.float32)
    for one in vectors:
        total += one
    return hashlib.sha256((total / np.float32(len(vectors))).tobytes()).hexdigest()


def test_four_processes_average_to_the_bit(place: Place) -> None:
    copies = [place.start("worker.py", rank, 4, 3, N, "fp32", 0, "{}") for rank in range(4)]
    told = [said(copy) for copy in copies]
    for *rounds, _ in told:
        assert [one["sha"] for one in rounds] == [mean_of([0, 1, 2, 3], number) for number in range(3)]
        assert all(one["took_part"] for one in rounds)


#: Puts of a copy: two of the probe, RUN.json, members, then c, manifest, m, COMMIT of round 0 where it comes last.
@pytest.mark.parametrize("put", [5, 6, 8, 9])
def test_one_that_is_killed_and_started_again_costs_nobody_anything(place: Place, put: int) -> None:
    rounds = 4
    others = [place.start("worker.py", rank, 4, rounds, N, "fp32", 0, '{"take_over": 2}') for rank in range(3)]
    dying = place.start("worker.py", 3, 4, rounds, N, "fp32", put, "{}")
    dying.communicate(timeout=LIMIT_S)
    assert dying.returncode == -9
    again = place.start("worker.py", 3, 4, rounds, N, "fp32", 0, "{}")
    for *told, _ in [said(copy) for copy in others]:
        assert len({one["pid"] for one in told}) == 1, "survivors are the same processes"
        assert [one["round"] for one in told] == list(range(rounds))
        assert [one["sha"] for one in told] == [mean_of([0, 1, 2, 3], number) for number in range(rounds)]
    *told, _ = said(again)
    assert [one["sha"] for one in told] == [mean_of([0, 1, 2, 3], one["round"]) for one in told]


def test_all_go_on_where_all_were_killed(place: Place) -> None:
    first = [place.start("worker.py", rank, 3, 9, N, "fp32", 12 + rank, '{"take_over": 1}') for rank in range(3)]
    until(lambda: any(copy.poll() is not None for copy in first), "one has died before its put", LIMIT_S)
    # Whether the others come to a put of their own death, or wait for the dead one, is a matter of time: end them all.
    for copy in first:
        copy.kill()
        copy.communicate(timeout=LIMIT_S)
    assert [copy.returncode for copy in first] == [-9] * 3
    second = [place.start("worker.py", rank, 3, 9, N, "fp32", 0, '{"take_over": 1}') for rank in range(3)]
    stories = [told for *told, _ in [said(copy) for copy in second]]
    assert all(told[0]["asked"] > 0 for told in stories)
    # What the first lives gave to a round counts. Where it did, and the others had that round before the second life
    # asked for it, what the second life gave counts in the round after.
    asked = [{one["round"]: one["asked"] for one in told} for told in stories]
    for told in stories:
        means = [mean_of_asked([one.get(each["round"], each["round"]) for one in asked]) for each in told]
        assert [one["sha"] for one in told] == means


def test_a_straggler_is_left_out_and_what_it_gave_comes_later(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rank 2 begins when the others have had two rounds; then all three go on together."""
    from tests.component.gang.conftest import Place

    place = Place(f"file://{tmp_path_factory.mktemp('late')}/store", {})
    options = json.dumps({"quorum": 2, "grace": 0.2})
    early = [place.start("worker.py", rank, 3, 2, N, "fp32", 0, options) for rank in range(2)]
    for *told, _ in [said(copy) for copy in early]:
        assert [one["sha"] for one in told] == [mean_of([0, 1], number) for number in range(2)]
    late = place.start("worker.py", 2, 3, 4, N, "fp32", 0, options)
    *told, _ = said(late)
    assert [(one["round"], one["took_part"]) for one in told] == [(2, True), (3, True)]
