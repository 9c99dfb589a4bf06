"""Copies as processes average over a store: the same bytes everywhere, whoever dies or is late."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from tests.component.gang.conftest import said
from tests.component.gang.worker import vector

if TYPE_CHECKING:
    from tests.component.gang.conftest import Place

N = 2000


def mean_of(ranks: list[int], number: int) -> str:
    """The mean of these ranks' vectors, summed in their order; SHA-256 of its bytes."""
    total = np.zeros(N, np.float32)
    for rank in ranks:
        total += vector(rank, number, N)
    return hashlib.sha256((total / np.float32(len(ranks))).tobytes()).hexdigest()


def test_four_processes_average_to_the_bit(place: Place) -> None:
    copies = [place.start("worker.py", rank, 4, 3, N, "fp32", 0, "{}") for rank in range(4)]
    told = [said(copy) for copy in copies]
    for *rounds, _ in told:
        assert [one["sha"] for one in rounds] == [mean_of([0, 1, 2, 3], number) for number in range(3)]
        assert all(one["took_part"] for one in rounds)
