"""What can be done to a workload in each state, and what that does, with facts."""

from __future__ import annotations

from typing import Any

import click
import pytest

from remuda.cli.show import agrees
from remuda.views.actions import Action, actions, cleaning
from remuda.views.workloads import TaskView, WorkloadView


def view(phase: str, *tasks: str, kind: str = "swarm", **changes: Any) -> WorkloadView:
    """Of tasks `ROLE PHASE`."""
    bare: Any = TaskView
    made = [bare.model_construct(role=role, phase=state) for role, state in (task.split() for task in tasks)]
    given = {"load": {}, "paused": False, "wanted": len(made), "run_dir": "/h/workloads/w", **changes}
    whole: Any = WorkloadView
    found: WorkloadView = whole.model_construct(name="w", kind=kind, phase=phase, tasks=made, **given)
    return found


UP = ("replica ready", "replica starting", "replica stopped", "router ready")


@pytest.mark.parametrize(
    ("seen", "enabled"),
    [
        (view("RUNNING", *UP), "down restart pause scale"),
        (view("RUNNING", *UP, paused=True), "down restart unpause scale"),
        (view("FAILED", "replica failed"), "down restart scale"),
        (view("STOPPING", "replica stopping"), "down restart scale"),
        (view("DOWN", "replica stopped"), "restart scale remove"),
        (view("DOWN", paused=True), "restart scale remove"),
        (view("RUNNING", "script ready", kind="run"), "down restart pause"),
        (view("DONE", "script done", kind="run"), "down restart"),
    ],
)
def test_what_can_be_done(seen: WorkloadView, enabled: str) -> None:
    found = actions(seen)
    assert [one.verb for one in found] == ["down", "restart", "pause", "unpause", "scale", "remove"]
    assert " ".join(one.verb for one in found if one.enabled) == enabled


def test_why_it_cannot() -> None:
    said = {one.verb: one.why_not for one in actions(view("DOWN", paused=True))}
    assert (said["down"], said["unpause"]) == ("it is down", "it is DOWN and cannot be unpaused")
    said = {one.verb: one.why_not for one in actions(view("FAILED", kind="gang"))}
    assert (said["pause"], said["unpause"]) == ("it is FAILED and cannot be paused", "it is not paused")
    assert (said["scale"], said["remove"]) == ("it is a gang", "it is not down")
    assert actions(view("RUNNING", paused=True))[2].why_not == "it is paused"


@pytest.mark.parametrize(
    ("seen", "verb", "effect", "confirm"),
    [
        (view("RUNNING", *UP), "down", "stops 2 replicas, 1 router", "yes"),
        (view("RUNNING", *UP, load={"running": 119.0, "waiting": 1.0}), "down",
         "stops 2 replicas, 1 router; 120 requests are in flight", "yes"),
        (view("RUNNING", "replica ready", load={"running": 1.0}), "down",
         "stops 1 replica; 1 request is in flight", "yes"),
        (view("FAILED", "replica failed"), "down", "stops nothing", ""),
        (view("RUNNING", *UP), "restart", "starts again what ended", ""),
        (view("RUNNING", "script ready", kind="run"), "restart", "stops 1 script, and starts all of it again", "yes"),
        (view("DONE", "script done", kind="run"), "restart", "starts again what ended", ""),
        (view("RUNNING", *UP), "scale", "changes their number, 4 now", ""),
        (view("DOWN"), "remove", "deletes its record and /h/workloads/w", "name"),
    ],
)  # fmt: skip
def test_what_it_does(seen: WorkloadView, verb: str, effect: str, confirm: str) -> None:
    (found,) = (one for one in actions(seen) if one.verb == verb)
    assert (found.effect, found.confirm) == (effect, confirm)


@pytest.mark.parametrize(
    ("left", "effect"),
    [((2, 0), "end 2 allocations"), ((1, 3), "end 1 allocation and remove 3 folders of secrets"), ((0, 0), "")],
)
def test_what_cleaning_does(left: tuple[int, int], effect: str) -> None:
    found = cleaning(*left)
    assert (found.effect, found.enabled) == (effect, any(left))


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    with pytest.raises(click.UsageError, match=r"^not a terminal; pass --yes to clean unasked$"):
        agrees(cleaning(1, 0), "--yes")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda text: text == "stops 1 run?")
    assert agrees(Action("down", "stops 1 run", confirm="yes"), "--yes")
