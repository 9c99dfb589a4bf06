"""What speaks against nodes, and which of them a task therefore avoids. Pure.

- A node is avoided when the weights of the evidence against it sum to 1. Evidence counts in full until it expires.
- Evidence of less than 1 is ambiguous: it counts once for each workload, and only together with evidence against the
  same device. Two workloads that fail on one GPU exclude its node; one that fails ten times does not, and neither do
  two that fail on different GPUs. Evidence that names no device is added to that against each of them.
- A ban by a person is evidence too. It holds even where `NodePolicy.exclude` is off: that opts out of the ledger's own
  conclusions, not of a person's word.
- Nobody starves. Of each pool's usable nodes at least half, and as many as the task needs, are kept; so are as many as
  its whole workload wants at once, where there are so many. The weakest are dropped from the exclusions first. Bans are
  dropped last, and only when fewer nodes than the task needs would be left. Where too few nodes are usable now, those
  that are not are kept in the same way: they may be the first to come back.
- Where it is not known which nodes a pool has, nobody could say how many are left: then only bans count.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from remuda.supervise.model import AVOIDS_ALL, AVOIDS_BANS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from remuda.backends.base import Node
    from remuda.plan.model import NodePolicy
    from remuda.store.rows import Evidence

BAN = "ban"
"""Kind of the evidence that is a person's word."""
AMBIGUOUS_WEIGHT = 0.5
_ENOUGH = 1.0 - 1e-9


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
    blind: bool = False
    """It is not known which nodes the task could run on: what is spared, is for that."""

    def within(self, level: int) -> tuple[Exclusion, ...]:
        """What a task avoids that may avoid so much (`supervise.model.AVOIDS_...`)."""
        return tuple(item for item in self.excluded if level >= (AVOIDS_BANS if item.is_ban else AVOIDS_ALL))


def judge(
    evidence: Iterable[Evidence],
    now: float,
    *,
    cluster: str,
    candidates: Sequence[Node],
    pools: Sequence[str],
    needed: int,
    wanted: int = 0,
    policy: NodePolicy,
) -> Judgement:
    """Say which nodes are to be avoided, and which only would be.

    Args:
        evidence: all there is; of other clusters or expired is left out.
        now: seconds, on the clock of `Evidence.expires_at`.
        cluster: name of the backend.
        candidates: its nodes that suit the task, as far as they are known.
        pools: names of the pools that are asked, each of which keeps enough nodes of its own; empty: all are one pool.
        needed: how many nodes the task needs at once.
        wanted: how many of the candidates its whole workload does.
        policy: of the task's group.
    """
    found = _suspects([item for item in evidence if item.cluster == cluster and item.expires_at > now], policy)
    rooms = _rooms(candidates, pools, needed, wanted)
    if not rooms:
        bans = [item for item in found if item.is_ban]
        rest = [item for item in found if not item.is_ban]
        return Judgement(tuple(bans[: policy.limit]), (*bans[policy.limit :], *rest), blind=True)
    excluded: list[Exclusion] = []
    spared: list[Exclusion] = []
    for suspect in found:
        asked = [room for room in rooms if suspect.node in room.nodes]
        if not asked:
            continue
        if len(excluded) >= policy.limit or not all(room.can_do_without(suspect) for room in asked):
            spared.append(suspect)
            continue
        excluded.append(suspect)
        for room in asked:
            room.left.discard(suspect.node)
    return Judgement(tuple(excluded), tuple(spared))


@dataclass(slots=True)
class _Room:
    """The nodes of one pool that a task could run on, and which of them are left to it."""

    nodes: dict[str, bool]
    """Name -> whether it is usable now."""
    needed: int
    wanted: int
    left: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.left = set(self.nodes)

    def can_do_without(self, suspect: Exclusion) -> bool:
        """Whether enough is left without this node, too."""
        usable = {node for node, is_usable in self.nodes.items() if is_usable}
        left = self.left & usable
        if suspect.node in usable:
            return len(left) - 1 >= self._keep(usable, left, suspect)
        needed = self._needed(self.left, suspect)
        return len(left) >= needed or len(self.left) - 1 >= self._keep(self.nodes, self.left, suspect)

    def _keep(self, among: Collection[str], left: Collection[str], suspect: Exclusion) -> int:
        needed = self._needed(left, suspect)
        return needed if suspect.is_ban else max(needed, (len(among) + 1) // 2)

    def _needed(self, left: Collection[str], suspect: Exclusion) -> int:
        """A workload that does not fit is helped by no node, and a person's word gives way to the task alone."""
        return max(self.needed, self.wanted) if len(left) >= self.wanted and not suspect.is_ban else self.needed


def _rooms(candidates: Sequence[Node], pools: Sequence[str], needed: int, wanted: int) -> list[_Room]:
    """One for each pool of which a node is known; without pools one for all nodes."""
    known = [
        {node.name: node.usable for node in candidates if not pool or pool in node.pools} for pool in pools or ("",)
    ]
    return [_Room(nodes, needed, wanted) for nodes in known if nodes]


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
