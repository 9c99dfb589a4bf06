"""What comes next in a pool, as tables, and any pool's whole life in invented time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.client.jobs.pool_plan import Action, Entry, Outcome, Seen, Step, Verb, is_over, plan

STARTING = Entry("a", Step.STARTING, is_sent=True, since=100.0)
STARTED = replace(STARTING, started_at=150.0, wait_s=60.0)
WORKING = Entry("a", Step.WORKING, is_sent=True, since=200.0)
ENDING = Entry("a", Step.ENDING, since=300.0, outcome=Outcome.DONE)
QUEUED = replace(STARTING, queue_timeout_s=50.0)


def bad(verb: Verb, reason: str) -> Action:
    return Action("a", verb, Outcome.FAILED, reason)


@pytest.mark.parametrize(
    ("entry", "seen", "now", "expected"),
    [
        pytest.param(Entry("a"), Seen(), 0, Action("a", Verb.BRING_UP), id="a place is free"),
        pytest.param(STARTING, Seen("PENDING"), 9e9, None, id="waits in the queue for ever"),
        pytest.param(replace(STARTING, is_sent=False), Seen(), 100, Action("a", Verb.BRING_UP), id="was never sent"),
        pytest.param(replace(STARTING, is_sent=False), Seen("PENDING"), 100, None, id="sent, not recorded"),
        pytest.param(QUEUED, Seen("PENDING"), 150, None, id="may wait"),
        pytest.param(
            QUEUED, Seen("PENDING", "no node is free"), 151,
            bad(Verb.TAKE_DOWN, "nothing of it has started within 50s: no node is free"), id="has waited too long",
        ),
        pytest.param(replace(QUEUED, started_at=140.0), Seen("PENDING"), 160, None, id="waits again"),
        pytest.param(STARTED, Seen("STARTING"), 210, None, id="starts"),
        pytest.param(
            STARTED, Seen("STARTING", "loading"), 211,
            bad(Verb.TAKE_DOWN, "it did not answer within 1m of its start: loading"), id="starts for too long",
        ),
        pytest.param(STARTED, Seen("RUNNING"), 999, Action("a", Verb.SUBMIT), id="is up"),
        pytest.param(STARTED, Seen("DEGRADED"), 160, Action("a", Verb.SUBMIT), id="is up with less"),
        pytest.param(
            replace(STARTED, has_job=False), Seen("RUNNING"), 160, Action("a", Verb.FINISH, Outcome.UP), id="has no job"
        ),
        pytest.param(STARTED, Seen("FAILED", "no file"), 160, bad(Verb.TAKE_DOWN, "it is FAILED: no file"), id="bad"),
        pytest.param(STARTED, Seen("DOWN"), 160, bad(Verb.TAKE_DOWN, "taken down by another command"), id="taken down"),
        pytest.param(STARTED, Seen(), 160, bad(Verb.TAKE_DOWN, "taken down by another command"), id="removed"),
        pytest.param(WORKING, Seen("RUNNING", job="RUNNING"), 9e9, None, id="works"),
        pytest.param(WORKING, Seen("RUNNING"), 210, Action("a", Verb.SUBMIT), id="its job was never sent"),
        pytest.param(WORKING, Seen("STARTING"), 210, None, id="its job was never sent, and it starts again"),
        pytest.param(
            WORKING, Seen("RUNNING", job="DONE"), 210, Action("a", Verb.TAKE_DOWN, Outcome.DONE), id="its job is done"
        ),
        pytest.param(
            replace(WORKING, keeps=True), Seen("RUNNING", job="DONE"), 210, Action("a", Verb.FINISH, Outcome.DONE),
            id="its job is done, and it is kept",
        ),
        pytest.param(
            WORKING, Seen("RUNNING", job="DONE", failed_rows=3), 210, bad(Verb.TAKE_DOWN, "3 rows have an error"),
            id="rows have an error",
        ),
        pytest.param(
            WORKING, Seen("RUNNING", job="FAILED", job_reason="no column"), 210,
            bad(Verb.TAKE_DOWN, "its job is FAILED: no column"), id="its job failed",
        ),
        pytest.param(
            WORKING, Seen("FAILED", "all gone", job="RUNNING"), 210,
            bad(Verb.TAKE_DOWN, "it is FAILED while its job runs: all gone"), id="it failed under its job",
        ),
        pytest.param(WORKING, Seen(), 210, bad(Verb.TAKE_DOWN, "it is gone while its job runs"), id="it was removed"),
        pytest.param(WORKING, Seen("DOWN", job="DONE"), 210, Action("a", Verb.TAKE_DOWN, Outcome.DONE), id="both"),
        pytest.param(ENDING, Seen("STOPPING"), 310, None, id="ends"),
        pytest.param(ENDING, Seen("RUNNING"), 310, Action("a", Verb.TAKE_DOWN, Outcome.DONE), id="unheard"),
        pytest.param(ENDING, Seen("DOWN"), 310, Action("a", Verb.FINISH, Outcome.DONE), id="has ended"),
        pytest.param(
            replace(ENDING, is_ours=False), Seen("RUNNING"), 310, Action("a", Verb.FINISH, Outcome.DONE),
            id="is somebody else's",
        ),
        pytest.param(
            ENDING, Seen("STOPPING", "1 task still ends"), 901,
            bad(Verb.FINISH, "it is not down after 10m: 1 task still ends; remuda down a"), id="does not end",
        ),
        pytest.param(Entry("a", Step.OVER, outcome=Outcome.DONE), Seen("DOWN"), 0, None, id="is over"),
    ],
)  # fmt: skip
def test_what_comes_next(entry: Entry, seen: Seen, now: float, expected: Action | None) -> None:
    actions = plan([entry], {"a": seen} if seen != Seen() else {}, 1, now)
    assert list(actions) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("entries", "phases", "bound", "expected"),
    [
        ([Entry("a"), Entry("b"), Entry("c")], {}, 2, ["a", "b"]),
        ([STARTED, Entry("b"), Entry("c")], {"a": "STARTING"}, 2, ["b"]),
        ([ENDING, Entry("b")], {"a": "STOPPING"}, 1, []),
        ([Entry("a", Step.OVER, outcome=Outcome.DONE), Entry("b")], {"a": "DOWN"}, 1, ["b"]),
        ([Entry("a", Step.OVER, keeps=True, outcome=Outcome.DONE), Entry("b")], {"a": "RUNNING"}, 1, []),
        ([Entry("a", Step.OVER, keeps=True, outcome=Outcome.DONE), Entry("b")], {"a": "DOWN"}, 1, ["b"]),
        ([Entry("a", Step.OVER, has_job=False, outcome=Outcome.UP), Entry("b")], {"a": "RUNNING"}, 1, []),
        ([STARTED, WORKING, Entry("c")], {"a": "RUNNING"}, 1, []),
    ],
)
def test_places(entries: list[Entry], phases: dict[str, str], bound: int, expected: list[str]) -> None:
    seen = {name: Seen(phase, job="RUNNING") for name, phase in phases.items()}
    actions = plan(entries, seen, bound, 160.0)
    assert [action.name for action in actions if action.verb is Verb.BRING_UP] == expected


WORLDS = st.lists(
    st.fixed_dictionaries({
        "queue": st.integers(0, 30), "start": st.integers(0, 30), "work": st.integers(0, 30), "end": st.integers(0, 9),
        "fails": st.sampled_from(["", "start", "job"]), "timeout": st.sampled_from([0.0, 10.0]), "keeps": st.booleans(),
    }),
    min_size=1, max_size=6,
)  # fmt: skip


@given(WORLDS, st.integers(1, 4))
def test_any_pool_ends_and_never_has_more_up_than_it_may(worlds: list[dict[str, Any]], bound: int) -> None:
    kept = 0
    for world in worlds:
        world["keeps"] = world["keeps"] and kept < bound - 1
        kept += world["keeps"]
    entries = {
        f"s{n}": Entry(f"s{n}", keeps=world["keeps"], queue_timeout_s=world["timeout"], wait_s=99.0)
        for n, world in enumerate(worlds)
    }
    lives = {name: {"phase": "", "age": 0, "job": ""} for name in entries}
    for now in range(600):
        for (name, life), world in zip(lives.items(), worlds, strict=True):
            age(life, world)
            if life["phase"] == "STARTING" and not entries[name].started_at:
                entries[name] = replace(entries[name], started_at=float(now))
        seen = {name: Seen(str(life["phase"]), job=str(life["job"])) for name, life in lives.items()}
        for action in plan(list(entries.values()), seen, bound, float(now)):
            entries[action.name] = act(entries[action.name], action, lives[action.name], float(now))
        assert sum(life["phase"] not in ("", "DOWN") for life in lives.values()) <= bound
        if is_over(list(entries.values())):
            break
    assert is_over(list(entries.values()))
    for (name, entry), world in zip(entries.items(), worlds, strict=True):
        late = world["timeout"] and world["queue"] > world["timeout"]
        if world["fails"] or late:
            assert entry.outcome is Outcome.FAILED, name
        elif not world["timeout"]:
            assert entry.outcome is Outcome.DONE, name
        stays = world["keeps"] and lives[name]["phase"] == "RUNNING"
        assert stays or lives[name]["phase"] == "DOWN"


def age(life: dict[str, Any], world: dict[str, Any]) -> None:
    """One second of a swarm and its job."""
    life["age"] += 1
    moves = {"PENDING": ("queue", "STARTING"), "STARTING": ("start", "RUNNING"), "STOPPING": ("end", "DOWN")}
    if life["phase"] in moves and life["age"] > world[moves[life["phase"]][0]]:
        fails = life["phase"] == "STARTING" and world["fails"] == "start"
        life.update(phase="FAILED" if fails else moves[life["phase"]][1], age=0)
    elif life["phase"] == "RUNNING" and life["job"] == "RUNNING" and life["age"] > world["work"]:
        life["job"] = "FAILED" if world["fails"] == "job" else "DONE"


def act(entry: Entry, action: Action, life: dict[str, Any], now: float) -> Entry:
    """Do what was planned."""
    match action.verb:
        case Verb.BRING_UP:
            life.update(phase="PENDING", age=0)
            return replace(entry, step=Step.STARTING, is_sent=True, since=now)
        case Verb.SUBMIT:
            life.update(job="RUNNING", age=0)
            return replace(entry, step=Step.WORKING, since=now)
        case Verb.TAKE_DOWN:
            life.update(phase="STOPPING", age=0)
            return replace(entry, step=Step.ENDING, since=now, outcome=action.outcome, reason=action.reason)
        case Verb.FINISH:
            return replace(entry, step=Step.OVER, since=now, outcome=action.outcome, reason=action.reason)
