"""Lists of nodes, as Slurm takes them for jobs that need fewer than are named."""

from __future__ import annotations

import pytest

from remuda.backends.base import Cluster, Node
from remuda.base.errors import InputError
from remuda.plan.placing.nodelist import settle

CLUSTER = Cluster(tuple(Node(f"n{number}", "idle", usable=True, pools=("p",)) for number in range(1, 6)), ())


def never() -> Cluster:
    raise AssertionError("the cluster is not asked")


@pytest.mark.parametrize(
    "place",
    [{}, {"exclude_nodes": "n[1-2]"}, {"node_list": "n1"}, {"node_list": "n1", "exclude_nodes": "n2"}],
)
def test_what_slurm_takes_as_it_is(place: dict[str, object]) -> None:
    assert settle({"partition": "p", **place}, 1, never) == {"partition": "p", **place}


@pytest.mark.parametrize(
    ("said", "excluded", "expected"),
    [
        pytest.param("n[1-3]", "", "n[4-5]", id="the others"),
        pytest.param("n[1-3]", "n3", "n[3-5]", id="with those that were excluded"),
        pytest.param("n[1-3]", "other", "n[4-5],other", id="of another partition"),
        pytest.param("n[1-5]", "", None, id="all of them"),
    ],
)
def test_the_others_are_excluded(said: str, excluded: str, expected: str | None) -> None:
    place: dict[str, object] = {"partition": "p", "node_list": said, "exclude_nodes": excluded}
    settled = settle(place, 1, lambda: CLUSTER)
    assert settled == ({"partition": "p"} if expected is None else {"partition": "p", "exclude_nodes": expected})


@pytest.mark.parametrize(
    ("place", "nodes", "where", "sentence"),
    [
        ({"node_list": "n[1-2]", "exclude_nodes": "n[1-3]"}, 1, "exclude_nodes", "names every node of `node_list`"),
        ({"node_list": "n[1-2]"}, 3, "node_list", "leaves 2 nodes, and a replica spans 3"),
        ({"node_list": "n[1-2],x"}, 1, "node_list", "names 'x', and the cluster has no such node"),
        ({"node_list": "n[1-2]", "partition": "q"}, 1, "node_list", "no node of `node_list` is in partition 'q'"),
        ({"node_list": "n[1-"}, 1, "node_list", "is not a list of nodes"),
        ({"exclude_nodes": "n]"}, 1, "exclude_nodes", "is not a list of nodes"),
    ],
)
def test_what_cannot_be_meant(place: dict[str, object], nodes: int, where: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("'", ".").replace("`", ".")) as caught:
        settle({"partition": "p", **place}, nodes, lambda: CLUSTER)
    assert caught.value.where == f"backend.{where}"
