"""The two policies that ours is compared with, as they are described: Slurm's own requeue, and Shepherd's rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from remuda.policy.backoff import backoff_s
from remuda.rehearsal.model import HOUR_S, Hazard, Hours, PolicyOutcome
from remuda.rehearsal.world import World, end_of, is_saved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.rehearsal.model import Scenario, Strike
    from remuda.rehearsal.world import AllocationEnd, Interruption, Taken

FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Next:
    """What follows an end."""

    noticed: float
    """When it is known."""
    again: float
    """When the next attempt is submitted."""
    waits: Hours
    """For what, in between."""


class Rules(Protocol):
    """One policy that needs no state but its own."""

    name: str
    watches: bool
    """Whether something beside the script sees a standstill and tries the GPUs."""

    def excluded(self, at: float) -> frozenset[int]:
        """Nodes that an attempt submitted at `at` shall not get."""
        ...

    def after(self, start: float, taken: Taken, fate: Interruption, end: AllocationEnd) -> Next:
        """When it goes on."""
        ...


class Throws:
    """The luck that is the same for all policies: the n-th throw of a name is the same with the same seed."""

    def __init__(self, seed: int) -> None:
        self._dice = {name: Random(f"{name} {seed}") for name in ("queue", "people")}

    def wait_s(self, name: str, mean_s: float) -> float:
        """An exponential wait."""
        return self._dice[name].expovariate(1.0) * mean_s


@dataclass
class Requeue:
    """Plain `sbatch --requeue`: the scheduler begins again what lost a node or was preempted; a person the rest."""

    scenario: Scenario
    throws: Throws
    name: str = "requeue"
    watches: bool = False

    def excluded(self, at: float) -> frozenset[int]:
        """None."""
        del at
        return frozenset()

    def after(self, start: float, taken: Taken, fate: Interruption, end: AllocationEnd) -> Next:
        """At once after a lost node and a preemption, else when a person comes."""
        del start, taken
        assumed = self.scenario.assumptions
        if fate.kind in (Hazard.CRASH, Hazard.MAINTENANCE, Hazard.PREEMPTION):
            return Next(end.at, end.at + assumed.requeue_delay_s, Hours.BACKOFF)
        people_s = self.throws.wait_s("people", assumed.people_h * HOUR_S)
        return Next(end.at, end.at + people_s, Hours.PEOPLE)


@dataclass
class Shepherd:
    """Shepherd's rules: heartbeat, progress, GPU checks, a list of bad nodes, no bound of restarts, no brake."""

    scenario: Scenario
    throws: Throws
    name: str = "shepherd"
    watches: bool = True
    banned: dict[int, float] = field(default_factory=dict)
    failures: int = 0

    def excluded(self, at: float) -> frozenset[int]:
        """Nodes whose ban lasts, the newest ones where there are too many."""
        policy = self.scenario.workload.groups[0].nodes
        if not policy.exclude or not policy.limit:
            return frozenset()
        return frozenset([node for node, until in self.banned.items() if until > at][-policy.limit :])

    def after(self, start: float, taken: Taken, fate: Interruption, end: AllocationEnd) -> Next:
        """After a backoff, whatever it was."""
        job, assumed = self.scenario.job, self.scenario.assumptions
        ended = end.at
        if fate.kind is Hazard.CRASH and fate.node == taken.first and job.heartbeat_s:
            ended = min(ended, fate.at + job.heartbeat_s)
        noticed = look_at(ended, assumed.poll_s)
        self._ban(taken, fate, noticed)
        self.failures = 1 if fate.at - start > HOUR_S else self.failures + 1
        rule = self.scenario.workload.groups[0].replace
        wait = backoff_s(self.failures, rule.backoff_initial_s, rule.backoff_max_s, key="shepherd")
        return Next(noticed, noticed + wait, Hours.BACKOFF)

    def _ban(self, taken: Taken, fate: Interruption, at: float) -> None:
        until = at + self.scenario.workload.groups[0].nodes.ttl_s
        if fate.kind in (Hazard.CRASH, Hazard.GPU):
            self.banned[fate.blamed(taken)] = until
        if fate.kind is Hazard.TIME_LIMIT:
            self.banned[taken.first] = FOREVER


def look_at(at: float, poll_s: float) -> float:
    """When a poller that looks every `poll_s` sees what happened at `at`."""
    return -(-at // poll_s) * poll_s if poll_s else at


def live(scenario: Scenario, strikes: Sequence[Strike], rules: Rules, throws: Throws) -> PolicyOutcome:
    """The whole time under one of the rules above."""
    world, outcome = World(scenario, strikes), PolicyOutcome(rules.name, scenario.wall_s)
    at, offenders = 0.0, set[int]()
    while at < scenario.wall_s:
        ready = at + throws.wait_s("queue", scenario.assumptions.queue_s)
        excluded = rules.excluded(at)
        outcome.excluded_peak = max(outcome.excluded_peak, len(excluded))
        start, taken = world.start(ready, excluded)
        outcome.spend(Hours.QUEUE, start)
        if taken is None:
            break
        fate = world.run(start, taken, checks_gpu=rules.watches and scenario.job.gpu_check)
        attempted(outcome, scenario, start, fate, offenders)
        if fate.kind is None:
            break
        end = end_of(fate, scenario.job, scenario.assumptions, watches=rules.watches)
        after = rules.after(start, taken, fate, end)
        outcome.spend(Hours.DETECTION, after.noticed)
        outcome.spend(after.waits, after.again)
        at = after.again
    return outcome


def attempted(
    outcome: PolicyOutcome, scenario: Scenario, start: float, fate: Interruption, offenders: set[int]
) -> None:
    """Account for one attempt, from its start to what ended its work."""
    outcome.attempts += 1
    outcome.spend(Hours.STARTUP, min(start + scenario.job.restart_cost, fate.at))
    if outcome.until < fate.at and outcome.until < scenario.wall_s:
        outcome.work(scenario.job, fate.at, saved=is_saved(fate, scenario.job))
    if fate.kind is not None and fate.at < scenario.wall_s:
        outcome.restarts[fate.kind.value] += 1
        outcome.repeat_offences += fate.node in offenders
        if fate.node >= 0:
            offenders.add(fate.node)
