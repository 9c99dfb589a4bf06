"""Published failure rates, and the interruptions that they let come over a cluster."""

from __future__ import annotations

import heapq
import math
from random import Random
from typing import TYPE_CHECKING, Final

from remuda.rehearsal.model import DAY_S, HOUR_S, Assumptions, Hazard, InterruptionRates, Strike

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LLAMA3_COUNTS: Final[Mapping[Hazard, int]] = {
    Hazard.GPU: 148 + 72 + 19 + 17 + 6,
    Hazard.SOFTWARE: 54 + 2 + 6,
    Hazard.NETWORK: 35 + 7 + 7,
    Hazard.MAINTENANCE: 32 + 47,
    Hazard.CRASH: 3 + 3 + 2 + 2 + 2 + 2,
}
"""Interruptions of 54 days on 2,048 nodes. GPU: faulty GPU, HBM3, SRAM, system processor, thermal and sensor. Software:
bugs, dependencies, and silent data corruption, which shows in the numbers. Network: switches and cables, NICs, NCCL
watchdog. Maintenance: unplanned and planned. Crash: SSD, power supply, chassis, IO board, CPU, system memory."""

LLAMA3: Final = InterruptionRates(
    name="llama3",
    source="Llama 3 405B, 2,048 nodes of 8 H100, 54 days, 466 interruptions (arXiv:2407.21783, section 3.3.4)",
    per_node_day={kind: count / (2048 * 54) for kind, count in LLAMA3_COUNTS.items()},
    published=0.90,
)

_RSC_MTTF_H = 7.9
_RSC_NODES = 128
_RSC_SHARES: Final[Mapping[Hazard, float]] = {
    Hazard.GPU: 0.50, Hazard.NETWORK: 0.20, Hazard.CRASH: 0.15, Hazard.SOFTWARE: 0.05, Hazard.MAINTENANCE: 0.10,
}  # fmt: skip
"""The paper draws causes and prints no table; these shares are read from its figure and are an assumption."""

RSC: Final = InterruptionRates(
    name="rsc",
    source="Meta RSC, mean time to failure 7.9 h at 1,024 A100; lemon nodes (arXiv:2410.21680)",
    per_node_day={kind: share * 24 / _RSC_MTTF_H / _RSC_NODES for kind, share in _RSC_SHARES.items()},
    # Taking out 1.2 % of the nodes brought failures of large jobs from 14 % to 4 %: those nodes made 10 of 14.
    lemon_share=0.012,
    lemon_factor=(10 / 14 / 0.012) / (4 / 14 / 0.988),
)

NONE: Final = InterruptionRates(name="none", source="no failures", per_node_day={})
PUBLISHED: Final[Mapping[str, InterruptionRates]] = {rates.name: rates for rates in (LLAMA3, RSC, NONE)}


def lemons(nodes: int, assumptions: Assumptions, seed: int) -> frozenset[int]:
    """Nodes that fail again and again."""
    count = round(nodes * assumptions.lemon_share)
    return frozenset(Random(f"lemons {seed}").sample(range(nodes), count))


def strikes(rates: InterruptionRates, nodes: int, days: float, assumptions: Assumptions, seed: int) -> list[Strike]:
    """What comes over the cluster, by time; the same for the same arguments.

    Each node's interruptions are a Poisson process. Cost: one step per interruption, not per node and hour.
    """
    bad = sorted(lemons(nodes, assumptions, seed))
    share, factor = len(bad) / nodes, assumptions.lemon_factor
    good = sorted(set(range(nodes)) - set(bad)) if bad else range(nodes)
    scale = 1.0 / (1.0 - share + share * factor)
    streams = [_preemptions(days, assumptions, Random(f"preemption {seed}"))]
    for kind, rate in rates.per_node_day.items():
        for many, times, name in ((good, scale, "good"), (bad, scale * factor, "bad")):
            dice = Random(f"{kind} {name} {seed}")
            streams += [_stream(kind, many, rate * times, days, assumptions, dice)] if many else []
    return list(heapq.merge(*streams))


def _stream(
    kind: Hazard, nodes: range | list[int], rate: float, days: float, assumptions: Assumptions, dice: Random
) -> Iterator[Strike]:
    mean_s = DAY_S / (rate * len(nodes)) if rate > 0 else math.inf
    at = dice.expovariate(1 / mean_s) if math.isfinite(mean_s) else math.inf
    while at < days * DAY_S:
        yield _struck(at, nodes[dice.randrange(len(nodes))], kind, assumptions, dice)
        at += dice.expovariate(1 / mean_s)


def _struck(at: float, node: int, kind: Hazard, assumptions: Assumptions, dice: Random) -> Strike:
    # Always the same number of throws, so that changing one assumption changes nothing else.
    hangs, sticks = dice.random() < assumptions.hang_share, dice.random() < assumptions.sticky_share
    repair, notice = dice.expovariate(1.0), dice.expovariate(1.0)
    named = dice.random() < assumptions.named_share
    if kind is Hazard.GPU:
        kind = Hazard.HANG if hangs else Hazard.GPU
        repair_s = repair * assumptions.repair_h * HOUR_S if sticks else 0.0
        return Strike(at, node, kind, repair_s, notice * assumptions.notice_s if sticks else 0.0, named)
    if kind is Hazard.CRASH:
        return Strike(at, node, kind, repair * assumptions.repair_h * HOUR_S, named=named)
    if kind is Hazard.MAINTENANCE:
        return Strike(at, node, kind, repair * assumptions.maintenance_h * HOUR_S)
    return Strike(at, node, kind)


def _preemptions(days: float, assumptions: Assumptions, dice: Random) -> Iterator[Strike]:
    if assumptions.preemptions_per_day <= 0:
        return
    at = dice.expovariate(assumptions.preemptions_per_day / DAY_S)
    while at < days * DAY_S:
        yield Strike(at, -1, Hazard.PREEMPTION)
        at += dice.expovariate(assumptions.preemptions_per_day / DAY_S)
