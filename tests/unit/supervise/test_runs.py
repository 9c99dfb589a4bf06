"""Supervised runs on a cluster: held submissions, requeues, silence, pools, pauses, restarts, and who ended what."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import Killed, only
from tests.unit.supervise.build import RULE, pools, script

from remuda.backends.base import Ending, Feature
from remuda.plan.model import Failover, Watch
from remuda.supervise.model import Cause, Phase
from remuda.supervise.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.supervise.bed import Bed

WATCH = Watch(heartbeat_interval_s=30, heartbeat_grace_s=90)


def summary(bed: Bed) -> str:
    return summarise(bed.host.wants["w"], bed.host.tasks("w")).phase


# Held submissions


async def test_what_is_submitted_held_is_released_at_once_after_it_was_recorded(bed: Bed) -> None:
    bed.backend.holds = True
    moments: list[str] = []
    bed.journal.hook = bed.backend.hook = moments.append
    bed.up(script())
    await bed.host.step()
    verbs = [moment.split()[1] for moment in moments if moment.startswith("before")]
    assert verbs[:4] == ["record", "submit", "record", "release"]
    assert bed.journal.tasks()[0].released
    await bed.go(5)
    assert bed.phases() == [Phase.STARTING]
    assert bed.backend.count("release") == 1


async def test_a_silent_backend_is_asked_again_to_release(bed: Bed) -> None:
    bed.backend.holds = True
    bed.backend.silent = {"release"}
    bed.up(script())
    await bed.go(5)
    assert (bed.phases(), only(bed).released) == ([Phase.PENDING], False)
    assert "held by the supervisor" in only(bed).reason
    bed.backend.silent = set()
    await bed.go(5)
    assert (bed.phases(), only(bed).released) == ([Phase.STARTING], True)


async def test_what_a_person_holds_later_stays_held(bed: Bed) -> None:
    bed.backend.holds, bed.backend.starts_at_once = True, False
    bed.up(script())
    await bed.go(3)
    made = bed.backend.made[only(bed).token]
    assert not made.seen.held
    made.seen = replace(made.seen, held=True, reason="JobHeldUser")
    bed.new_host()
    await bed.go(600)
    assert made.seen.held
    assert only(bed).reason == "held by a person (JobHeldUser)"


@pytest.mark.parametrize("lost", [{"submit"}, {"release"}, {"submit", "release"}])
async def test_a_host_killed_at_any_step_leaves_one_allocation_that_runs(
    make_bed: Callable[[str], Bed], lost: set[str]
) -> None:
    for at in itertools.count(1):
        bed = make_bed(f"{at}")
        bed.backend.holds = True
        bed.backend.lose_answers = lost
        bed.up(script())
        left = at

        def kill(_: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise Killed

        bed.journal.hook = bed.backend.hook = kill
        was_killed = False
        try:
            await bed.go(3)
        except Killed:
            was_killed = True
        bed.backend.hook = lambda _: None
        bed.backend.lose_answers = set()
        bed.new_host()
        await bed.go(20)
        assert bed.backend.living() == ["w.script.0.1.u1"], at
        assert (bed.phases(), only(bed).released) == ([Phase.STARTING], True), at
        if not was_killed:
            break
    assert at > 6


# Requeued by the scheduler


async def test_a_requeue_keeps_the_attempt_and_begins_its_grace_anew(bed: Bed) -> None:
    bed.up(script(watch=WATCH))
    await bed.all_ready()
    token = only(bed).token
    made = bed.backend.made[token]
    bed.backend.starts_at_once = False
    made.seen = replace(made.seen, life=type(made.seen.life).PENDING, requeues=1, reason="BeginTime")
    await bed.go(3600)
    task = only(bed)
    assert (task.phase, task.token, task.started_at, task.requeues) == (Phase.PENDING, token, 0.0, 1)
    assert (task.failures, task.node, task.url) == (0, "fake-node", "")
    assert any("put back into the queue by the scheduler: BeginTime" in line.reason for line in bed.story())
    bed.backend.start(token)
    await bed.go(100)
    assert (only(bed).phase, only(bed).token) == (Phase.STARTING, token)
    bed.host.take(bed.backend.report(token))
    await bed.go(2)
    assert only(bed).phase is Phase.READY


async def test_an_old_answer_is_no_requeue(bed: Bed) -> None:
    bed.backend.starts_at_once = False
    bed.up(script())
    await bed.go(2)
    bed.host.take(bed.backend.report(only(bed).token))
    await bed.go(5)
    assert (bed.phases(), only(bed).requeues) == ([Phase.READY], 0)


# Silence


async def test_a_silent_attempt_is_cancelled_after_its_grace_and_begun_anew(bed: Bed) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.up(script(watch=WATCH))
    await bed.all_ready()
    first, heard_at = only(bed).token, only(bed).last_seen
    while bed.backend.count("cancel") == 0:
        await bed.go(1)
        assert bed.clock.now() - heard_at < 200
    assert 120 < bed.clock.now() - heard_at <= 120 + bed.backend.poll_s + 1.1
    await bed.go(30)
    task = only(bed)
    assert (task.attempt, task.failures, task.phase) == (2, 1, Phase.STARTING)
    assert bed.backend.living() == ["w.script.0.2.u1"]
    end = next(item for item in bed.journal.allocations("w") if item.token == first)
    assert (end.cause, bed.twins()) == (Cause.NODE, [])
    assert [(item.kind, item.weight, item.node) for item in bed.journal.store.evidence(bed.clock.now())] == [
        ("silent", 1.0, "fake-node")
    ]


async def test_silence_is_not_concluded_while_the_backend_is_silent_or_the_files_are_unreadable(bed: Bed) -> None:
    bed.up(script(watch=WATCH))
    await bed.all_ready()
    token = only(bed).token
    bed.backend.silent = {"observe"}
    await bed.go(3600)
    assert only(bed).phase is Phase.READY
    made = bed.backend.made[token]
    made.seen = replace(made.seen, unread=True)
    bed.backend.silent = set()
    await bed.go(3600)
    assert (only(bed).phase, only(bed).token) == (Phase.READY, token)
    made.seen = replace(made.seen, unread=False)
    await bed.go(60)
    assert only(bed).attempt == 2


@pytest.mark.parametrize("skew", [-5000.0, 0.0, 5000.0])
async def test_a_node_whose_clock_is_wrong_is_not_silent(bed: Bed, skew: float) -> None:
    bed.up(script(watch=WATCH))
    await bed.go(2)
    token = only(bed).token
    made = bed.backend.made[token]
    for _ in range(20):
        said = bed.backend.report(token)
        made.seen = replace(made.seen, report=replace(said, at=said.at + skew))
        await bed.go(30)
        if made.reports == 10:
            bed.new_host()
    assert only(bed).token == token
    await bed.go(300)
    assert only(bed).attempt > 1


async def test_silence_that_ends_while_it_is_paused_has_no_consequence(bed: Bed) -> None:
    bed.up(script(watch=WATCH))
    await bed.all_ready()
    bed.change(paused=True)
    await bed.go(600)
    assert (only(bed).ending, only(bed).phase) == (Cause.NODE, Phase.READY)
    bed.host.take(bed.backend.report(only(bed).token))
    await bed.go(2)
    bed.change(paused=False)
    await bed.go(20)
    assert (only(bed).attempt, only(bed).phase, only(bed).ending) == (1, Phase.READY, Cause.NONE)


async def test_without_reports_running_is_ready(bed: Bed) -> None:
    bed.up(script())
    await bed.go(5)
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, unread=True)
    await bed.go(2)
    assert (only(bed).phase, only(bed).reason) == (Phase.READY, "runs; its reports cannot be read")


async def test_without_reports_and_without_watch_running_is_ready_after_a_while(bed: Bed) -> None:
    bed.up(script())
    await bed.go(30)
    assert only(bed).phase is Phase.STARTING
    await bed.go(60)
    assert (only(bed).phase, only(bed).reason) == (Phase.READY, "runs; no report has come")


# Who ended it


async def test_a_person_that_cancels_ends_the_run_and_restart_begins_it_again(bed: Bed) -> None:
    bed.up(script())
    await bed.all_ready()
    bed.backend.end(only(bed).token, None, ending=Ending.CANCELLED, by="ann", native_state="CANCELLED")  # type: ignore[arg-type]
    await bed.go(3600)
    assert (only(bed).phase, only(bed).reason, summary(bed)) == (
        Phase.STOPPED,
        "cancelled by ann",
        "STOPPED",
    )
    bed.new_host()
    await bed.go(600)
    assert bed.backend.living() == []
    bed.change(restart=True)
    await bed.go(5)
    assert bed.backend.living() == ["w.script.0.2.u1"]


@pytest.mark.parametrize("ending", [Ending.PREEMPTED, Ending.TIME_LIMIT])
async def test_preemption_and_time_limit_use_up_no_failures_and_wait_no_longer_each_time(
    bed: Bed, ending: Ending
) -> None:
    bed.backend.features |= {Feature.EXCLUDE_NODES}
    bed.up(script())
    for attempt in range(1, 12):
        await bed.all_ready()
        assert only(bed).attempt == attempt
        bed.backend.end(only(bed).token, 143, ending=ending)
        await bed.go(2)
        assert (only(bed).phase, only(bed).failures) == (Phase.WAITING, 0)
        assert 0 < only(bed).not_before - bed.clock.now() <= 10
        await bed.go(10)
    assert bed.journal.store.evidence(bed.clock.now()) == []


async def test_the_crash_loop_brake_gives_up_what_fails_quickly(bed: Bed) -> None:
    rule = RULE.model_copy(update={"quick_s": 60.0, "quick_limit": 3, "max_failures": 100})
    bed.up(script(replace=rule))
    for _ in range(3):
        await bed.all_ready()
        bed.backend.end(only(bed).token, 1)
        await bed.go(60)
    assert only(bed).phase is Phase.FAILED
    assert only(bed).reason == "given up: it failed 3 times within 1m of its start; ended with exit code 1"
    bed.change()
    await bed.all_ready()
    assert (only(bed).phase, only(bed).quick_failures) == (Phase.READY, 0)


async def test_what_ran_for_a_while_does_not_trip_the_brake(bed: Bed) -> None:
    rule = RULE.model_copy(update={"quick_s": 60.0, "quick_limit": 2, "max_failures": 100})
    bed.up(script(replace=rule))
    for ran in (5.0, 100.0, 5.0, 100.0):
        await bed.all_ready()
        bed.backend.end(only(bed).token, 1, ran_s=ran)
        await bed.go(70)
    assert only(bed).phase is Phase.STARTING


# What users want


async def test_paused_leaves_alone_what_runs_and_begins_nothing(bed: Bed) -> None:
    bed.up(script())
    await bed.all_ready()
    bed.change(paused=True)
    await bed.go(600)
    assert (bed.phases(), summary(bed)) == ([Phase.READY], "RUNNING")
    bed.backend.end(only(bed).token, 1)
    pauses = [await bed.host.step() for _ in range(3)]
    assert min(pauses[1:]) > 0.5, "a pause must not keep the machine busy"
    await bed.go(3600)
    assert (bed.phases(), summary(bed)) == ([Phase.WAITING], "PAUSED")
    assert only(bed).reason == "paused; ended with exit code 1"
    bed.new_host()
    await bed.go(600)
    assert bed.backend.living() == []
    bed.change(paused=False)
    await bed.go(5)
    assert bed.backend.living() == ["w.script.0.2.u1"]
    assert any(line.reason == "attempt 2: ended with exit code 1" for line in bed.story())


async def test_paused_before_the_first_attempt(bed: Bed) -> None:
    bed.up(script())
    bed.change(paused=True)
    await bed.go(600)
    assert (bed.backend.made, summary(bed)) == ({}, "PAUSED")
    bed.change(paused=False)
    await bed.go(2)
    assert len(bed.backend.living()) == 1


async def test_a_restart_ends_what_runs_and_begins_it_again_without_counting(bed: Bed) -> None:
    bed.up(script())
    await bed.all_ready()
    bed.change(restart=True)
    await bed.go(3)
    task = only(bed)
    assert (task.attempt, task.failures, task.phase) == (2, 0, Phase.STARTING)
    assert bed.backend.living() == ["w.script.0.2.u1"]
    assert bed.backend.made["w.script.0.1.u1"].asked == 1
    await bed.go(600)
    assert only(bed).attempt == 2


async def test_a_restart_skips_the_backoff_and_waits_for_the_end_of_a_pause(bed: Bed) -> None:
    bed.up(script(replace=RULE.model_copy(update={"backoff_initial_s": 1000.0, "backoff_max_s": 1000.0})))
    await bed.all_ready()
    bed.backend.end(only(bed).token, 1)
    await bed.go(3)
    bed.change(restart=True, paused=True)
    await bed.go(60)
    assert bed.phases() == [Phase.WAITING]
    bed.change(paused=False)
    await bed.go(2)
    assert bed.backend.living() == ["w.script.0.2.u1"]


async def test_taken_down_while_it_is_recycled(bed: Bed) -> None:
    bed.up(script())
    await bed.all_ready()
    bed.backend.made[only(bed).token].is_stubborn = True
    bed.change(restart=True)
    await bed.go(2)
    assert (only(bed).phase, only(bed).ending) == (Phase.STOPPING, Cause.USER)
    bed.change(running=False)
    await bed.go(60)
    assert (bed.phases(), bed.backend.living(), summary(bed)) == ([Phase.STOPPED], [], "DOWN")


async def test_when_its_time_is_over_it_is_ended_and_not_begun_again(bed: Bed) -> None:
    until = bed.clock.now() + 1000
    bed.up(script(replace=RULE.model_copy(update={"policy": "always", "until": until})))
    await bed.all_ready()
    bed.backend.end(only(bed).token, 0)
    await bed.go(60)
    assert only(bed).attempt == 2
    await bed.go(2000)
    assert (bed.phases(), bed.backend.living(), summary(bed)) == ([Phase.STOPPED], [], "DONE")
    assert only(bed).reason.startswith("its time is over")
    bed.change(restart=True)
    await bed.go(600)
    assert bed.backend.living() == []


async def test_a_time_that_was_over_before_the_first_attempt(bed: Bed) -> None:
    """A host that was slow to start, or away: there is nothing left to begin, and whoever waits must hear of it."""
    bed.up(script(replace=RULE.model_copy(update={"policy": "always", "until": bed.clock.now() - 1})))
    await bed.go(10)
    assert (bed.phases(), bed.backend.made, summary(bed)) == ([Phase.STOPPED], {}, "DONE")
    assert only(bed).reason == "its time is over; it was never started"


# Pools


async def test_refused_submissions_go_through_all_pools_before_they_count(bed: Bed) -> None:
    bed.up(script(pools=pools("a", "b"), failover=Failover(retry_per_pool=2)))
    bed.backend.refuse = {f"w.script.0.{attempt}.u1": "no such partition" for attempt in range(1, 1000)}
    await bed.go(10_000)
    asked = [request.pools[0].name for request in bed.backend.requests.values()]
    assert asked == ["a", "a", "b", "b"] * 3
    assert (only(bed).phase, only(bed).failures) == (Phase.FAILED, 3)
    assert only(bed).reason == "given up after 3 failures, the last: refused by b: no such partition"


async def test_what_every_pool_refuses_for_good_is_not_asked_again(bed: Bed) -> None:
    bed.up(script(pools=pools("a", "b"), failover=Failover(retry_per_pool=2)))
    bed.backend.refuse = {f"w.script.0.{attempt}.u1": "no such QOS" for attempt in range(1, 1000)}
    bed.backend.refuses_for_good = True
    await bed.go(60)
    assert [request.pools[0].name for request in bed.backend.requests.values()] == ["a", "b"]
    assert (only(bed).phase, only(bed).reason) == (Phase.FAILED, "refused by b: no such QOS")


async def test_the_wait_grows_only_for_what_fails_soon(bed: Bed) -> None:
    """A run of days fails now and then; each time it has spared the cluster more than the longest wait."""
    rule = RULE.model_copy(update={"max_failures": 100, "backoff_initial_s": 10.0, "backoff_max_s": 300.0})
    bed.up(script(replace=rule))
    waits: list[float] = []
    for run_s in (3600, 3600, 3600, 20, 20):
        await bed.all_ready()
        await bed.go(run_s)
        bed.backend.end(only(bed).token, 1)
        await bed.go(5)
        waits.append(only(bed).not_before - only(bed).since)
    assert max(waits[:3]) <= 10
    assert 10 < waits[3] < waits[4]


async def test_failed_allocations_move_on_and_the_preferred_pool_is_asked_again(bed: Bed) -> None:
    rule = RULE.model_copy(update={"max_failures": 100})
    bed.up(script(replace=rule, pools=pools("a", "b"), failover=Failover(retry_per_pool=2)))
    seen = []
    for _ in range(6):
        await bed.all_ready()
        seen.append(only(bed).pool)
        bed.backend.end(only(bed).token, None, ending=Ending.PREEMPTED)  # type: ignore[arg-type]
        await bed.go(60)
    assert seen == ["a", "a", "b", "b", "a", "a"]
    assert only(bed).pool == "b"
    await bed.go(4000)
    bed.backend.end(only(bed).token, None, ending=Ending.PREEMPTED)  # type: ignore[arg-type]
    await bed.go(60)
    assert (only(bed).pool, only(bed).pool_left_at) == ("a", 0.0)
    assert any("back to the preferred pool a after" in line.reason for line in bed.story())


async def test_a_pool_that_will_never_start_it_is_left_at_once_and_all_of_them_end_it(bed: Bed) -> None:
    bed.backend.starts_at_once = False
    bed.up(script(pools=pools("a", "b")))
    for pool in ("a", "b"):
        await bed.go(3)
        assert (only(bed).pool, only(bed).phase) == (pool, Phase.PENDING)
        made = bed.backend.made[only(bed).token]
        made.seen = replace(made.seen, never="it asks for 9 GPUs a node and none has more than 4")
    await bed.go(60)
    assert (only(bed).phase, only(bed).attempt, only(bed).failures) == (Phase.FAILED, 2, 0)
    assert only(bed).reason == "b will never start it: it asks for 9 GPUs a node and none has more than 4"
    assert bed.backend.living() == []


async def test_hedging_asks_all_pools_and_keeps_the_one_that_started(bed: Bed) -> None:
    bed.up(script(pools=pools("a", "b", "c"), failover=Failover(hedge=True)))
    await bed.go(2)
    request = bed.backend.requests[only(bed).token]
    assert [pool.name for pool in request.pools] == ["a", "b", "c"]
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, pool="b")
    await bed.go(2)
    assert only(bed).pool == "b"
    bed.backend.end(only(bed).token, 1)
    await bed.go(60)
    assert len(bed.backend.requests[only(bed).token].pools) == 3
