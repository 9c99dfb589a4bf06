"""Seats of a pack: everybody has one, nodes are even, and no GPU has two owners."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.plan.placing.seats import Row, most_on_one, node_counts, seated, seated_rows


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
    assert pack.nodes == 2


@given(count=st.integers(1, 300), data=st.data(), gpus=st.integers(0, 8))
def test_everybody_has_a_seat_of_his_own(count: int, data: st.DataObject, gpus: int) -> None:
    nodes = data.draw(st.integers(1, count))
    pack = seated("rank", count, nodes, gpus)
    assert [seat.index for seat in pack.seats] == list(range(count))
    on = Counter(seat.node for seat in pack.seats)
    assert sorted(on) == list(range(nodes))
    assert max(on.values()) == most_on_one(count, nodes) <= min(on.values()) + 1
    owned = [(seat.node, seat.gpu + more) for seat in pack.seats for more in range(gpus)]
    assert len(owned) == len(set(owned))
    assert all(gpu < gpus * max(on.values()) for _, gpu in owned)


@given(count=st.integers(1, 400), per_node=st.integers(0, 400))
def test_each_try_asks_for_less_of_a_node(count: int, per_node: int) -> None:
    tried = list(node_counts(count, per_node))
    sizes = [most_on_one(count, nodes) for nodes in tried]
    assert tried[-1] == count
    assert sizes == sorted(set(sizes), reverse=True)
    assert all(size <= (per_node or count) for size in sizes)
    assert {most_on_one(count, nodes) for nodes in range(1, count + 1)} >= set(sizes)


P, D, F = (partial(Row, name) for name in "pdf")


@pytest.mark.parametrize(
    ("rows", "seats"),
    [
        pytest.param([P(2, gpus=2), D(1, gpus=4), F(1, beside=True)], "p0@0.0 p1@0.2 d0@1.0 f0@0.4",
                     id="a role has nodes of its own, the frontend none"),
        pytest.param([P(3, gpus=3)], "p0@0.0 p1@1.0 p2@2.0", id="what is left of a node is too little"),
        pytest.param([P(2, gpus=4, nodes=2), D(1, gpus=4, nodes=3)], "p0@0.0 p1@2.0 d0@4.0", id="over nodes"),
        pytest.param([P(1, gpus=3), D(2, gpus=1, beside=True)], "p0@0.0 d0@0.3 d1@1.0", id="beside, and one too many"),
        pytest.param([P(1, gpus=2), D(1, gpus=4, nodes=2, beside=True)], "p0@0.0 d0@1.0",
                     id="over nodes it has them to itself"),
        pytest.param([P(3, over=2), D(1)], "p0@0.0 p1@1.0 p2@0.0 d0@2.0", id="without GPUs they are shared out"),
        pytest.param([P(2, over=9)], "p0@0.0 p1@1.0", id="no node stays empty"),
        pytest.param([P(2, gpus=4), F(3, beside=True)], "p0@0.0 p1@1.0 f0@0.4 f1@1.4 f2@0.4", id="several frontends"),
    ],
)  # fmt: skip
def test_seats_of_several_groups(rows: list[Row], seats: str) -> None:
    pack = seated_rows(rows, 4)
    assert " ".join(f"{one.group}{one.index}@{one.node}.{one.gpu}" for one in pack.seats) == seats


@st.composite
def asked(draw: st.DrawFn) -> tuple[list[Row], int]:
    each = draw(st.integers(1, 8))
    rows: list[Row] = []
    for name in "abcd"[: draw(st.integers(1, 4))]:
        nodes = draw(st.integers(1, 3))
        gpus = each if nodes > 1 else draw(st.integers(0, each))
        beside = bool(rows) and draw(st.booleans())
        rows.append(Row(name, draw(st.integers(1, 9)), gpus, nodes, draw(st.integers(1, 4)), beside))
    return rows, each


@given(asked())
def test_no_gpu_of_several_groups_has_two_owners(case: tuple[list[Row], int]) -> None:
    rows, each = case
    pack, by_name = seated_rows(rows, each), {row.group: row for row in rows}
    assert [(seat.group, seat.index) for seat in pack.seats] == [
        (row.group, n) for row in rows for n in range(row.count)
    ]
    owned, places = [], []
    for seat in pack.seats:
        row = by_name[seat.group]
        assert 0 <= seat.gpu <= seat.gpu + row.gpus <= each
        nodes = range(seat.node, seat.node + row.nodes)
        owned += [(node, seat.gpu + gpu) for node in nodes for gpu in range(row.gpus)]
        places.append((seat.node, seat.place))
    assert len(owned) == len(set(owned))
    assert len(places) == len(set(places))
    used = {node for seat in pack.seats for node in range(seat.node, seat.node + by_name[seat.group].nodes)}
    assert used == set(range(pack.nodes)), "no node is asked for in vain"
