"""Which task of a pack runs on which node, with which of its GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.plan.model import Pack, Seat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from remuda.plan.model import Group


@dataclass(frozen=True)
class Row:
    """The tasks of one group, as they are to be seated.

    Args:
        group: its name.
        count: of its tasks.
        gpus: of a task, on each of its nodes.
        nodes: of a task; one over several has all GPUs of each.
        over: without GPUs: nodes that the tasks are shared out over.
        beside: they are on the nodes of those before them, as far as there is room, else on nodes of their own.
    """

    group: str
    count: int
    gpus: int = 0
    nodes: int = 1
    over: int = 1
    beside: bool = False


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
    return Pack(nodes=nodes, seats=tuple(seats))


def seated_rows(rows: Sequence[Row], gpus_per_node: int) -> Pack:
    """The tasks of several groups, in order: each on the first node that has its GPUs left, on as few as they need."""
    used: list[int] = []
    on: list[int] = []
    seats: list[Seat] = []
    for row in rows:
        start = 0 if row.beside else len(used)
        over = min(row.over, row.count) if start == len(used) else len(used)
        for index in range(row.count):
            node = start + index % over if not row.gpus else _room(used, start, row, gpus_per_node)
            more = node + row.nodes - len(used)
            used, on = used + [0] * more, on + [0] * more
            seats.append(Seat(group=row.group, index=index, node=node, place=on[node], gpu=used[node]))
            for each in range(node, node + row.nodes):
                used[each] += row.gpus
                on[each] += 1
    return Pack(nodes=len(used), seats=tuple(seats))


def _room(used: list[int], start: int, row: Row, each: int) -> int:
    """The first node where a task of a row fits, together with those after it."""
    fits = (
        node for node in range(start, len(used)) if all(taken + row.gpus <= each for taken in used[node:][: row.nodes])
    )
    return next(fits, len(used))


def on_fullest(pack: Pack, groups: Mapping[str, Group], needs: Callable[[Group], int]) -> int:
    """What its tasks need together on the node where that is most; `needs` says it of one, on each of its nodes."""
    sums = [0] * pack.nodes
    for seat in pack.seats:
        for node in range(seat.node, seat.node + groups[seat.group].resources.nodes):
            sums[node] += needs(groups[seat.group])
    return max(sums)


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
