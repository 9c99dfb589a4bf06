"""Which nodes the tasks of a batch avoid: the ledger, asked with what is recorded and with what the cluster has."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from remuda.backends.base import Backend, Cluster, Feature, Node
from remuda.base.errors import RemudaError
from remuda.plan.placing.place import asked_partitions, settled_nodes
from remuda.supervise.failures.ledger import Judgement, judge
from remuda.supervise.model import FINAL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.plan.model import Group, Pool, Workload
    from remuda.store.rows import Evidence
    from remuda.supervise.model import Task, Want
    from remuda.supervise.state import State

_LOG = logging.getLogger("remuda.supervise")
_CLUSTER_FOR_S = 60.0
"""What the cluster has is asked for at most so often; and a backend that did not answer is left alone as long."""

_UNKNOWN = Cluster(nodes=(), pools=())


class Advice:
    """Asks the cluster only when something is to be submitted and there is evidence at all."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._evidence: Sequence[Evidence] = ()
        self._clusters: dict[str, tuple[float, Cluster]] = {}

    async def of(self, backend: Backend, tasks: Iterable[Task]) -> dict[tuple[str, str, str], Judgement]:
        """What the ledger says, by workload, group and pool; nothing where nothing is to be avoided."""
        kinds = {(task.key.workload, task.key.group, task.pool) for task in tasks}
        if Feature.EXCLUDE_NODES not in backend.features or not kinds:
            return {}
        now = self._state.clock.now()
        evidence = [item for item in self._read(now) if item.cluster == backend.name and item.expires_at > now]
        if not evidence:
            return {}
        cluster = await self._cluster_of(backend, now)
        said = {}
        for workload, name, pool in kinds:
            want, mine = self._state.wants[workload], self._state.all[workload].values()
            judgement = _judge(backend, cluster, want, mine, name, pool, evidence, now)
            if judgement.excluded or judgement.spared:
                said[workload, name, pool] = judgement
        return said

    def _read(self, now: float) -> Sequence[Evidence]:
        try:
            self._evidence = self._state.journal.store.evidence(now)
        except RemudaError as error:
            _LOG.warning("the evidence against nodes cannot be read, the last known counts: %s", error)
        return self._evidence

    async def _cluster_of(self, backend: Backend, now: float) -> Cluster:
        asked_at, cluster = self._clusters.get(backend.name, (-_CLUSTER_FOR_S, _UNKNOWN))
        if 0 <= now - asked_at < _CLUSTER_FOR_S:
            return cluster
        try:
            cluster = await backend.cluster()
        except Exception as error:  # noqa: BLE001 - without it only bans count; nothing must fail here
            _LOG.warning("backend %s does not say what nodes it has: %s", backend.name, error)
            cluster = _UNKNOWN
        self._clusters[backend.name] = (now, cluster)
        return cluster


def asked_pools(group: Group, pool: str) -> tuple[Pool, ...]:
    """Where an attempt is asked of: its pool, or all of them when its group hedges."""
    return tuple(one for one in group.pools if one.name == pool) or group.pools


def nodes_at_once(workload: Workload, counts: Mapping[str, int], nodes: Sequence[Node]) -> int:
    """How many of `nodes` so many tasks of each group have at once, at least: what may share a node is taken to do so.

    Of a gang only the quorum counts: it goes on with that. A task has one CPU at least.
    """
    most, whole, shared = 0, dict[str, int](), Counter[str]()
    for name, count in counts.items():
        group, pack = workload.group(name), workload.pack_of(name)
        needs, tasks = group.resources, min(group.at_once(count), group.quorum or count)
        most = max(most, (pack or needs).nodes)
        if needs.whole_nodes:
            whole["" if pack else name] = pack.nodes if pack else tasks * needs.nodes
        else:
            amounts = {"gpus": needs.gpus, "cpus": max(1, needs.cpus), "mem_bytes": needs.mem_bytes}
            shared.update({what: amount * tasks * needs.nodes for what, amount in amounts.items()})
    parts = [-(-total // has) for what, total in shared.items() if (has := max(getattr(node, what) for node in nodes))]
    return max(most, sum(whole.values()) + max(parts, default=0))


def _judge(
    backend: Backend, cluster: Cluster, want: Want, tasks: Iterable[Task], name: str, pool: str,
    evidence: Sequence[Evidence], now: float,
) -> Judgement:  # fmt: skip
    """What the ledger says to the tasks of one group that are asked of one pool; of all of them if `pool` is empty."""
    workload, group = want.workload, want.workload.group(name)
    settled = settled_nodes(workload.place, asked_pools(group, pool))
    partitions, nodes = _open_to(backend, cluster, workload, name, pool)
    return judge(
        [item for item in evidence if item.node not in settled],
        now,
        cluster=backend.name,
        candidates=nodes,
        pools=partitions,
        needed=pack.nodes if (pack := workload.pack_of(name)) is not None else group.resources.nodes,
        # Nobody knows which of several partitions the others will be in.
        wanted=_wanted(backend, cluster, want, tasks, nodes) if len(partitions) <= 1 else 0,
        policy=group.nodes,
    )


def _wanted(backend: Backend, cluster: Cluster, want: Want, tasks: Iterable[Task], nodes: Sequence[Node]) -> int:
    """How many of these nodes the tasks that can run on no others have at once, or want; 0 where they need not."""
    if want.workload.has_parts:
        return 0
    going = Counter(
        (one.key.group, one.pool) for one in tasks if one.backend == backend.name and one.phase not in FINAL
    )
    if going.total() < 2:
        return 0  # what one task needs is `needed`
    among, counts = {node.name for node in nodes}, Counter[str]()
    for (name, pool), count in going.items():
        there = {node.name for node in _open_to(backend, cluster, want.workload, name, pool)[1]}
        counts[name] += count if there and there <= among else 0
    planned = {name: least for name in counts if (least := min(counts[name], want.count(name)))}
    return nodes_at_once(want.workload, planned, nodes)


def _open_to(
    backend: Backend, cluster: Cluster, workload: Workload, name: str, pool: str
) -> tuple[tuple[str, ...], list[Node]]:
    """Partitions that tasks of a group are asked of, if there are any, and known nodes there that have their GPUs."""
    needs, asked = workload.group(name).resources, asked_pools(workload.group(name), pool)
    has_pools, settled = Feature.POOLS in backend.features, settled_nodes(workload.place, asked)
    named = asked_partitions(workload.place, asked) if has_pools else ()
    pools = named or tuple(info.name for info in cluster.pools if info.is_default and has_pools)
    return pools, [
        node
        for node in cluster.nodes
        if node.gpus >= needs.gpus and (not needs.gpu_type or not node.gpu_type or node.gpu_type == needs.gpu_type)
        if node.name not in settled and (not has_pools or not set(pools).isdisjoint(node.pools))
    ]
