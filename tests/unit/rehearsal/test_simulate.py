"""The rehearsal: numbers worked out by hand, sums that add up, and that it is the real supervisor that decides."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.rehearsal.rehearsals import PLAIN, scenario

from remuda.policy.backoff import backoff_s
from remuda.rehearsal.model import Assumptions, Hazard, Hours, InterruptionRates, PolicyOutcome, Scenario, Strike
from remuda.rehearsal.ours import live_ours
from remuda.rehearsal.rates import LLAMA3, NONE, RSC, lemons, strikes
from remuda.rehearsal.rules import Throws
from remuda.rehearsal.simulate import POLICIES, PolicySummary, compare, draw, simulate
from remuda.supervise import decide as deciding
from remuda.supervise import facts
from remuda.supervise.failures import ledger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import Observed, TaskKey
    from remuda.plan.model import Group
    from remuda.supervise.model import Task, Want

H = 3600.0


def spent(outcome: PolicyOutcome) -> dict[str, float]:
    """Seconds by what they were spent for, without what took none."""
    return {what.value: round(s, 6) for what, s in outcome.spent.items() if s}


def wait(attempt: int) -> float:
    """The real wait of the run of these tests after an attempt that ran for longer than the longest wait."""
    return backoff_s(1, 10.0, 300.0, key=f"train/script/0:{attempt}")


# Worked out by hand

TRACE = [Strike(2 * H, 0, Hazard.CRASH, repair_s=H), Strike(5 * H, 1, Hazard.SOFTWARE)]
"""Node 0 of three, on which the program beside the script runs, crashes; later the script fails by itself."""


def test_a_trace_worked_out_by_hand() -> None:
    # From 0: 600 s start-up, then work until 7200: three checkpoints of 1800 s, 1200 s lost.
    # Silence is noticed after 120 s, but the job ends when Slurm gives the node up: 7200 + 300.
    # After the backoff on nodes 1 and 2: 600 s, work until 18000: five checkpoints, the rest lost.
    # The end is known 30 s later. After the second backoff: 600 s, and work until the end of the day's half.
    w1, w2 = wait(1), wait(2)
    outcome = simulate(scenario(3, 0.5, nodes=2, checkpoint_every=1800.0), TRACE, "remuda", 1)
    assert spent(outcome) == {
        "useful": round(5400 + 9000 + (43200 - 18030 - w2 - 600), 6),
        "lost work": round(1200 + (18000 - 7500 - w1 - 600 - 9000), 6),
        "detection": 330.0,
        "backoff": round(w1 + w2, 6),
        "start-up": 1800.0,
    }
    assert outcome.restarts == {"crash": 1, "software": 1}
    assert (outcome.attempts, outcome.excluded_peak, outcome.given_up) == (3, 1, 0)


def test_the_same_trace_under_plain_requeue() -> None:
    # The lost node is requeued after 120 s; the failed script waits for a person, who takes no time here.
    outcome = simulate(scenario(3, 0.5, nodes=2), TRACE, "requeue", 1)
    assert spent(outcome) == {
        "useful": 5400.0 + 9000 + (43200 - 18030 - 600),
        "lost work": 1200.0 + (18000 - 7620 - 600 - 9000),
        "detection": 330.0,
        "backoff": 120.0,
        "start-up": 1800.0,
    }


def test_a_warned_end_loses_nothing_and_uses_up_no_retry() -> None:
    # Each attempt of 6 h: its start-up, and all the rest is kept.
    outcome = simulate(scenario(8, 1.0, time_limit=6 * H, mode="run_once", max_retries=0), [], "remuda", 1)
    assert outcome.spent[Hours.LOST] == outcome.given_up == 0
    assert outcome.restarts == {"time-limit": 3}
    assert outcome.spent[Hours.USEFUL] == outcome.wall_s - sum(
        outcome.spent[what] for what in (Hours.STARTUP, Hours.BACKOFF, Hours.DETECTION)
    )


def test_a_warning_too_short_for_a_checkpoint_saves_nothing() -> None:
    long = scenario(8, 0.5, time_limit=6 * H, checkpoint_cost=120.0)
    assert simulate(long, [], "remuda", 1).spent[Hours.LOST] > 0
    enough = replace(long, job=replace(long.job, warn_before=120.0))
    assert simulate(enough, [], "remuda", 1).spent[Hours.LOST] == 0


@pytest.mark.parametrize(("stall", "expected"), [(600.0, 600 + 60), (0.0, 1800 + 30)])
def test_a_silent_fault_is_noticed_by_the_standstill_or_by_the_program_itself(stall: float, expected: float) -> None:
    hang = [Strike(3 * H, 2, Hazard.HANG)]
    outcome = simulate(scenario(8, 0.5, progress_stall=stall), hang, "remuda", 1)
    assert outcome.spent[Hours.DETECTION] == expected
    assert simulate(scenario(8, 0.5, progress_stall=stall), hang, "requeue", 1).spent[Hours.DETECTION] == 1830


def test_a_run_that_is_given_up_waits_for_a_person() -> None:
    some = [Strike(hour * H, 0, Hazard.SOFTWARE) for hour in (1, 2, 3)]
    night = scenario(8, 1.0, replace(PLAIN, people_h=4.0), mode="run_once", max_retries=1)
    outcome = simulate(night, some, "remuda", 1)
    assert outcome.given_up == 1
    assert outcome.spent[Hours.PEOPLE] > 0


def test_a_broken_node_looks_well_until_the_site_notices() -> None:
    # The GPU of node 3 stays broken; its node is given out again at once, and fails again in the first step.
    broken = [Strike(2 * H, 3, Hazard.GPU, repair_s=4 * H, notice_s=H)]
    unknown = scenario(8, 0.5, replace(PLAIN, named_share=0.0), nodes=7)
    assert simulate(unknown, [replace(broken[0], named=False)], "remuda", 1).restarts["gpu"] > 2
    assert simulate(unknown, broken, "remuda", 1).restarts["gpu"] == 1


def test_the_check_before_the_start_finds_a_broken_gpu_of_its_own_node() -> None:
    broken = [Strike(2 * H, 0, Hazard.GPU, repair_s=4 * H, notice_s=H, named=False)]
    checked = simulate(scenario(9, 0.5, no_blacklist=True), broken, "remuda", 1)
    unchecked = simulate(scenario(9, 0.5, no_blacklist=True, gpu_check=False), broken, "remuda", 1)
    assert checked.spent[Hours.STARTUP] < unchecked.spent[Hours.STARTUP]


def test_a_job_waits_for_repaired_nodes() -> None:
    outcome = simulate(scenario(8, 0.5), [Strike(2 * H, 5, Hazard.MAINTENANCE, repair_s=3 * H)], "requeue", 1)
    assert outcome.spent[Hours.QUEUE] == 3 * H - 120


def test_a_run_that_begins_after_a_service_and_ends_with_its_script() -> None:
    plain = scenario(8, 1.0, replace(PLAIN, people_h=4.0, queue_s=600.0))
    script = plain.workload.groups[0]
    never = script.replace.model_copy(update={"policy": "never"})
    groups = (
        script.model_copy(update={"after": ("service",), "replace": never}),
        script.model_copy(update={"name": "service"}),
    )
    workload = plain.workload.model_copy(update={"groups": groups, "ends_with": "script"})
    assert simulate(plain, [], "remuda", 1).spent[Hours.BACKOFF] == 0
    waited_s = simulate(replace(plain, workload=workload), [], "remuda", 1).spent[Hours.BACKOFF]
    assert waited_s > 0, "it waits until the service is out of the queue"
    fails = [Strike(6 * H, 0, Hazard.SOFTWARE)]
    again = simulate(replace(plain, workload=workload), fails, "remuda", 1)
    assert (again.attempts, again.given_up) == (2, 1)
    assert again.spent[Hours.PEOPLE] > 0, "a person begins all of it again, and in the same order"


# Sums and luck

KINDS = st.sampled_from([kind for kind in Hazard if kind is not Hazard.TIME_LIMIT])
STRIKES = st.lists(
    st.builds(
        Strike, st.floats(0, 3 * 86400), st.integers(0, 9), KINDS, st.floats(0, 86400), st.floats(0, 7200),
        st.booleans(),
    ), max_size=60,
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    drawn=STRIKES,
    policy=st.sampled_from(POLICIES),
    values=st.fixed_dictionaries({
        "nodes": st.integers(1, 10),
        "time_limit": st.sampled_from([0.0, 3000.0, 6 * H]),
        "checkpoint_every": st.sampled_from([0.0, 60.0, 1800.0]),
        "checkpoint_cost": st.sampled_from([0.0, 30.0, 200.0]),
        "restart_cost": st.sampled_from([0.0, 600.0, 3 * H]),
        "heartbeat_grace": st.sampled_from([0.0, 90.0]),
        "max_retries": st.sampled_from([0, 2, 1000]),
        "mode": st.sampled_from(["run_once", "indefinite"]),
    }),
    seed=st.integers(0, 5),
)  # fmt: skip
def test_the_times_add_up_and_none_is_negative(
    drawn: list[Strike], policy: str, values: dict[str, Any], seed: int
) -> None:
    outcome = simulate(scenario(10, 3.0, Assumptions(), **values), sorted(drawn), policy, seed)
    assert outcome.until == outcome.wall_s
    assert math.fsum(outcome.spent.values()) == pytest.approx(outcome.wall_s, rel=1e-9)
    assert all(s >= 0 for s in outcome.spent.values())
    assert all(a <= b for (a, _), (b, _) in zip(outcome.points, outcome.points[1:], strict=False))
    assert all(a <= b + 1e-6 for (_, a), (_, b) in zip(outcome.points, outcome.points[1:], strict=False))
    assert outcome.attempts <= sum(outcome.restarts.values()) + 1


def test_the_same_seed_is_the_same_outcome_and_another_is_not() -> None:
    month = scenario(100, 30, Assumptions(), nodes=95)
    for policy in POLICIES:
        first, second, other = (simulate(month, draw(month, RSC, seed), policy, seed) for seed in (1, 1, 2))
        assert first == second
        assert first.spent != other.spent


@pytest.mark.parametrize("policy", POLICIES)
def test_without_failures_only_the_start_and_checkpoints_take_time(policy: str) -> None:
    month = scenario(10, 30, checkpoint_every=1770.0, checkpoint_cost=30.0)
    outcome = compare(month, NONE, [policy], [1])[0].outcomes[0]
    cycles, rest = divmod(outcome.wall_s - 600, 1800)
    assert outcome.spent[Hours.STARTUP] == 600
    assert outcome.spent[Hours.CHECKPOINT] == pytest.approx(cycles * 30)
    assert outcome.spent[Hours.USEFUL] == pytest.approx(cycles * 1770 + rest)
    assert (outcome.attempts, outcome.restarts) == (1, {})


@pytest.mark.parametrize("policy", POLICIES)
def test_more_failures_never_help_on_average(policy: str) -> None:
    month = scenario(500, 20, Assumptions(), nodes=450)
    rates = [
        InterruptionRates("x", "", {kind: rate * times for kind, rate in LLAMA3.per_node_day.items()})
        for times in (0.25, 1, 4, 16)
    ]
    shares = [compare(month, one, [policy], range(4))[0].effective for one in rates]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] - shares[-1] > 0.2


def test_rates_are_those_that_are_published() -> None:
    many = [strikes(LLAMA3, 2048, 54, Assumptions(), seed) for seed in range(8)]
    assert sum(map(len, many)) / len(many) == pytest.approx(466, rel=0.05)
    lemon = Assumptions(lemon_share=RSC.lemon_share, lemon_factor=RSC.lemon_factor)
    drawn = [one for seed in range(4) for one in strikes(RSC, 1000, 30, lemon, seed)]
    assert 24 / (len(drawn) / 4 / 30 * 128 / 1000) == pytest.approx(7.9, rel=0.05)
    bad = sum(one.node in lemons(1000, lemon, seed) for seed in range(4) for one in strikes(RSC, 1000, 30, lemon, seed))
    assert bad / len(drawn) == pytest.approx(10 / 14, rel=0.05)


# The real supervisor

LEMONS = Assumptions(named_share=1.0, lemon_share=0.1, lemon_factor=100.0, sticky_share=0.0, repair_h=0.1)


def test_the_ledger_avoids_lemons() -> None:
    gpus = InterruptionRates("gpus", "", {Hazard.GPU: 0.2})
    values = {"nodes": 18, "blacklist_ttl": 5 * 86400.0}
    avoids, suffers = (
        compare(scenario(20, 30, LEMONS, no_blacklist=off, **values), gpus, ["remuda"], range(3))[0]
        for off in (False, True)
    )
    assert avoids.mean("repeat_offences") < suffers.mean("repeat_offences") / 3
    assert avoids.effective > suffers.effective + 0.02
    assert suffers.mean("excluded_peak") == 0 < avoids.mean("excluded_peak")


def test_a_supervisor_that_does_nothing_gets_nothing_done(monkeypatch: pytest.MonkeyPatch) -> None:
    assert simulate(scenario(), [], "remuda", 1).effective > 0.9
    monkeypatch.setattr(deciding, "decide", lambda *_: ())
    broken = simulate(scenario(), [], "remuda", 1)
    assert (broken.attempts, broken.effective) == (0, 0.0)


def test_a_ledger_that_excludes_all_is_felt(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = tuple(ledger.Exclusion(f"n{index}", 1.0, "") for index in range(10))
    monkeypatch.setattr(ledger, "judge", lambda *_, **__: ledger.Judgement(everything))
    outcome = simulate(scenario(10, 1.0, replace(PLAIN, people_h=5.0)), [], "remuda", 1)
    assert outcome.spent[Hours.QUEUE] == 5 * H  # then a person clears them


def test_facts_and_causes_are_the_real_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Observed] = []
    real = facts.observed

    def observed(task: Task, group: Group, answer: Observed, now: float) -> Task:
        seen.append(answer)
        return real(task, group, answer, now)

    monkeypatch.setattr(facts, "observed", observed)
    simulate(scenario(3, 0.5, nodes=2), TRACE, "remuda", 1)
    assert [(one.life.value, one.ending.value, one.exit_code) for one in seen] == [
        ("running", "", None), ("running", "", None), ("ended", "node-failed", None), ("running", "", None),
        ("ended", "", 1), ("running", "", None),
    ]  # fmt: skip


def test_jumping_and_ticking_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    week: Scenario = scenario(100, 7, Assumptions(), nodes=95)
    drawn = draw(week, RSC, 3)
    calls: list[float] = []
    real = deciding.decide

    def decide(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> tuple[deciding.Action, ...]:
        calls.append(now)
        return real(want, tasks, now)

    monkeypatch.setattr(deciding, "decide", decide)
    jumped = live_ours(week, drawn, Throws(3))
    few = len(calls)
    ticked = live_ours(week, drawn, Throws(3), tick_s=60.0)
    assert jumped == ticked
    assert few < 12 * jumped.attempts + 12
    assert len(calls) - few > 7 * 24 * 60


@pytest.mark.parametrize(("repetitions", "t"), [(2, 12.706), (10, 2.262), (13, 2.179), (15, 2.179), (400, 1.980)])
def test_the_margin_of_few_repetitions_is_wide(repetitions: int, t: float) -> None:
    outcomes = tuple(
        PolicyOutcome("remuda", 100.0, {Hours.USEFUL: 40.0 + 20 * (one % 2)}) for one in range(repetitions)
    )
    summary = PolicySummary("remuda", outcomes)
    spread = statistics.stdev([one.effective for one in outcomes])
    assert summary.margin == pytest.approx(t * spread / math.sqrt(repetitions))
    assert math.isnan(PolicySummary("remuda", outcomes[:1]).margin)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ValueError, match="'best' is none of remuda, shepherd, requeue"):
        simulate(scenario(), [], "best", 1)
