"""A clock that is set, and a host that took no turn: nothing is begun again, and nothing waits longer than its rule."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.supervise.bed import only
from tests.unit.supervise.build import ENDED_1, group, key, script
from tests.unit.supervise.test_hearing import herd, on, speak

from remuda.backends.base import Feature, Life
from remuda.base.errors import RemudaError
from remuda.plan.model import Watch
from remuda.store.rows import Evidence
from remuda.supervise import facts
from remuda.supervise.failures.ends import after_end
from remuda.supervise.model import Phase, Task
from remuda.supervise.shifted import believed, shifted
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.supervise.bed import Bed

WATCH = Watch(heartbeat_interval_s=30, heartbeat_grace_s=90)
HOUR, DAY = 3600.0, 86400.0
SETTINGS = [HOUR, -HOUR, DAY, -DAY]


async def beat(bed: Bed, seconds: float) -> None:
    """Let time pass in which the run's heartbeat is seen in its files."""
    for _ in range(int(seconds / 30)):
        made = bed.backend.made[only(bed).token]
        made.seen = replace(made.seen, report=replace(bed.backend.report(only(bed).token), state="ready"))
        await bed.go(30)


async def running(bed: Bed) -> str:
    bed.backend.features = frozenset({Feature.EXCLUDE_NODES})
    bed.up(script(watch=WATCH))
    await bed.go(1)
    await beat(bed, 120)
    assert only(bed).phase is Phase.READY
    return only(bed).token


@pytest.mark.parametrize("by", SETTINGS)
async def test_a_clock_that_is_set_is_nobodys_silence(bed: Bed, by: float) -> None:
    token = await running(bed)
    for _ in range(5):
        await beat(bed, 60)
        bed.clock.set_by(by)
        await bed.go(25)
    assert (only(bed).token, only(bed).phase, only(bed).failures) == (token, Phase.READY, 0)
    assert not bed.journal.store.evidence(0.0)


@pytest.mark.parametrize("by", SETTINGS)
async def test_the_clock_of_a_node_is_compared_with_nobodys(bed: Bed, by: float) -> None:
    token = await running(bed)
    for _ in range(20):
        made = bed.backend.made[token]
        report = bed.backend.report(token)
        made.seen = replace(made.seen, report=replace(report, at=report.at + by))
        await bed.go(30)
    assert (only(bed).token, only(bed).phase) == (token, Phase.READY)
    await bed.go(200)
    assert only(bed).attempt == 2, "and its silence is noticed all the same"


@pytest.mark.parametrize("by", SETTINGS)
async def test_silence_is_noticed_however_often_the_clock_is_set(bed: Bed, by: float) -> None:
    await running(bed)
    for number in range(20):
        bed.clock.set_by(by if number % 2 else -by)
        await bed.go(10)
    assert only(bed).attempt == 2


@pytest.mark.parametrize("stop_s", [120.0, HOUR, DAY])
async def test_a_host_that_was_stopped_concludes_nothing(bed: Bed, stop_s: float) -> None:
    token = await running(bed)
    for _ in range(3):
        await beat(bed, 60)
        bed.clock.stop(stop_s)
        await bed.go(100)  # the node program goes on later
    assert (only(bed).token, only(bed).phase) == (token, Phase.READY)
    assert not bed.journal.store.evidence(0.0)
    await bed.go(60)
    assert only(bed).attempt == 2, "silence is silence in the end"


async def test_a_new_host_listens_before_it_concludes(bed: Bed) -> None:
    token = await running(bed)
    bed.clock.advance(DAY)
    bed.new_host()
    await bed.go(100)
    assert (only(bed).token, only(bed).phase) == (token, Phase.READY)
    await bed.go(60)
    assert only(bed).attempt == 2


@pytest.mark.parametrize("by", SETTINGS)
async def test_a_swarm_is_heard_through_both(bed: Bed, by: float) -> None:
    await herd(bed)
    on(bed, 2, "another-node")
    for _ in range(4):
        bed.clock.set_by(by)
        await speak(bed, (0, 1), 4)
        bed.clock.stop(300)
        await speak(bed, (0, 1), 4)
        await speak(bed, range(3), 4)
    assert bed.phases() == [Phase.READY] * 3
    assert [bed.task(index).attempt for index in range(3)] == [1] * 3
    await speak(bed, (0, 1), 90)
    assert bed.task(2).attempt == 2


