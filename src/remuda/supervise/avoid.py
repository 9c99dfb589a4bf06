"""Which nodes the tasks of a batch avoid: the ledger, asked with what is recorded and with what the cluster has."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from remuda.backends.base import Backend, Feature, Node
from remuda.base.errors import RemudaError
from remuda.supervise.ledger import Evidence, Judgement, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.plan.model import Group
    from remuda.supervise.model import Task
    from remuda.supervise.state import State

_LOG = logging.getLogger("remuda.supervise")
_CLUSTER_FOR_S = 60.0
"""What the cluster has is asked for at most so often; and a backend that did not answer is left alone as long."""


class Advice:
    """Asks the cluster only when something is to be submitted and there is evidence at all."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._evidence: Sequence[Evidence] = ()
        self._nodes: dict[str, tuple[float, tuple[Node, ...]]] = {}

    async def of(self, backend: Backend, tasks: Iterable[Task]) -> dict[tuple[str, str, str], Judgement]:
        """What the ledger says, by workload, group and pool; nothing where nothing is to be avoided."""
        kinds = {(task.key.workload, task.key.group, task.pool) for task in tasks}
        if Feature.EXCLUDE_NODES not in backend.features or not kinds:
            return {}
        now = self._state.clock.now()
        evidence = [item for item in self._read(now) if item.cluster == backend.name and item.expires_at > now]
        if not evidence:
            return {}
        nodes = await self._nodes_of(backend, now)
        said = {}
        for workload, name, pool in kinds:
            group = self._state.wants[workload].workload.group(name)
            judgement = judge(
                evidence,
                now,
                cluster=backend.name,
                candidates=_suitable(nodes, group),
                pools=(pool,) if pool else tuple(item.name for item in group.pools),
                needed=group.resources.nodes,
                policy=group.nodes,
            )
            if judgement.excluded or judgement.spared:
                said[workload, name, pool] = judgement
        return said

    def _read(self, now: float) -> Sequence[Evidence]:
        try:
            self._evidence = self._state.journal.evidence(now)
        except RemudaError as error:
            _LOG.warning("the evidence against nodes cannot be read, the last known counts: %s", error)
        return self._evidence

    async def _nodes_of(self, backend: Backend, now: float) -> tuple[Node, ...]:
        asked_at, nodes = self._nodes.get(backend.name, (-_CLUSTER_FOR_S, ()))
        if 0 <= now - asked_at < _CLUSTER_FOR_S:
            return nodes
        try:
            nodes = (await backend.cluster()).nodes
        except Exception as error:  # noqa: BLE001 - without it the evidence alone counts; nothing must fail here
            _LOG.warning("backend %s does not say what nodes it has: %s", backend.name, error)
            nodes = ()
        self._nodes[backend.name] = (now, nodes)
        return nodes


def _suitable(nodes: Iterable[Node], group: Group) -> list[Node]:
    """Nodes that a task of the group could run on, as far as its GPUs say."""
    needs = group.resources
    return [
        node
        for node in nodes
        if node.gpus >= needs.gpus and (not needs.gpu_type or not node.gpu_type or node.gpu_type == needs.gpu_type)
    ]
