"""The cluster as it really is, whatever anybody believes: which nodes are broken, which the scheduler gives out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.backends.base import Ending
from remuda.rehearsal.model import BREAKS_NODE, WARNED, Hazard, Strike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.rehearsal.model import Assumptions, Job, Scenario

_CHECK_S = 10.0
"""From the start of an attempt until the program beside it has tried the GPUs of its own node."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Nodes of an attempt: those from 0 to `last` without `holes`."""

    first: int
    """Where the program beside the script runs."""
    last: int
    holes: frozenset[int]

    def __contains__(self, node: int) -> bool:
        return 0 <= node <= self.last and node not in self.holes


@dataclass(frozen=True, slots=True)
class Interruption:
    """What ends an attempt's work, and when."""

    at: float
    kind: Hazard | None
    """None: nothing does, the rehearsal is over."""
    node: int = -1
    named: bool = True
    checked: bool = False
    """Found by the check before the start."""

    def blamed(self, taken: Taken) -> int:
        """The node that its end is laid to."""
        return self.node if self.named and self.node >= 0 else taken.first


@dataclass(frozen=True, slots=True)
class AllocationEnd:
    """How the allocation then ends if nobody ends it."""

    at: float
    ending: Ending = Ending.NONE
    stalled: bool = False
    """The program beside it saw the standstill and ended it."""


@dataclass(frozen=True, slots=True)
class _Broken:
    seen_from: float
    until: float
    kind: Hazard
    named: bool


class World:
    """Nodes under one sequence of interruptions. Time only goes on; each policy has a world of its own."""

    def __init__(self, scenario: Scenario, strikes: Sequence[Strike]) -> None:
        self.scenario = scenario
        self._strikes = strikes
        self._next = 0
        self._broken: dict[int, _Broken] = {}

    def start(self, at: float, excluded: frozenset[int]) -> tuple[float, Taken | None]:
        """When and where an attempt that may start from `at` on does.

        The scheduler gives the first nodes that look well. Where those that are excluded leave too few, a person
        clears the exclusions after a while.

        Returns:
            Seconds since the begin; None instead of nodes: not within the rehearsal.
        """
        patience = at + self.scenario.assumptions.people_h * 3600.0
        wall = self.scenario.wall_s
        while at < wall:
            self._advance(at)
            away = {node for node, broken in self._broken.items() if broken.seen_from <= at}
            for holes in (away | excluded, away) if at >= patience else (away | excluded,):
                if self.scenario.nodes - len(holes) >= self.scenario.job.nodes:
                    return at, _lowest(self.scenario.job.nodes, frozenset(holes))
            turns = [t for broken in self._broken.values() for t in (broken.seen_from, broken.until) if t > at]
            turns += [t for t in (patience, self._coming()) if t > at]
            at = min(turns, default=math.inf)
        return wall, None

    def away(self, at: float) -> list[int]:
        """Nodes that the scheduler does not give out."""
        return [node for node, broken in self._broken.items() if broken.seen_from <= at < broken.until]

    def run(self, start: float, taken: Taken, *, checks_gpu: bool) -> Interruption:
        """What happens to an attempt on `taken` that starts now."""
        scenario = self.scenario
        limit_at = start + scenario.job.time_limit if scenario.job.time_limit else math.inf
        for node in sorted(self._broken):
            if node in taken and self._broken[node].until > start:
                return self._meets(start, node, taken, checks_gpu=checks_gpu)
        while self._coming() < min(limit_at, scenario.wall_s):
            strike = self._strikes[self._next]
            well = not self._is_broken(strike.node, strike.at)
            self._apply(strike)
            if strike.node < 0 or (strike.node in taken and well):
                return Interruption(strike.at, strike.kind, strike.node, strike.named)
        if limit_at < scenario.wall_s:
            return Interruption(limit_at, Hazard.TIME_LIMIT)
        return Interruption(scenario.wall_s, None)

    def _meets(self, start: float, node: int, taken: Taken, *, checks_gpu: bool) -> Interruption:
        """The attempt got a node that looks well and is not: it shows in the first step, or in the check."""
        if checks_gpu and node == taken.first:
            return Interruption(start + _CHECK_S, Hazard.GPU, node, checked=True)
        broken = self._broken[node]
        return Interruption(start + self.scenario.job.restart_cost, broken.kind, node, broken.named)

    def _coming(self) -> float:
        return self._strikes[self._next].at if self._next < len(self._strikes) else math.inf

    def _advance(self, at: float) -> None:
        while self._coming() <= at:
            self._apply(self._strikes[self._next])
        self._broken = {node: broken for node, broken in self._broken.items() if broken.until > at}

    def _is_broken(self, node: int, at: float) -> bool:
        broken = self._broken.get(node)
        return broken is not None and broken.until > at

    def _apply(self, strike: Strike) -> None:
        self._next += 1
        if strike.kind not in BREAKS_NODE or self._is_broken(strike.node, strike.at):
            return
        seen_from = strike.at + strike.notice_s
        if strike.kind is Hazard.CRASH:
            seen_from = strike.at + self.scenario.assumptions.slurmd_timeout_s
        until = seen_from + strike.repair_s
        if until > strike.at:
            self._broken[strike.node] = _Broken(seen_from, until, strike.kind, strike.named)


def _lowest(count: int, holes: frozenset[int]) -> Taken:
    last = count - 1
    for hole in sorted(holes):
        if hole > last:
            break
        last += 1
    first = next(node for node in range(last + 1) if node not in holes)
    return Taken(first, last, holes)


def end_of(fate: Interruption, job: Job, assumptions: Assumptions, *, watches: bool) -> AllocationEnd:
    """When and how the allocation of an attempt ends by itself; `watches`: something sees a standstill."""
    match fate.kind:
        case Hazard.CRASH:
            return AllocationEnd(fate.at + assumptions.slurmd_timeout_s, Ending.NODE_FAILED)
        case Hazard.HANG:
            timeout = fate.at + assumptions.nccl_timeout_s + assumptions.exit_s
            stalled = fate.at + job.progress_stall + job.kill_grace
            if watches and job.progress_stall and stalled < timeout:
                return AllocationEnd(stalled, stalled=True)
            return AllocationEnd(timeout)
        case Hazard.MAINTENANCE | Hazard.PREEMPTION:
            return AllocationEnd(fate.at, Ending.PREEMPTED)
        case Hazard.TIME_LIMIT:
            return AllocationEnd(fate.at, Ending.TIME_LIMIT)
        case _:
            return AllocationEnd(fate.at if fate.checked else fate.at + assumptions.exit_s)


def is_saved(fate: Interruption, job: Job) -> bool:
    """Whether the work up to the end is kept: the program was told in time, or the rehearsal is over."""
    told = fate.kind in WARNED and job.warn_before > 0
    return fate.kind is None or (told and job.checkpoint_cost <= job.warn_before)
