"""A rehearsal: one run on an invented cluster for an invented month, under our supervisor and under others.

Ours goes through the real `decide`, facts, causes and ledger; nothing of them is written again here.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.bench.judging.compare import student_t
from remuda.rehearsal.model import HOUR_S, Hours, InterruptionRates, PolicyOutcome, Scenario
from remuda.rehearsal.ours import live_ours
from remuda.rehearsal.rates import strikes as strike
from remuda.rehearsal.rules import Requeue, Shepherd, Throws, live

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.rehearsal.model import Strike

POLICIES: Final = ("remuda", "shepherd", "requeue")


@dataclass(frozen=True)
class PolicySummary:
    """What one policy made of all repetitions."""

    policy: str
    outcomes: tuple[PolicyOutcome, ...]

    @property
    def effective(self) -> float:
        """Mean share of the wall time in which work was done that was kept."""
        return statistics.fmean(one.effective for one in self.outcomes)

    @property
    def margin(self) -> float:
        """Half of the 95 % confidence interval of `effective`; nan with one repetition."""
        count = len(self.outcomes)
        if count < 2:
            return math.nan
        spread = statistics.stdev([one.effective for one in self.outcomes])
        return student_t(count - 1) * spread / math.sqrt(count)

    def hours(self, what: Hours) -> float:
        """Mean hours that were spent so."""
        return statistics.fmean(one.spent[what] for one in self.outcomes) / HOUR_S

    def mean(self, name: str) -> float:
        """Mean of a number of the outcomes: `attempts`, `given_up`, `repeat_offences` or `excluded_peak`."""
        return statistics.fmean(float(getattr(one, name)) for one in self.outcomes)

    @property
    def restarts(self) -> dict[str, float]:
        """Mean interruptions by kind, the most frequent first."""
        total = sum((one.restarts for one in self.outcomes), Counter[str]())
        return {kind: count / len(self.outcomes) for kind, count in total.most_common()}


def simulate(scenario: Scenario, strikes: Sequence[Strike], policy: str, seed: int) -> PolicyOutcome:
    """One policy through one sequence of interruptions. The same arguments, the same outcome.

    Args:
        scenario: what is rehearsed.
        strikes: by time.
        policy: one of `POLICIES`.
        seed: of the waits in queues and for people.

    Raises:
        ValueError: there is no such policy.
    """
    throws = Throws(seed)
    match policy:
        case "remuda":
            return live_ours(scenario, strikes, throws)
        case "shepherd":
            return live(scenario, strikes, Shepherd(scenario, throws), throws)
        case "requeue":
            return live(scenario, strikes, Requeue(scenario, throws), throws)
        case _:
            raise ValueError(f"{policy!r} is none of {', '.join(POLICIES)}")


def compare(
    scenario: Scenario,
    failures: InterruptionRates | Sequence[Strike],
    policies: Sequence[str],
    seeds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> list[PolicySummary]:
    """Each policy through the same luck, once for each seed.

    Args:
        scenario: what is rehearsed.
        failures: rates to draw interruptions from, or a sequence to play as it is.
        policies: some of `POLICIES`.
        seeds: one repetition each.
        progress: told after each step how many of how many are done.

    Raises:
        ValueError: there is no such policy.
    """
    made: dict[str, list[PolicyOutcome]] = {policy: [] for policy in policies}
    done = 0
    for seed in seeds:
        drawn = draw(scenario, failures, seed)
        for policy in policies:
            made[policy].append(simulate(scenario, drawn, policy, seed))
            done += 1
            if progress is not None:
                progress(done, len(seeds) * len(policies))
    return [PolicySummary(policy, tuple(outcomes)) for policy, outcomes in made.items()]


def draw(scenario: Scenario, failures: InterruptionRates | Sequence[Strike], seed: int) -> Sequence[Strike]:
    """The interruptions of one repetition."""
    if isinstance(failures, InterruptionRates):
        return strike(failures, scenario.nodes, scenario.days, scenario.assumptions, seed)
    return failures


def best_interval_s(scenario: Scenario, summary: PolicySummary) -> float:
    """Work between two checkpoints that would cost least: sqrt(2 x cost x mean time between interruptions).

    Source: Young, CACM 17(9), 1974. 0 where a checkpoint costs nothing or nothing was interrupted.
    """
    count = sum(summary.restarts.values())
    useful_s = sum(summary.hours(what) for what in (Hours.USEFUL, Hours.CHECKPOINT, Hours.LOST)) * HOUR_S
    return math.sqrt(2.0 * scenario.job.checkpoint_cost * useful_s / count) if count else 0.0
