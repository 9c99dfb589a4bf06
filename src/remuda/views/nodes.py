"""Views of nodes, GPUs and what speaks against nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from remuda.base.errors import NotFound
from remuda.base.text import did_you_mean
from remuda.plan.placing.gpus import gpu_named, vram_of_features
from remuda.supervise.failures.ledger import BAN, weigh
from remuda.views.workloads import View
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.backends.base import Cluster, Node
    from remuda.store.rows import Evidence

BY: Final = "user:"
"""In the token's place: a ban comes from a person, not from an allocation."""


class GpuView(View):
    """GPUs of one type in one pool."""

    pool: str
    """The partition."""
    is_up: bool
    """Whether the pool starts work."""
    gpu: str
    """Type as the scheduler names it; empty where it names none."""
    vram_gb: float | None
    """Of one GPU; null where it is not known."""
    vram_variants: list[float]
    """Sizes that this GPU is sold with, where its name does not tell which it is."""
    max_per_node: int
    """Most GPUs on one node."""
    available: int
    """Most free ones on one node now."""
    availability: str
    """`full`: a whole node is free; `partial`; `none`."""
    nodes_free: int
    """Nodes with a free GPU."""
    nodes: int
    free: int
    total: int


class BanView(View):
    """A ban by a person."""

    node: str
    cluster: str
    by: str
    """Login name; empty where it is not known."""
    at: float
    until: float
    """Seconds since the epoch."""
    reason: str


class NodeView(View):
    """One node."""

    name: str
    cluster: str
    """Name of the backend."""
    is_known: bool
    """False: the cluster does not have it; it is listed because of its ban."""
    state: str
    """In the scheduler's words."""
    usable: bool
    """Whether the scheduler may start work there, now or later."""
    reason: str
    """Why not, in the scheduler's words."""
    pools: list[str]
    cpus: int
    cpus_free: int
    mem_bytes: int
    gpus: int
    gpus_free: int
    gpu_type: str
    features: list[str]
    weight: float
    """Of the evidence that counts now; at 1 the node is avoided."""
    evidence: int
    """Pieces of evidence that count now."""
    is_avoided: bool
    """Because of its weight or of a ban, as far as enough other nodes are left."""
    ban: BanView | None
    heard_s: float | None
    """Of a fleet's node: for how long nothing was heard of its client; null where it has none."""
    problems: tuple[str, ...]
    """Of a fleet's node: what its client says is the matter, a sentence each."""


class EvidenceView(View):
    """One line of a node's history."""

    at: float
    kind: str
    weight: float
    counts: bool
    """Whether it counts now: it has not expired, and was not ended."""
    device: str
    workload: str
    token: str
    """Of the allocation that it comes from."""
    by: str
    """Who did it, of bans and their ends."""
    detail: str
    expires_at: float
    cluster: str


class SmokeResult(View):
    """What a node's test said."""

    node: str
    outcome: str
    """`ok` or `failed`; others change nothing."""
    detail: str = ""
    device: str = ""


class SmokeRecorded(View):
    """What the ledger made of tests."""

    failed: list[str]
    """Nodes with new evidence against them."""
    cleared: list[str]
    """Nodes whose evidence of earlier tests was ended."""


def gpu_views(cluster: Cluster) -> list[GpuView]:
    """One view per pool and type of GPU: largest memory first, then by name."""
    is_up = {pool.name: pool.is_up for pool in cluster.pools}
    groups: dict[tuple[str, str], list[Node]] = defaultdict(list)
    for node in cluster.nodes:
        if node.gpus:
            for pool in node.pools:
                groups[pool, node.gpu_type].append(node)
    views = [_gpu_view(pool, gpu, nodes, is_up=is_up.get(pool, True)) for (pool, gpu), nodes in groups.items()]
    return sorted(
        views, key=lambda view: (-(view.vram_gb or max(view.vram_variants, default=0.0)), view.gpu, view.pool)
    )


