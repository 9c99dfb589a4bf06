"""How many nodes, replicas a node, GPUs and CPUs: derived from what was said, and always consistent. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.specs.bounds import MOST

if TYPE_CHECKING:
    from remuda.plan.context import Context

CLUSTER_GPUS: Final = 4
"""GPUs of a replica on a cluster, when nothing is said."""
NODE_CPUS: Final = 32
"""CPUs of a cluster's node that are shared by its replicas, when nothing is said."""


@dataclass(frozen=True)
class PlacementOptions:
    """What the user said about placement; None: nothing."""

    replicas: int
    gpus_per_replica: int | None = None
    gpus_per_node: int = 4
    replicas_per_node: int | None = None
    nodes: int | None = None
    cpus_per_task: int | None = None


@dataclass(frozen=True)
class ReplicaLayout:
    """Where the replicas go."""

    gpus_per_replica: int
    nodes: int
    replicas_per_node: int | None
    """None: a replica spans nodes."""
    cpus_per_task: int


def place_cluster(asked: PlacementOptions) -> ReplicaLayout:
    """Lay replicas out over a cluster's nodes.

    Raises:
        InputError: what was said contradicts itself; `where` is the field.
    """
    gpus = asked.gpus_per_replica
    if gpus is None:
        share = asked.gpus_per_node // asked.replicas_per_node if asked.replicas_per_node else CLUSTER_GPUS
        gpus = min(CLUSTER_GPUS, max(1, share))  # as many replicas as are to be on a node fit there
    if gpus > asked.gpus_per_node:
        return _spanning(asked, gpus)
    fits = asked.gpus_per_node // gpus if gpus else 1
    per_node = asked.replicas_per_node or fits
    needed = math.ceil(asked.replicas / per_node)
    nodes = asked.nodes or needed
    if nodes < needed:
        sentence = f"`nodes` is {nodes}, but {asked.replicas} replicas at {per_node} a node need {needed}"
        raise InputError(sentence, hint="leave `nodes` out: it is derived", where="nodes")
    if nodes > asked.replicas:
        sentence = f"`nodes` is {nodes}, but there are only {asked.replicas} replicas to put on them"
        raise InputError(sentence, hint="leave `nodes` out: it is derived", where="nodes")
    cpus = asked.cpus_per_task or max(1, NODE_CPUS // per_node)
    return ReplicaLayout(gpus, nodes, per_node, cpus)


def _spanning(asked: PlacementOptions, gpus: int) -> ReplicaLayout:
    if gpus % asked.gpus_per_node:
        raise InputError(
            f"`gpus_per_replica` is {gpus}: more than the {asked.gpus_per_node} of a node, and not a multiple of it",
            hint="use whole nodes, or set `gpus_per_node` to what a node has",
            where="gpus_per_replica",
        )
    if asked.replicas_per_node is not None:
        raise InputError(
            f"`replicas_per_node` is {asked.replicas_per_node}, but a replica of {gpus} GPUs spans nodes",
            hint="leave `replicas_per_node` out",
            where="replicas_per_node",
        )
    each = gpus // asked.gpus_per_node
    nodes = asked.replicas * each
    if asked.nodes not in (None, nodes):
        sentence = f"`nodes` is {asked.nodes}, but {asked.replicas} replicas over {each} nodes each need {nodes}"
        raise InputError(sentence, hint="leave `nodes` out: it is derived", where="nodes")
    if nodes > MOST:
        sentence = f"{asked.replicas} replicas over {each} nodes each are {nodes} nodes: {MOST} at most"
        raise InputError(sentence, hint="ask for fewer GPUs", where="gpus_per_replica")
    return ReplicaLayout(gpus, nodes, None, asked.cpus_per_task or NODE_CPUS)


def place_local(asked: PlacementOptions, facts: Context) -> ReplicaLayout:
    """Lay replicas out on this machine, which is the only node.

    GPUs that nobody said are 4, 2 or 1 for each replica, as many as there are, and 0 where the machine has none.

    Raises:
        InputError: they do not fit; `where` is the field.
    """
    if asked.nodes not in (None, 1):
        hint = "leave `nodes` out, or use another backend"
        raise InputError(f"`nodes` is {asked.nodes}, and the local backend has one", hint=hint, where="nodes")
    if asked.replicas_per_node is not None and asked.replicas_per_node < asked.replicas:
        raise InputError(
            f"`replicas_per_node` is {asked.replicas_per_node}, and all {asked.replicas} replicas are on this machine",
            hint="leave `replicas_per_node` out",
            where="replicas_per_node",
        )
    there = len(facts.gpus)
    gpus = _share(there, asked.replicas) if asked.gpus_per_replica is None else asked.gpus_per_replica
    if asked.replicas * gpus > there:
        need = f"{asked.replicas} × {gpus} = {asked.replicas * gpus} GPUs are needed"
        hint = "set `gpus_per_replica: 0` to run on CPUs" if there == 0 else "lower `replicas` or `gpus_per_replica`"
        raise InputError(f"{need}, and there are {there} on this machine", hint=hint, where="gpus_per_replica")
    cpus = asked.cpus_per_task or max(1, facts.cpus // asked.replicas)
    return ReplicaLayout(gpus, 1, asked.replicas, cpus)


def _share(there: int, replicas: int) -> int:
    if there == 0:
        return 0
    each = there // replicas
    if each == 0:
        raise InputError(
            f"{replicas} replicas cannot share {there} GPUs",
            hint="set `gpus_per_replica: 0` to run on CPUs, or lower `replicas`",
            where="replicas",
        )
    return int(min(CLUSTER_GPUS, 2 ** (each.bit_length() - 1)))
