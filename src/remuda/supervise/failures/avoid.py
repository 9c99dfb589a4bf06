"""Which nodes the tasks of a batch avoid: the ledger, asked with what is recorded and with what the cluster has."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from remuda.backends.base import Backend, Cluster, Feature, Node
from remuda.base.errors import RemudaError
from remuda.plan.placing.place import asked_partitions, settled_nodes
from remuda.supervise.failures.ledger import Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.plan.model import Group, Pool, Workload
    from remuda.store.rows import Evidence
    from remuda.supervise.model import Task
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
            judgement = _judge(backend, cluster, self._state.wants[workload].workload, name, pool, evidence, now)
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


def _judge(
    backend: Backend, cluster: Cluster, workload: Workload, name: str, pool: str, evidence: Sequence[Evidence],
    now: float,
) -> Judgement:  # fmt: skip
    """What the ledger says to the tasks of one group that are asked of one pool; of all of them if `pool` is empty."""
    group = workload.group(name)
    asked = tuple(item for item in group.pools if item.name == pool) or group.pools
    partitions = _partitions(cluster, workload, asked) if Feature.POOLS in backend.features else ()
    settled = settled_nodes(workload.place, asked)
    nodes = [node for node in _suitable(cluster.nodes, group) if node.name not in settled]
    return judge(
        [item for item in evidence if item.node not in settled],
        now,
        cluster=backend.name,
        candidates=() if partitions is None else nodes,
        pools=partitions or (),
        needed=pack.nodes if (pack := workload.pack_of(name)) is not None else group.resources.nodes,
        policy=group.nodes,
    )


def _partitions(cluster: Cluster, workload: Workload, asked: Sequence[Pool]) -> tuple[str, ...] | None:
    """Whose nodes count; None where that is not known."""
    named = asked_partitions(workload.place, asked)
    return named or tuple(info.name for info in cluster.pools if info.is_default) or None


def _suitable(nodes: Iterable[Node], group: Group) -> list[Node]:
    """Nodes that a task of the group could run on, as far as its GPUs say."""
    needs = group.resources
    return [
        node
        for node in nodes
        if node.gpus >= needs.gpus and (not needs.gpu_type or not node.gpu_type or node.gpu_type == needs.gpu_type)
    ]