def _gpu_view(pool: str, gpu: str, nodes: Sequence[Node], *, is_up: bool) -> GpuView:
    free = [min(node.gpus_free, node.gpus) if is_up and node.usable else 0 for node in nodes]
    most, available = max(node.gpus for node in nodes), max(free)
    vram, variants = _vram(gpu, nodes)
    return GpuView(
        pool=pool,
        is_up=is_up,
        gpu=gpu,
        vram_gb=vram,
        vram_variants=variants,
        max_per_node=most,
        available=available,
        availability="none" if not available else "full" if available == most else "partial",
        nodes_free=sum(count > 0 for count in free),
        nodes=len(nodes),
        free=sum(free),
        total=sum(node.gpus for node in nodes),
    )


def _vram(gpu: str, nodes: Sequence[Node]) -> tuple[float | None, list[float]]:
    """Memory of one GPU in GB where its name or the nodes' features tell it, else what it may be."""
    known = gpu_named(gpu) if gpu else None
    if known is not None and known.vram_gb:
        return known.vram_gb, []
    variants = list(known.variants) if known is not None else []
    said = {vram_of_features(node.features) for node in nodes}
    if len(said) == 1 and (size := said.pop()) and (not variants or size in variants):
        return size, []
    return None, variants


def node_views(
    cluster: Cluster, evidence: Iterable[Evidence], now: float, *, name: str, pool: str = ""
) -> list[NodeView]:
    """One view per node in the scheduler's order, then banned nodes that the cluster does not know.

    Args:
        cluster: what the backend has.
        evidence: of all clusters, expired or not.
        now: seconds since the epoch.
        name: of the backend.
        pool: only nodes of this one; empty: all.
    """
    against: dict[str, list[Evidence]] = defaultdict(list)
    for row in evidence:
        if row.cluster == name and row.expires_at > now:
            against[row.node].append(row)
    views = [
        _node_view(node, against.pop(node.name, []), name)
        for node in cluster.nodes
        if not pool or pool in node.pools
    ]  # fmt: skip
    known = {node.name for node in cluster.nodes}
    bans = [_ban_in(rows) for node, rows in against.items() if node not in known and not pool]
    return views + [_unknown_node(row, name) for row in bans if row is not None]


def _ban_in(rows: Sequence[Evidence]) -> Evidence | None:
    return max((row for row in rows if row.kind == BAN), key=lambda row: row.expires_at, default=None)


def _node_view(node: Node, rows: Sequence[Evidence], cluster: str) -> NodeView:
    weight = weigh(rows)
    ban = _ban_in(rows)
    return NodeView(**alike(NodeView, node) | {
        "cluster": cluster,
        "is_known": True,
        "gpus_free": node.gpus_free if node.usable else 0,
        "weight": round(weight, 3),
        "evidence": len(rows),
        "is_avoided": ban is not None or weight >= 1.0 - 1e-9,
        "ban": ban_view(ban) if ban is not None else None,
        "heard_s": None,
        "problems": (),
    })  # fmt: skip


def _unknown_node(row: Evidence, cluster: str) -> NodeView:
    return NodeView(
        name=row.node, cluster=cluster, is_known=False, state="unknown", usable=False,
        reason="the cluster does not know this node", pools=[], cpus=0, cpus_free=0, mem_bytes=0, gpus=0, gpus_free=0,
        gpu_type="", features=[], weight=0.0, evidence=1, is_avoided=True, ban=ban_view(row),
        heard_s=None, problems=(),
    )  # fmt: skip


def ban_view(row: Evidence) -> BanView:
    """The view of a ban."""
    return BanView(node=row.node, cluster=row.cluster, by=_by(row), at=row.at, until=row.expires_at, reason=row.detail)


def evidence_view(row: Evidence, now: float) -> EvidenceView:
    """The view of one line of a node's history."""
    by = _by(row)
    more = {"counts": row.expires_at > now and row.weight > 0, "token": "" if by else row.token, "by": by}
    return EvidenceView(**alike(EvidenceView, row) | more)


def _by(row: Evidence) -> str:
    """Whoever banned has no allocation, so the token's place is free for the name."""
    return row.token.removeprefix(BY) if row.token.startswith(BY) else ""


def unknown_node(name: str, known: Iterable[str], cluster: str) -> NotFound:
    """The error for a node that the cluster does not have, with the nearest names."""
    hint = did_you_mean(name, sorted(known), "`remuda nodes list` lists what there is", most=3)
    return NotFound(f"{cluster} has no node {name!r}", hint=hint)
