"""Several nodes to choose from: Slurm would give each job all that it names, so the others are excluded instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.errors import InputError, located
from remuda.base.hostlist import compress, expand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from remuda.backends.base import Cluster

NODE_LIST, EXCLUDE = "backend.node_list", "backend.exclude_nodes"


def names_of(text: str, where: str) -> tuple[str, ...]:
    """The nodes of a list; empty of an empty one.

    Raises:
        InputError: it is none; `where` is the field.
    """
    if not text.strip():
        return ()
    with located(where):
        return expand(text)


def settle(place: dict[str, object], nodes_each: int, cluster: Callable[[], Cluster]) -> dict[str, object]:
    """`place` with a `node_list` that Slurm takes as it was meant.

    Args:
        place: `Workload.place`; what it says of nodes is checked.
        nodes_each: of the widest job.
        cluster: asked only where more nodes are listed than a job of one node may name.

    Raises:
        InputError: what is said of nodes contradicts itself, or names nodes that there are not.
    """
    listed = names_of(str(place.get("node_list", "")), NODE_LIST)
    barred = names_of(str(place.get("exclude_nodes", "")), EXCLUDE)
    left = [name for name in listed if name not in barred]
    if listed and not left:
        raise InputError("`exclude_nodes` names every node of `node_list`", hint="leave one of the two out",
                         where=EXCLUDE)  # fmt: skip
    if listed and len(left) < nodes_each:
        raise InputError(f"`node_list` leaves {len(left)} nodes, and a replica spans {nodes_each}", where=NODE_LIST)
    if len(listed) <= 1:
        return place
    found = cluster()
    known = {node.name for node in found.nodes}
    if unknown := [name for name in left if name not in known]:
        raise InputError(f"`node_list` names {unknown[0]!r}, and the cluster has no such node", where=NODE_LIST)
    partition = str(place.get("partition", ""))
    inside = [node.name for node in found.nodes if partition in node.pools]
    if not set(left) & set(inside):
        raise InputError(f"no node of `node_list` is in partition {partition!r}",
                         hint=f"it has {compress(inside) or 'none'}", where=NODE_LIST)  # fmt: skip
    return _excluding(place, [*barred, *(name for name in inside if name not in left)])


def _excluding(place: dict[str, object], names: Iterable[str]) -> dict[str, object]:
    """Nothing is named any more, and everything else is excluded."""
    kept = {key: value for key, value in place.items() if key not in ("node_list", "exclude_nodes")}
    text = compress(names)
    return {**kept, "exclude_nodes": text} if text else kept
