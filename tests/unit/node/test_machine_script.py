"""What else may end a script: its time limit, a stall, a fault of the node, a newer attempt. Cases as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.node.test_machine import RULE, SPEC, Story

from remuda.node.child import machine as m
from remuda.wire import exit as codes
from remuda.wire.child import RunWatch

SCRIPT = replace(SPEC, probe=None, restart=replace(RULE, policy="never"), watch=RunWatch())
END = m.End(codes.STALLED, "no progress")


def test_what_must_end_gets_its_grace_and_then_force() -> None:
    story = Story(SCRIPT).then(END, after=5)
    assert (story.actions, story.life.state) == ((m.Terminate(),), "stopping")
    assert m.due(SCRIPT, story.life) == story.now + SCRIPT.kill_grace_s
    assert story.then(END).actions == ()
    assert story.until_due().actions == (m.Kill(),)
    story.then(m.Ended(None, 9))
    assert story.finished() == codes.STALLED
    assert story.life.reason == "no progress; killed by signal 9"


@pytest.mark.parametrize("ended", [m.Ended(0), m.Ended(3), m.Ended(None, 15)])
def test_what_had_to_end_has_that_code_however_it_ends(ended: m.Ended) -> None:
    assert Story(SCRIPT).then(END).then(ended).finished() == codes.STALLED


def test_asked_to_end_while_it_must_end_it_is_stopped() -> None:
    assert Story(SCRIPT).then(END).then(m.Stop("asked")).then(m.Ended(0)).finished() == codes.STOPPED


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        (m.Ended(0), 0),
        (m.Ended(0, unfinished=True), codes.TIME_UP),
        (m.Ended(1), codes.TIME_UP),
        (m.Ended(None, 15), codes.TIME_UP),
    ],
)
def test_an_end_after_the_warning(ended: m.Ended, code: int) -> None:
    story = Story(SCRIPT).then(m.Warned())
    assert story.actions == ()
    assert story.then(ended, after=50).finished() == code


@pytest.mark.parametrize("ended", [m.Ended(0, unfinished=True), m.Ended(0)])
def test_without_a_warning_an_unfinished_success_is_one(ended: m.Ended) -> None:
    assert Story(SCRIPT).then(ended).finished() == 0


def test_a_request_after_the_warning_is_the_time_limit() -> None:
    story = Story(SCRIPT).then(m.Warned()).then(m.Stop("asked"))
    assert story.actions == (m.Terminate(),)
    assert story.then(m.Ended(0)).finished() == codes.TIME_UP


@pytest.mark.parametrize(("after", "killed"), [(0.0, False), (1.9, False), (2.1, True)])
def test_a_request_that_comes_in_two_ways_is_one(after: float, killed: bool) -> None:
    story = Story(SCRIPT).then(m.Stop("asked")).then(m.Stop("asked"), after=after)
    assert story.actions == ((m.Kill(),) if killed else ())
    assert story.life.in_grace is not killed


def test_fenced_it_is_killed_without_grace() -> None:
    story = Story(SCRIPT).then(m.FencedOff("a2 counts"))
    assert story.actions == (m.Kill(),)
    assert not story.life.in_grace
    for late in (m.FencedOff("a2 counts"), m.Stop("asked"), END, m.Warned()):
        assert story.then(late).actions == ()
    assert story.then(m.Ended(None, 9)).finished() == codes.FENCED


def test_fenced_while_it_is_stopped_too() -> None:
    story = Story(SCRIPT).then(m.Stop("asked")).then(m.FencedOff("a2 counts"))
    assert story.actions == (m.Kill(),)
    assert story.then(m.Ended(0)).finished() == codes.FENCED


def test_fenced_and_immortal_it_is_left_behind() -> None:
    story = Story(SCRIPT).then(m.FencedOff("a2 counts")).until_due()
    assert story.finished() == codes.FENCED


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (m.FencedOff("a2 counts"), codes.FENCED),
        (m.CannotStart(codes.NO_GPU, "none"), codes.NO_GPU),
        (m.Warned(), codes.TIME_UP),
        (END, codes.STALLED),
        (m.Stop("asked"), codes.STOPPED),
    ],
    ids=str,
)
def test_before_the_start_nothing_is_left_to_wait_for(event: m.Event, code: int) -> None:
    life, actions = m.step(SCRIPT, m.Life(), event, 1.0)
    assert actions == (m.Finish(code),)
    assert life.phase == m.EXITED
