"""Seats of a pack: everybody has one, nodes are even, and no GPU has two owners."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.plan.placing.seats import most_on_one, node_counts, seated


@pytest.mark.parametrize(
    ("count", "per_node", "nodes"),
    [
        pytest.param(1, 0, [1], id="one"),
        pytest.param(3, 0, [1, 2, 3], id="three"),
        pytest.param(4, 0, [1, 2, 4], id="three nodes would have one with two as well"),
        pytest.param(4, 1, [4], id="one a node"),
        pytest.param(9, 4, [3, 5, 9], id="four a node at most"),
        pytest.param(2, 8, [1, 2], id="more than there are"),
    ],
)
def test_which_numbers_of_nodes_are_tried(count: int, per_node: int, nodes: list[int]) -> None:
    assert list(node_counts(count, per_node)) == nodes


def test_three_ranks_of_two_gpus_on_two_nodes() -> None:
    pack = seated("rank", 3, 2, 2)
    assert [(seat.index, seat.node, seat.place, seat.gpu) for seat in pack.seats] == [
        (0, 0, 0, 0), (1, 0, 1, 2), (2, 1, 0, 0),
    ]  # fmt: skip
    assert (pack.nodes, pack.per_node) == (2, 2)


@given(count=st.integers(1, 300), data=st.data(), gpus=st.integers(0, 8))
def test_everybody_has_a_seat_of_his_own(count: int, data: st.DataObject, gpus: int) -> None:
    nodes = data.draw(st.integers(1, count))
    pack = seated("rank", count, nodes, gpus)
    assert [seat.index for seat in pack.seats] == list(range(count))
    on = Counter(seat.node for seat in pack.seats)
    assert sorted(on) == list(range(nodes))
    assert max(on.values()) == pack.per_node <= min(on.values()) + 1
    owned = [(seat.node, seat.gpu + more) for seat in pack.seats for more in range(gpus)]
    assert len(owned) == len(set(owned))
    assert all(gpu < gpus * pack.per_node for _, gpu in owned)


@given(count=st.integers(1, 400), per_node=st.integers(0, 400))
def test_each_try_asks_for_less_of_a_node(count: int, per_node: int) -> None:
    tried = list(node_counts(count, per_node))
    sizes = [most_on_one(count, nodes) for nodes in tried]
    assert tried[-1] == count
    assert sizes == sorted(set(sizes), reverse=True)
    assert all(size <= (per_node or count) for size in sizes)
    assert {most_on_one(count, nodes) for nodes in range(1, count + 1)} >= set(sizes)
