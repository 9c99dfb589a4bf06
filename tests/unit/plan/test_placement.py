"""Placement: the documented derivations, and that no layout contradicts itself after any override."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from remuda.base.errors import InputError
from remuda.plan.context import Context
from remuda.plan.derive import derive, layout
from remuda.plan.placing.placement import PlacementOptions, ReplicaLayout, place_cluster, place_local
from remuda.specs.swarm import SwarmSpec

SLURM = {"type": "slurm", "partition": "p", "account": "a", "qos": "q"}
small = st.integers(1, 20)
maybe = st.none() | small
asked_of = st.builds(
    PlacementOptions,
    replicas=small,
    gpus_per_replica=st.none() | st.integers(0, 32),
    gpus_per_node=st.integers(1, 8),
    replicas_per_node=maybe,
    nodes=maybe,
    cpus_per_task=maybe,
)


@pytest.mark.parametrize(
    ("asked", "nodes", "per_node", "cpus"),
    [
        pytest.param(PlacementOptions(1), 1, 1, 32, id="one of 4 GPUs"),
        pytest.param(PlacementOptions(2, 16), 8, None, 32, id="two over four nodes each"),
        pytest.param(PlacementOptions(3, 2), 2, 2, 16, id="three at two a node"),
        pytest.param(PlacementOptions(4, 1), 1, 4, 8, id="four on one node"),
        pytest.param(PlacementOptions(5, 1, 8), 1, 8, 4, id="five on a node of eight"),
        pytest.param(PlacementOptions(8, 1, 4, replicas_per_node=8), 1, 8, 4, id="two for each GPU"),
        pytest.param(PlacementOptions(1, 3), 1, 1, 32, id="three of four GPUs"),
        pytest.param(PlacementOptions(2, 0), 2, 1, 32, id="CPUs only: a node each"),
        pytest.param(PlacementOptions(4, 1, nodes=2), 2, 4, 8, id="spread over more nodes"),
        pytest.param(PlacementOptions(100, 1, 4, replicas_per_node=64), 2, 64, 1, id="never less than one CPU"),
    ],
)
def test_derivations(asked: PlacementOptions, nodes: int, per_node: int | None, cpus: int) -> None:
    placed = place_cluster(asked)
    assert (placed.nodes, placed.replicas_per_node, placed.cpus_per_task) == (nodes, per_node, cpus)


@pytest.mark.parametrize(("per_node", "gpus"), [(1, 4), (2, 2), (3, 1), (4, 1), (8, 1), (None, 4)])
def test_gpus_that_nobody_said_are_shared_by_those_on_a_node(per_node: int | None, gpus: int) -> None:
    placed = place_cluster(PlacementOptions(3, gpus_per_node=4, replicas_per_node=per_node))
    assert placed.gpus_per_replica == gpus


def test_spanning_replicas_have_nodes_of_their_own() -> None:
    placed = place_cluster(PlacementOptions(2, 8))
    assert (placed.nodes, placed.replicas_per_node) == (4, None)


@pytest.mark.parametrize(
    ("asked", "where", "sentence"),
    [
        (PlacementOptions(3, 2, nodes=1), "nodes", "`nodes` is 1, but 3 replicas at 2 a node need 2"),
        (PlacementOptions(2, 2, nodes=5), "nodes", "`nodes` is 5, but there are only 2 replicas to put on them"),
        (PlacementOptions(2, 8, nodes=3), "nodes", "`nodes` is 3, but 2 replicas over 2 nodes each need 4"),
        (
            PlacementOptions(2, 400_000_000),
            "gpus_per_replica",
            "2 replicas over 100000000 nodes each are 200000000 nodes: 100000 at most",
        ),
        (
            PlacementOptions(1, 6),
            "gpus_per_replica",
            "`gpus_per_replica` is 6: more than the 4 of a node, and not a multiple of it",
        ),
        (
            PlacementOptions(1, 8, replicas_per_node=2),
            "replicas_per_node",
            "`replicas_per_node` is 2, but a replica of 8 GPUs spans nodes",
        ),
    ],
)
def test_contradictions(asked: PlacementOptions, where: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        place_cluster(asked)
    assert (caught.value.where, str(caught.value)) == (where, f"{where}: {sentence}")


def check(asked: PlacementOptions, placed: ReplicaLayout) -> None:
    """What every layout keeps."""
    if placed.replicas_per_node is None:
        assert placed.nodes * asked.gpus_per_node == asked.replicas * placed.gpus_per_replica
    else:
        assert math.ceil(asked.replicas / placed.replicas_per_node) <= placed.nodes <= asked.replicas
    assert placed.cpus_per_task >= 1


@given(asked_of)
def test_every_layout_is_consistent(asked: PlacementOptions) -> None:
    try:
        placed = place_cluster(asked)
    except InputError:
        assume(False)
    check(asked, placed)
    again = PlacementOptions(
        asked.replicas, placed.gpus_per_replica, asked.gpus_per_node, placed.replicas_per_node, placed.nodes,
        placed.cpus_per_task,
    )  # fmt: skip
    assert place_cluster(again) == placed


@given(replicas=small, gpus=st.integers(0, 32), per_node=st.integers(1, 8))
def test_what_is_left_out_never_contradicts(replicas: int, gpus: int, per_node: int) -> None:
    assume(gpus <= per_node or gpus % per_node == 0)
    asked = PlacementOptions(replicas, gpus, per_node)
    check(asked, place_cluster(asked))


@given(first=small, second=small, gpus=st.sampled_from([1, 2, 4, 8, 16]))
def test_an_override_derives_everything_again(first: int, second: int, gpus: int) -> None:
    spec = SwarmSpec(model="m", replicas=first, gpus_per_replica=gpus, backend=SLURM)
    derive(spec, Context())
    changed = spec.model_copy(update={"replicas": second})
    fresh = SwarmSpec(model="m", replicas=second, gpus_per_replica=gpus, backend=SLURM)
    assert derive(changed, Context()) == derive(fresh, Context())


@given(replicas=small, there=st.integers(0, 16), cpus=st.integers(1, 64), gpus=st.none() | st.integers(0, 8))
def test_local_layouts_fit_the_machine(replicas: int, there: int, cpus: int, gpus: int | None) -> None:
    facts = Context(gpus=tuple(str(index) for index in range(there)), cpus=cpus)
    try:
        placed = place_local(PlacementOptions(replicas, gpus), facts)
    except InputError:
        assert 0 < there < replicas * (gpus or 1) or (gpus or 0) * replicas > there
        return
    assert placed.nodes == 1
    assert placed.gpus_per_replica * replicas <= there
    assert placed.cpus_per_task * replicas <= max(cpus, replicas)
    if gpus is None:
        assert placed.gpus_per_replica in ((0,) if there == 0 else (1, 2, 4))


@pytest.mark.parametrize(
    ("there", "replicas", "each"), [(0, 3, 0), (1, 1, 1), (8, 1, 4), (8, 2, 4), (8, 3, 2), (8, 8, 1), (3, 1, 2)]
)
def test_local_gpus_that_nobody_said(there: int, replicas: int, each: int) -> None:
    facts = Context(gpus=tuple(str(index) for index in range(there)))
    assert place_local(PlacementOptions(replicas), facts).gpus_per_replica == each


@pytest.mark.parametrize(
    ("asked", "where"),
    [(PlacementOptions(2, nodes=2), "nodes"), (PlacementOptions(2, replicas_per_node=1), "replicas_per_node")],
)
def test_local_is_one_machine(asked: PlacementOptions, where: str) -> None:
    with pytest.raises(InputError) as caught:
        place_local(asked, Context())
    assert caught.value.where == where


def test_only_the_allowed_gpus_count() -> None:
    backend = {"type": "local", "gpus": ["1", "9"]}
    spec = SwarmSpec(model="m", backend=backend)
    assert layout(spec, Context(gpus=("0", "1", "2"))).gpus_per_replica == 1