@pytest.mark.parametrize("by", SETTINGS)
@pytest.mark.parametrize("restarted", [False, True], ids=["running on", "a new host"])
async def test_a_wait_lasts_as_long_as_it_was_to_last(bed: Bed, by: float, *, restarted: bool) -> None:
    """On another clock that nobody saw being set it may be over too early, never too late."""
    bed.up(group(count=1))
    await bed.go(1)
    bed.backend.end(bed.task().token, exit_code=1)
    await bed.go(2)
    assert bed.task().phase is Phase.WAITING
    left = bed.task().not_before - bed.clock.now()
    assert 5 < left <= 10
    if restarted:
        bed.clock._now += by
        bed.new_host()
        assert bed.task().not_before - bed.clock.now() <= 10
    else:
        bed.clock.set_by(by)
        await bed.go(left - 2)
        assert bed.task().phase is Phase.WAITING
    await bed.go(12)
    assert bed.task().attempt == 2


async def test_who_was_asked_to_end_has_its_grace_after_a_gap(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    bed.backend.made[bed.task().token].is_stubborn = True
    bed.change(running=False)
    await bed.go(1)
    assert bed.task().phase is Phase.STOPPING
    left = bed.task().kill_at - bed.clock.now()
    bed.clock.stop(HOUR)
    await bed.go(left - 2)
    assert bed.backend.living(), "it is not killed before its time"
    await bed.go(10)
    assert not bed.backend.living()


@pytest.mark.parametrize("by", [DAY, -DAY])
async def test_what_is_recorded_moves_with_the_clock(bed: Bed, by: float) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    now = bed.clock.now()
    bed.store.add_evidence(bed.journal.fence, [Evidence(node="n", at=now, kind="ban", expires_at=now + 600)])
    since = bed.task().since
    bed.clock.set_by(by)
    await bed.go(300)
    assert bed.journal.tasks()[0].since == since + by == bed.task().since
    assert len(bed.journal.store.evidence(bed.clock.now())) == 1
    await bed.go(301)
    assert not bed.journal.store.evidence(bed.clock.now())


async def test_what_cannot_be_recorded_is_not_followed(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await running(bed)

    def full(*_: object) -> None:
        raise RemudaError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("remuda.supervise.clock_jumps.move_times", full)
        bed.clock.set_by(DAY)
        await beat(bed, 60)
        assert bed.clock.drift() == DAY
    await beat(bed, 60)
    assert bed.clock.drift() == 0.0
    assert (only(bed).token, only(bed).phase) == (token, Phase.READY)


@pytest.mark.parametrize("by", SETTINGS)
def test_how_long_it_ran_is_not_what_a_node_says_it_is_now(by: float) -> None:
    """An end that was noted by a clock that was set meanwhile is no quick failure, and no long run either."""
    rule = script().replace.model_copy(update={"quick_s": 120.0, "quick_limit": 1, "backoff_max_s": 7200.0})
    task = Task(key(group_name="script"), "fake", Phase.READY, 1, started_at=1000.0)
    seen = replace(ENDED_1, ended_at=1600.0 + by)
    after = after_end(task, script(replace=rule), seen, 1600.0)
    assert after.phase is Phase.WAITING
    seen = replace(ENDED_1, started_at=1000.0, ended_at=1600.0 + by)
    assert after_end(task, script(replace=rule), seen, 1600.0).phase is Phase.WAITING


@pytest.mark.parametrize("by", SETTINGS)
def test_the_first_report_after_a_requeue_is_known_by_its_number(by: float) -> None:
    """Counted from the beginning again, on another node with another clock; and the old file still lies there."""
    task = Task(
        key(group_name="script"), "fake", Phase.STARTING, 1, token="t", seq=40, requeues=1, last_seen=900.0,
        started_at=1000.0,
    )  # fmt: skip
    old = Report(token="t", attempt=1, seq=38, at=890.0 + by, state="ready", start=0)
    new = Report(token="t", attempt=1, seq=1, at=1010.0 + by, state="ready", start=1)
    assert facts.reported(task, old, 1010.0).phase is Phase.STARTING
    assert facts.reported(task, new, 1010.0).phase is Phase.READY


QUEUED = Task(
    key(group_name="script"), "fake", Phase.PENDING, 1, token="t", seq=40, requeues=1, last_seen=900.0, since=905.0
)
LOOKED_AT = replace(QUEUED, phase=Phase.STARTING, started_at=1000.0)
BEGUN = replace(LOOKED_AT, seq=3, last_seen=1003.0)


@pytest.mark.parametrize(
    ("task", "start", "seq", "at", "is_taken"),
    [
        pytest.param(QUEUED, 1, 0, 990.0, True, id="before a look has seen it run"),
        pytest.param(QUEUED, 0, 38, 890.0, False, id="of the start before"),
        pytest.param(QUEUED, -1, 0, 990.0, True, id="of a pod, before a look has seen it run"),
        pytest.param(LOOKED_AT, -1, 0, 990.0, True, id="of a pod, written before the look"),
        pytest.param(LOOKED_AT, -1, 40, 1001.0, True, id="of a pod, with the number of the last"),
        pytest.param(QUEUED, -1, 38, 890.0, False, id="of the pod before, late"),
        pytest.param(LOOKED_AT, -1, 38, 890.0, False, id="of the pod before, later"),
        pytest.param(BEGUN, 1, 2, 1002.0, False, id="late"),
        pytest.param(BEGUN, -1, 2, 1002.0, False, id="of a pod, late"),
        pytest.param(replace(QUEUED, requeues=0), -1, 38, 990.0, False, id="of what was not put back"),
    ],
)
def test_which_reports_are_news_after_a_requeue(task: Task, start: int, seq: int, at: float, is_taken: bool) -> None:
    heard = facts.reported(task, Report(token="t", attempt=1, seq=seq, at=at, state="ready", start=start), 1010.0)
    assert (heard.phase is Phase.READY, heard.seq) == ((True, seq) if is_taken else (False, task.seq))


TIMES = st.floats(1.0, 2e9)
TASKS = st.builds(
    Task, st.just(key()), st.just("fake"), st.sampled_from(Phase), since=TIMES, not_before=TIMES, kill_at=TIMES,
    started_at=st.one_of(st.just(0.0), TIMES), ready_since=st.one_of(st.just(0.0), TIMES), last_seen=TIMES,
)  # fmt: skip


@given(TASKS, TIMES, st.floats(0.0, 300.0))
def test_whatever_was_recorded_no_wait_is_longer_than_its_rule(task: Task, now: float, rule_s: float) -> None:
    task = replace(task, not_before=task.since + rule_s, kill_at=task.since + rule_s)
    found = believed(task, now)
    assert found.not_before <= now + rule_s + 1e-3
    assert found.kill_at <= now + rule_s + 1e-3
    assert max(found.since, found.started_at, found.last_seen, found.ready_since) <= now + 1e-3


@given(TASKS, st.floats(-1e6, 1e6))
def test_moving_keeps_what_never_was_and_every_distance(task: Task, by: float) -> None:
    by = max(by, 1.0 - min(at for at in (task.since, task.not_before, task.kill_at, task.last_seen)))
    found = shifted(task, by)
    assert (found.started_at == 0.0) is (task.started_at == 0.0)
    assert found.not_before - found.since == pytest.approx(task.not_before - task.since, abs=1e-3)
    assert (found.limit_at, found.phase, found.attempt) == (task.limit_at, task.phase, task.attempt)


NUMBERS = itertools.count()
STEPS = st.lists(
    st.tuples(st.sampled_from(["go", "set", "stop", "beat"]), st.floats(-1e5, 1e5, allow_nan=False)),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_whatever_happens_to_the_time_a_run_that_beats_is_left_alone(
    make_bed: Callable[[str], Bed], steps: list[tuple[str, float]]
) -> None:
    bed = make_bed(f"any{next(NUMBERS)}")
    token = await running(bed)
    for what, number in steps:
        if what == "set":
            bed.clock.set_by(number)
        elif what == "stop":
            bed.clock.stop(abs(number))
        await beat(bed, 60)
    assert (only(bed).token, only(bed).phase, only(bed).failures) == (token, Phase.READY, 0)
    assert bed.backend.made[token].seen.life is Life.RUNNING
