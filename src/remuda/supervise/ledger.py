"""What speaks against nodes, and which of them a task therefore avoids. Pure.

- A node is avoided when the weights of the evidence against it sum to 1. Evidence counts in full until it expires.
- Evidence of less than 1 is ambiguous: it counts once for each workload, and only together with evidence against the
  same device. Two workloads that fail on one GPU exclude its node; one that fails ten times does not, and neither do
  two that fail on different GPUs. Evidence that names no device is added to that against each of them.
- A ban by a person is evidence too. It holds even where `NodePolicy.exclude` is off: that opts out of the ledger's own
  conclusions, not of a person's word.
- Nobody starves. Of the pool's usable nodes at least half, and as many as the task needs, are kept; the weakest are
  dropped from the exclusions first. Bans are dropped last, and only when fewer nodes than needed would be left.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.backends.base import Node
    from remuda.plan.model import NodePolicy

BAN = "ban"
"""Kind of the evidence that is a person's word."""
AMBIGUOUS_WEIGHT = 0.5
_ENOUGH = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation that speaks against a node or one of its devices, until it expires."""

    node: str
    at: float
    kind: str
    weight: float = 1.0
    cluster: str = ""
    """Name of the backend whose node it is."""
    device: str = ""
    workload: str = ""
    token: str = ""
    detail: str = ""
    expires_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Exclusion:
    """A node to avoid."""

    node: str
    weight: float
    why: str
    """One clause: what speaks against it."""
    is_ban: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the ledger says to one task."""

    excluded: tuple[Exclusion, ...] = ()
    """Strongest first."""
    spared: tuple[Exclusion, ...] = ()
    """What would be avoided if enough other nodes were left."""


def exclusions(
    evidence: Iterable[Evidence],
    now: float,
    *,
    cluster: str,
    candidates: Sequence[Node],
    pools: Sequence[str],
    needed: int,
    policy: NodePolicy,
) -> tuple[Exclusion, ...]:
    """Nodes to avoid, strongest evidence first. Arguments as `judge`."""
    return judge(
        evidence, now, cluster=cluster, candidates=candidates, pools=pools, needed=needed, policy=policy
    ).excluded


def judge(
    evidence: Iterable[Evidence],
    now: float,
    *,
    cluster: str,
    candidates: Sequence[Node],
    pools: Sequence[str],
    needed: int,
    policy: NodePolicy,
) -> Judgement:
    """Say which nodes are to be avoided, and which only would be.

    Args:
        evidence: all there is; of other clusters or expired is left out.
        now: seconds, on the clock of `Evidence.expires_at`.
        cluster: name of the backend.
        candidates: its nodes that suit the task; empty when they are not known, then only `policy.limit` bounds.
        pools: names of the pools that are asked; empty: any.
        needed: how many nodes the task needs at once.
        policy: of the task's group.
    """
    found = _suspects([item for item in evidence if item.cluster == cluster and item.expires_at > now], policy)
    if not candidates:
        return Judgement(tuple(found[: policy.limit]), tuple(found[policy.limit :]))
    mine = [node for node in candidates if not pools or set(pools) & set(node.pools)]
    known = {node.name for node in mine}
    usable = {node.name for node in mine if node.usable}
    left = len(usable)
    excluded: list[Exclusion] = []
    spared: list[Exclusion] = []
    for suspect in found:
        if suspect.node not in known:
            continue
        counts = suspect.node in usable
        keep = needed if suspect.is_ban else max(needed, (len(usable) + 1) // 2)
        if len(excluded) >= policy.limit or (counts and left - 1 < keep):
            spared.append(suspect)
            continue
        excluded.append(suspect)
        left -= counts
    return Judgement(tuple(excluded), tuple(spared))


def weigh(evidence: Sequence[Evidence]) -> float:
    """Weight of all evidence against one node; bans are no part of it."""
    sure = sum(item.weight for item in evidence if item.weight >= _ENOUGH and item.kind != BAN)
    vague = [item for item in evidence if item.weight < _ENOUGH and item.kind != BAN]
    return sure + max((_of_device(vague, device) for device in {item.device for item in vague}), default=0.0)


def _of_device(vague: Sequence[Evidence], device: str) -> float:
    """Of each workload the heaviest piece that is against `device`, or against none by name."""
    by_workload: dict[str, float] = defaultdict(float)
    for item in vague:
        if item.device in ("", device):
            by_workload[item.workload] = max(by_workload[item.workload], item.weight)
    return sum(by_workload.values())


def _suspects(evidence: Sequence[Evidence], policy: NodePolicy) -> list[Exclusion]:
    by_node: dict[str, list[Evidence]] = defaultdict(list)
    for item in evidence:
        by_node[item.node].append(item)
    ranked: list[tuple[bool, float, float, Exclusion]] = []
    for node, mine in by_node.items():
        ban = next((item for item in mine if item.kind == BAN), None)
        weight = weigh(mine)
        if ban is not None:
            why = f"banned: {ban.detail}" if ban.detail else "banned"
            ranked.append((True, weight, mine[-1].at, Exclusion(node, weight, why, is_ban=True)))
        elif policy.exclude and weight >= _ENOUGH:
            ranked.append((False, weight, max(item.at for item in mine), Exclusion(node, weight, _why(mine))))
    ranked.sort(key=lambda one: (one[0], one[1], one[2], one[3].node), reverse=True)
    return [exclusion for *_, exclusion in ranked]


def _why(evidence: Sequence[Evidence]) -> str:
    heaviest = max(evidence, key=lambda item: (item.weight, item.at))
    more = f" and {len(evidence) - 1} more" if len(evidence) > 1 else ""
    device = f" on {heaviest.device}" if heaviest.device else ""
    return f"{heaviest.kind}{device}{more}"
