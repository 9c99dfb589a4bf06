"""What a fact makes of a task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.supervise.build import ENDED_0, ENDED_1, GONE, RUNS, group, key, report

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed
from remuda.plan.model import Replace, Role
from remuda.supervise import facts
from remuda.supervise.failures.causes import classify
from remuda.supervise.model import MOVES, Cause, Event, IllegalMove, Phase, Task, move
from remuda.wire import exit as node_exit

NOW = 1000.0
TOKEN = "w.replica.0.1.u1"
BASE = Task(key(), "fake", attempt=1, token=TOKEN, phase=Phase.PENDING)


def in_phase(phase: Phase, **changes: object) -> Task:
    return replace(BASE, phase=phase, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phase", "state", "expected"),
    [
        (Phase.SUBMITTING, "ready", Phase.READY),
        (Phase.PENDING, "starting", Phase.STARTING),
        (Phase.PENDING, "ready", Phase.READY),
        (Phase.PENDING, "backoff", Phase.STARTING),
        (Phase.STARTING, "ready", Phase.READY),
        (Phase.STARTING, "unhealthy", Phase.UNHEALTHY),
        (Phase.READY, "unhealthy", Phase.UNHEALTHY),
        (Phase.READY, "starting", Phase.STARTING),
        (Phase.READY, "backoff", Phase.STARTING),
        (Phase.UNHEALTHY, "ready", Phase.READY),
        (Phase.UNHEALTHY, "backoff", Phase.STARTING),
        (Phase.READY, "exited", Phase.READY),
        (Phase.STOPPING, "ready", Phase.STOPPING),
        (Phase.WAITING, "ready", Phase.WAITING),
        (Phase.STOPPED, "ready", Phase.STOPPED),
    ],
)
def test_reports_move_tasks(phase: Phase, state: str, expected: Phase) -> None:
    assert facts.reported(in_phase(phase), report(TOKEN, state, 1), NOW).phase is expected


def test_a_report_of_another_allocation_changes_nothing() -> None:
    task = in_phase(Phase.STARTING)
    assert facts.reported(task, report("w.replica.0.2.u1", "ready", 1), NOW) is task


def test_a_stale_report_changes_nothing() -> None:
    task = in_phase(Phase.UNHEALTHY, seq=7)
    assert facts.reported(task, report(TOKEN, "ready", 7), NOW) is task


def test_the_url_is_known_only_while_it_runs() -> None:
    ready = facts.reported(in_phase(Phase.STARTING), report(TOKEN, "ready", 1), NOW)
    assert ready.url == "http://127.0.0.1:8000"
    assert facts.observed(ready, group(), ENDED_1, NOW).url == ""


def test_running_without_report_is_not_ready() -> None:
    assert facts.observed(BASE, group(), RUNS, NOW).phase is Phase.STARTING


def test_what_a_backend_says_of_what_runs_is_told_as_long_as_it_says_so() -> None:
    held = facts.observed(in_phase(Phase.READY), group(), replace(RUNS, reason="it is suspended"), NOW)
    assert (held.phase, held.reason) == (Phase.READY, "fake: it is suspended")
    assert facts.observed(held, group(), RUNS, NOW).reason == "runs"
    told = facts.reported(held, report(TOKEN, "unhealthy", 1), NOW)
    assert facts.observed(told, group(), RUNS, NOW).reason == told.reason


def test_who_should_have_reported_says_why_it_may_not_have() -> None:
    seen = replace(RUNS, mute="pods do not reach the host", unread=True)
    server, script = group(), group().model_copy(update={"probe": None})
    assert facts.observed(BASE, server, seen, NOW).reason == "pods do not reach the host"
    assert facts.observed(BASE, script, seen, NOW).phase is Phase.READY, "it is taken for that"
    heard = facts.reported(BASE, report(TOKEN, "starting", 1), NOW)
    assert facts.observed(heard, server, seen, NOW).reason == heard.reason


def test_failures_back_off_and_end() -> None:
    rule = Replace(max_failures=3, backoff_initial_s=10, backoff_max_s=60)
    task = in_phase(Phase.READY, ready_since=NOW - 1)
    waits = []
    for _ in range(3):
        task = facts.observed(replace(task, phase=Phase.READY), group(replace=rule), ENDED_1, NOW)
        waits.append(task.not_before - NOW)
    assert task.phase is Phase.FAILED
    assert "given up after 3 failures" in task.reason
    assert 8 <= waits[0] <= 10
    assert 16 <= waits[1] <= 20


NODE_FAILED = Observed(Life.ENDED, native_state="NODE_FAIL", ending=Ending.NODE_FAILED, reason="its node failed")


@pytest.mark.parametrize("role", [Role.REPLICA, Role.ROUTER, Role.RELAY])
@pytest.mark.parametrize("ending", [Ending.NODE_FAILED, Ending.NOT_STARTED, Ending.LOST, Ending.PREEMPTED])
def test_a_server_is_not_given_up_for_what_befell_its_nodes(role: Role, ending: Ending) -> None:
    """It waits longer each time, up to the bound, and a failure of its own is still its first."""
    rule = Replace(max_failures=3, backoff_initial_s=10, backoff_max_s=60)
    task, waits = in_phase(Phase.READY, ready_since=NOW - 1), []
    for _ in range(12):
        seen = replace(NODE_FAILED, ending=ending)
        task = facts.observed(replace(task, phase=Phase.READY), group(replace=rule, role=role), seen, NOW)
        assert (task.phase, task.failures) == (Phase.WAITING, 0)
        waits.append(task.not_before - NOW)
    assert max(waits) <= 60
    assert waits[-1] >= (8 if ending is Ending.PREEMPTED else 48)
    task = facts.observed(replace(task, phase=Phase.READY), group(replace=rule, role=role), ENDED_1, NOW)
    assert (task.phase, task.failures) == (Phase.WAITING, 1)


def test_a_script_pays_for_its_nodes() -> None:
    rule = Replace(max_failures=3, policy="on-failure")
    task = in_phase(Phase.READY)
    for _ in range(3):
        task = facts.observed(replace(task, phase=Phase.READY), group(replace=rule, role=Role.SCRIPT), NODE_FAILED, NOW)
    assert task.phase is Phase.FAILED


def test_a_long_healthy_stretch_sets_failures_back() -> None:
    task = in_phase(Phase.READY, failures=2, ready_since=NOW - 700)
    assert facts.observed(task, group(), ENDED_1, NOW).failures == 1
    assert facts.healed(task, group(), NOW).failures == 0
    assert facts.healed(replace(task, ready_since=NOW - 10), group(), NOW).failures == 2


@pytest.mark.parametrize(
    ("policy", "seen", "expected"),
    [
        ("always", ENDED_0, Phase.WAITING),
        ("on-failure", ENDED_0, Phase.DONE),
        ("never", ENDED_0, Phase.DONE),
        ("always", ENDED_1, Phase.WAITING),
        ("on-failure", ENDED_1, Phase.WAITING),
        ("never", ENDED_1, Phase.FAILED),
        ("on-failure", GONE, Phase.WAITING),
    ],
)
def test_replace_policy(policy: str, seen: Observed, expected: Phase) -> None:
    rule = Replace(policy=policy, max_failures=3)
    assert facts.observed(in_phase(Phase.READY), group(replace=rule), seen, NOW).phase is expected


def test_what_was_asked_to_stop_has_stopped_whatever_its_exit_code() -> None:
    for seen in (ENDED_0, ENDED_1, GONE):
        task = facts.observed(in_phase(Phase.STOPPING, failures=1), group(), seen, NOW)
        assert (task.phase, task.failures) == (Phase.STOPPED, 1)


def test_a_refusal_counts_and_ends() -> None:
    task = replace(BASE, phase=Phase.SUBMITTING, failures=2)
    assert facts.refused(task, group(), "no such partition", NOW).phase is Phase.FAILED


def test_no_answer_keeps_the_token() -> None:
    task = facts.put_off(replace(BASE, phase=Phase.SUBMITTING), "timed out", NOW)
    assert (task.phase, task.token, task.failures) == (Phase.SUBMITTING, TOKEN, 0)
    assert task.not_before > NOW


@pytest.mark.parametrize(
    ("seen", "cause", "permanent", "counts"),
    [
        (GONE, Cause.UNKNOWN, False, True),
        (ENDED_0, Cause.NONE, False, True),
        (ENDED_1, Cause.APPLICATION, False, True),
        (Observed(Life.ENDED, exit_code=node_exit.GAVE_UP), Cause.APPLICATION, False, True),
        (Observed(Life.ENDED, exit_code=node_exit.CANNOT_START), Cause.USER, True, True),
        (Observed(Life.ENDED, exit_code=node_exit.STOPPED), Cause.USER, False, False),
        (Observed(Life.ENDED, native_state="rebooted"), Cause.NODE, False, False),
        (Observed(Life.ENDED, signal=9), Cause.UNKNOWN, False, True),
        (Observed(Life.ENDED), Cause.UNKNOWN, False, True),
        (Observed(Life.ENDED, exit_code=82, native_state=CHILD_ENDED), Cause.APPLICATION, False, True),
    ],
)
def test_causes(seen: Observed, cause: Cause, permanent: bool, counts: bool) -> None:
    verdict = classify(seen)
    assert (verdict.cause, verdict.permanent, verdict.counts) == (cause, permanent, counts)
    assert verdict.reason


def test_a_permanent_cause_is_given_up_at_once() -> None:
    seen = Observed(Life.ENDED, exit_code=node_exit.CANNOT_START, reason="no program 'vllm'")
    task = facts.observed(BASE, group(), seen, NOW)
    assert (task.phase, task.reason) == (Phase.FAILED, "no program 'vllm'")


def test_a_move_that_the_table_does_not_know_tells_its_story() -> None:
    with pytest.raises(IllegalMove, match=r"w/replica/0: probe-ok in phase stopped"):
        move(in_phase(Phase.STOPPED), Event.PROBE_OK, NOW)


def test_every_phase_has_a_way_out_and_a_way_in() -> None:
    assert {phase for phase, _ in MOVES} == set(Phase)
    assert set(MOVES.values()) == set(Phase)


LINGERS = replace(RUNS, native_state="COMPLETING", lingers=True)
"""What a scheduler says for minutes of a job that it has ended, and whose node it does not hear."""
ENDED_FOR = in_phase(Phase.STOPPING, since=NOW, last_seen=NOW - 60, ending=Cause.NODE)
LATER = NOW + 40.0


@pytest.mark.parametrize(
    ("task", "role", "seen", "now", "expected"),
    [
        pytest.param(ENDED_FOR, Role.REPLICA, LINGERS, LATER, True, id="a replica"),
        pytest.param(ENDED_FOR, Role.DECODE, LINGERS, LATER, True, id="a worker"),
        pytest.param(ENDED_FOR, Role.REPLICA, LINGERS, LATER - 1, False, id="its node may be killing it"),
        pytest.param(ENDED_FOR, Role.SCRIPT, LINGERS, LATER, False, id="a script may write still"),
        pytest.param(ENDED_FOR, Role.RANK, LINGERS, LATER, False, id="so may a rank"),
        pytest.param(ENDED_FOR, Role.DRIVER, LINGERS, LATER, False, id="so may a driver"),
        pytest.param(ENDED_FOR, Role.SERVICE, LINGERS, LATER, False, id="so may a service"),
        pytest.param(ENDED_FOR, Role.REPLICA, RUNS, LATER, False, id="it was not ended yet"),
        pytest.param(ENDED_FOR, Role.REPLICA, replace(LINGERS, unread=True), LATER, False, id="it could not be read"),
        pytest.param(replace(ENDED_FOR, last_seen=NOW), Role.REPLICA, LINGERS, LATER, False, id="it was heard since"),
        pytest.param(replace(ENDED_FOR, ending=Cause.UNKNOWN), Role.REPLICA, LINGERS, LATER, False, id="node heard"),
        pytest.param(replace(ENDED_FOR, ending=Cause.NONE), Role.REPLICA, LINGERS, LATER, False, id="it is not wanted"),
        pytest.param(replace(ENDED_FOR, phase=Phase.READY), Role.REPLICA, LINGERS, LATER, False, id="others ended it"),
    ],
)  # fmt: skip
def test_for_whose_end_nobody_waits(task: Task, role: Role, seen: Observed, now: float, *, expected: bool) -> None:
    seen = facts.given_up(task, group(role=role), seen, now)
    after = facts.observed(task, group(role=role), seen, now)
    assert (after.phase is Phase.WAITING) is expected
    assert (seen.ending is Ending.NODE_FAILED) is expected


def test_what_shares_its_job_with_others_waits_for_its_end() -> None:
    packed = group().model_copy(update={"together": True})
    assert facts.given_up(ENDED_FOR, packed, LINGERS, LATER) is LINGERS
