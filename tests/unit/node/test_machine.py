"""When a child is restarted and when it is given up: cases as tables."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from remuda.node.child import machine as m
from remuda.policy.backoff import backoff_s
from remuda.wire import exit as codes
from remuda.wire.child import ChildSpec, HealthProbe, RestartRule

PROBE = HealthProbe(interval_s=30, timeout_s=2, startup_timeout_s=100, stall_s=20, unhealthy_restart_after_s=60)
RULE = RestartRule(max_restarts=2, backoff_initial_s=5, backoff_max_s=60, heal_after_s=600)
SPEC = ChildSpec(
    token="t",
    workload="w",
    task="replica/0",
    attempt=1,
    argv=["x"],
    run_dir="/r",
    probe=PROBE,
    restart=RULE,
    kill_grace_s=10,
)
PLAIN = replace(SPEC, probe=None)


def spec(base: ChildSpec = SPEC, *, policy: Any = "on-failure", restarts: int = 2, **fields: Any) -> ChildSpec:
    return replace(base, restart=replace(RULE, policy=policy, max_restarts=restarts), **fields)


class Story:
    """A life told event by event."""

    def __init__(self, of: ChildSpec, now: float = 0.0) -> None:
        self.spec, self.now, self.life = of, now, m.Life()
        self.actions: tuple[m.Action, ...] = ()
        assert self.then(m.Start()).actions == (m.Spawn(),)
        self.then(m.Spawned())

    def then(self, event: m.Event, after: float = 0.0) -> Story:
        self.now += after
        self.life, self.actions = m.step(self.spec, self.life, event, self.now)
        return self

    def until_due(self) -> Story:
        self.now = max(self.now, m.due(self.spec, self.life))
        return self.then(m.Tick())

    def restarted(self) -> Story:
        """Through the backoff to the next running child."""
        assert self.life.phase == m.BACKOFF
        self.until_due()
        assert self.actions == (m.Spawn(),)
        return self.then(m.Spawned())

    def finished(self) -> int | None:
        codes_ = [action.code for action in self.actions if isinstance(action, m.Finish)]
        return codes_[0] if codes_ else None


@pytest.mark.parametrize(
    ("policy", "restarts", "ended", "expected"),
    [
        ("never", 2, m.Ended(0), 0),
        ("never", 2, m.Ended(3), 3),
        ("never", 2, m.Ended(None, 9), 137),
        ("on-failure", 2, m.Ended(0), 0),
        ("on-failure", 2, m.Ended(3), None),
        ("on-failure", 2, m.Ended(None, 11), None),
        ("on-failure", 0, m.Ended(3), 3),
        ("always", 2, m.Ended(0), None),
        ("always", 2, m.Ended(1), None),
        ("always", 0, m.Ended(0), 0),
    ],
)
@pytest.mark.parametrize("base", [SPEC, PLAIN], ids=["probed", "plain"])
def test_what_an_end_means(base: ChildSpec, policy: str, restarts: int, ended: m.Ended, expected: int | None) -> None:
    story = Story(spec(base, policy=policy, restarts=restarts)).then(ended, after=1)
    assert story.finished() == expected
    assert story.life.phase == (m.BACKOFF if expected is None else m.EXITED)


def test_a_plain_command_is_ready_when_it_runs_and_waits_for_nothing() -> None:
    story = Story(PLAIN)
    assert story.life.state == "ready"
    assert m.due(PLAIN, story.life) == m.NEVER


def test_probes_while_starting_get_slower_up_to_two_seconds() -> None:
    story = Story(SPEC)
    times = []
    while story.now < 15:
        story.until_due()
        if m.AskHealth() in story.actions:
            times.append(story.now)
            story.then(m.Probed(0, "nothing listens on the port"))
        if m.Sample() in story.actions:
            story.then(m.Activity(0, story.now))
    assert times[0] == pytest.approx(0.1)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(2.0)
    assert story.life.state == "starting"
    assert story.life.reason == "nothing listens on the port"


def ready(of: ChildSpec = SPEC) -> Story:
    story = Story(of).until_due()
    assert story.actions == (m.AskHealth(),)
    story.then(m.Probed(200))
    assert story.life.state == "ready"
    return story


def test_a_ready_child_is_probed_every_interval_only() -> None:
    story = ready()
    assert m.due(SPEC, story.life) == story.now + 30
    assert story.until_due().actions == (m.AskHealth(),)


def test_one_failed_probe_is_unhealthy_and_one_good_one_heals() -> None:
    story = ready().until_due().then(m.Probed(500, "answers with HTTP status 500"))
    assert (story.life.state, story.life.http_status) == ("unhealthy", 500)
    assert m.due(SPEC, story.life) == story.now + 2
    story.until_due().then(m.Probed(200))
    assert (story.life.state, story.life.reason) == ("ready", "")


def test_unhealthy_for_too_long_is_restarted_with_grace_then_force() -> None:
    story = ready().until_due().then(m.Probed(0, "no answer in time"))
    since = story.now
    while story.actions != (m.Terminate(),):
        story.until_due()
        if m.AskHealth() in story.actions:
            story.then(m.Probed(0, "no answer in time"), after=2)
    assert since + 60 <= story.now <= since + 64
    assert story.life.state == "backoff"
    assert "unhealthy for" in story.life.reason
    assert story.until_due().actions == (m.Kill(),)
    story.then(m.Ended(None, 9)).restarted()
    assert (story.life.state, story.life.restarts) == ("starting", 1)


def test_a_start_that_takes_too_long_is_restarted() -> None:
    story = Story(SPEC)
    while story.actions != (m.Terminate(),):
        story.until_due()
        if m.Sample() in story.actions:
            story.then(m.Activity(int(story.now), story.now))
        elif m.AskHealth() in story.actions:
            story.then(m.Probed(503, "answers with HTTP status 503"))
    assert story.now == pytest.approx(100)
    assert "not ready for 100 s: answers with HTTP status 503" in story.life.reason


def test_a_child_that_will_never_be_healthy_is_restarted_at_once_while_it_starts() -> None:
    story = Story(SPEC)
    story.then(m.Probed(0, "printed «it is over»", hopeless=True))
    assert (story.life.phase, story.actions) == (m.ENDING, (m.Terminate(),))
    assert story.life.reason == "printed «it is over»"
    served = Story(SPEC)
    served.then(m.Probed(200))
    served.then(m.Probed(0, "printed «it is over»", hopeless=True))
    assert served.life.phase == m.UNHEALTHY, "what has served may print what it was asked"


@pytest.mark.parametrize(
    ("logs", "cpu_share", "hangs"),
    [(False, 0.0, True), (False, 0.0005, True), (True, 0.0, False), (False, 0.01, False)],
)
def test_a_start_without_any_sign_of_life_is_restarted(logs: bool, cpu_share: float, hangs: bool) -> None:
    story = Story(SPEC)
    while story.now < 60 and story.actions != (m.Terminate(),):
        story.until_due()
        if m.Sample() in story.actions:
            story.then(m.Activity(int(story.now) if logs else 40, story.now * cpu_share))
    assert (story.actions == (m.Terminate(),)) == hangs
    if hangs:
        assert 20 <= story.now <= 31
        assert "hangs while starting" in story.life.reason


def test_limits_of_zero_are_off() -> None:
    probe = replace(PROBE, startup_timeout_s=0, stall_s=0, unhealthy_restart_after_s=0)
    story = Story(replace(SPEC, probe=probe)).then(m.Tick(), after=10**6)
    assert story.actions == (m.AskHealth(),)
    story.then(m.Probed(200)).then(m.Probed(0, "gone")).then(m.Tick(), after=10**6)
    assert story.life.state == "unhealthy"
    assert story.actions == (m.AskHealth(),)


def test_restarts_are_bounded_and_waits_grow() -> None:
    story = Story(SPEC)
    for count in (1, 2):
        story.then(m.Ended(1), after=1)
        assert m.due(SPEC, story.life) == story.now + backoff_s(count, 5, 60, key="t")
        assert f"exit code 1; restart {count} of 2" in story.life.reason
        story.restarted()
    story.then(m.Ended(1), after=1)
    assert story.finished() == codes.GAVE_UP
    assert "2 restarts are used up" in story.life.reason
    assert (story.life.restarts, story.life.exit_code) == (2, 1)


@pytest.mark.parametrize(("healthy_s", "used"), [(599, 2), (601, 1)])
def test_a_healthy_stretch_gives_restarts_back(healthy_s: float, used: int) -> None:
    story = Story(SPEC).then(m.Ended(1)).restarted().until_due().then(m.Probed(200))
    story.then(m.Ended(1), after=healthy_s)
    assert story.life.used == used
    assert story.life.restarts == 2


def test_a_healthy_stretch_counts_also_when_it_ends_unhealthy() -> None:
    story = Story(SPEC).then(m.Ended(1)).restarted().until_due().then(m.Probed(200))
    story.then(m.Probed(0, "deaf"), after=700).then(m.Ended(1))
    assert story.life.used == 1


def test_hung_without_restarts_ends_as_hung() -> None:
    for of in (spec(policy="never"), spec(restarts=0)):
        story = ready(of).then(m.Probed(0, "deaf")).then(m.Tick(), after=61)
        assert story.actions == (m.Terminate(),)
        assert story.life.state == "stopping"
        story.then(m.Ended(None, 15))
        assert story.finished() == codes.HUNG
        assert "restarts are off" in story.life.reason


def test_a_taken_port_is_changed_without_counting_up_to_a_bound() -> None:
    story = Story(SPEC)
    for _ in range(m.MAX_PORT_MOVES):
        story.then(m.Ended(1, port_taken=True), after=0.1)
        assert story.actions == (m.Spawn(move_port=True),)
        assert story.life.used == 0
        story.then(m.Spawned())
    story.then(m.Ended(1, port_taken=True), after=0.1)
    assert story.life.phase == m.BACKOFF


def test_a_fixed_port_is_not_changed() -> None:
    story = Story(replace(SPEC, port=80, port_fixed=True)).then(m.Ended(1, port_taken=True))
    assert story.life.phase == m.BACKOFF


def test_asked_to_end_it_gets_its_grace_then_force() -> None:
    story = ready().then(m.Stop("asked"))
    assert (story.actions, story.life.state) == ((m.Terminate(),), "stopping")
    assert m.due(SPEC, story.life) == story.now + 10
    assert story.until_due().actions == (m.Kill(),)
    story.then(m.Ended(None, 9))
    assert story.finished() == codes.STOPPED


def test_asked_twice_it_is_killed_at_once() -> None:
    assert ready().then(m.Stop("asked")).then(m.Stop("asked")).actions == (m.Kill(),)


def test_asked_to_end_between_two_tries_nothing_is_left_to_wait_for() -> None:
    assert Story(SPEC).then(m.Ended(1)).then(m.Stop("asked")).finished() == codes.STOPPED


def test_asked_to_end_while_ending_for_a_restart_it_does_not_restart() -> None:
    story = ready().then(m.Probed(0, "deaf")).then(m.Tick(), after=61)
    kill_at = m.due(SPEC, story.life)
    story.then(m.Stop("asked"), after=1)
    assert story.actions == ()
    assert m.due(SPEC, story.life) == kill_at
    assert story.then(m.Ended(0)).finished() == codes.STOPPED


def test_a_process_that_does_not_die_is_left_behind_in_the_end() -> None:
    story = ready().then(m.Stop("asked")).until_due()
    assert story.actions == (m.Kill(),)
    story.until_due()
    assert story.finished() == codes.STOPPED
    assert "did not disappear" in story.life.reason


def test_what_cannot_start_is_not_tried_again() -> None:
    life, _ = m.step(SPEC, m.Life(), m.Start(), 0)
    life, actions = m.step(SPEC, life, m.CannotStart(codes.CANNOT_START, "not found"), 0)
    assert actions == (m.Finish(codes.CANNOT_START),)
    assert life.reason == "not found"


def test_a_machine_out_of_processes_is_tried_again_if_the_rule_allows() -> None:
    life, _ = m.step(SPEC, m.Life(), m.Start(), 0)
    assert m.step(SPEC, life, m.SpawnFailed("no memory"), 0)[0].phase == m.BACKOFF
    assert m.step(spec(policy="never"), life, m.SpawnFailed("no memory"), 0)[1] == (m.Finish(codes.CANNOT_START),)


@pytest.mark.parametrize("late", [m.Probed(200), m.Activity(1, 1.0), m.Tick(), m.Spawned(), m.Start()], ids=str)
def test_what_comes_too_late_changes_nothing(late: m.Event) -> None:
    story = Story(SPEC).then(m.Ended(1))
    before = story.life
    assert story.then(late).life == before
    assert story.actions == ()
