"""Which task of a pack runs on which node, with which of its GPUs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.plan.model import Pack, Seat

if TYPE_CHECKING:
    from collections.abc import Iterator


def seated(group: str, count: int, nodes: int, gpus: int = 0) -> Pack:
    """The tasks of a group shared out over nodes in order, as evenly as they can be.

    Args:
        group: its name.
        count: of its tasks.
        nodes: of the allocation, no more than there are tasks.
        gpus: of each task.
    """
    each, more = divmod(count, nodes)
    seats: list[Seat] = []
    for node in range(nodes):
        for place in range(each + (node < more)):
            seats.append(Seat(group=group, index=len(seats), node=node, place=place, gpu=place * gpus))
    return Pack(nodes=nodes, per_node=most_on_one(count, nodes), seats=tuple(seats))


def most_on_one(count: int, nodes: int) -> int:
    """How many tasks the fullest of these nodes has."""
    return -(-count // nodes)


def node_counts(count: int, per_node: int = 0) -> Iterator[int]:
    """Numbers of nodes that are worth a try for so many tasks, fewest first: each has fewer on a node than the last.

    Args:
        count: of the tasks.
        per_node: most tasks on a node that the user wants; 0: as many as fit.
    """
    most = min(per_node or count, count)
    while most:
        nodes = most_on_one(count, most)
        yield nodes
        most = most_on_one(count, nodes) - 1
