"""What comes next in a campaign, as tables, and any campaign's whole life in invented time."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.store.rows import CampaignItemRow
from remuda.supervise import campaign as states
from remuda.supervise.campaign import DONE, ENDING, FAILED, OVER, STARTING, WAITING, WORKING, RowSeen, Step, due


def row(name: str, state: str = WAITING, **more: Any) -> CampaignItemRow:
    return CampaignItemRow("p", 0, name, state=state, **{"points": "job", **more})


COMING = row("a", STARTING, uid="u", since=100.0)
BEGUN = replace(COMING, started_at=150.0, wait_s=60.0)
BUSY = row("a", WORKING, uid="u", since=200.0)
LEAVING = row("a", ENDING, since=300.0, outcome=DONE)
LONE = replace(BEGUN, points="")
ALONE = replace(BUSY, points="")
QUEUED = replace(COMING, queue_timeout_s=50.0)


def bad(verb: str, reason: str) -> Step:
    return Step("a", verb, FAILED, reason)


def ends(phase: str, reason: str = "") -> RowSeen:
    return RowSeen(phase, reason, ends=True)


@pytest.mark.parametrize(
    ("entry", "seen", "now", "expected"),
    [
        pytest.param(row("a"), RowSeen(), 0, Step("a", states.CREATE), id="a place is free"),
        pytest.param(COMING, RowSeen("PENDING"), 9e9, None, id="waits in the queue for ever"),
        pytest.param(replace(COMING, uid=""), RowSeen(), 100, Step("a", states.CREATE), id="was never sent"),
        pytest.param(
            replace(COMING, uid=""), RowSeen("PENDING"), 100, Step("a", states.CREATE), id="created, not recorded"
        ),
        pytest.param(QUEUED, RowSeen("PENDING"), 150, None, id="may wait"),
        pytest.param(
            QUEUED, RowSeen("PENDING", "no node is free"), 151,
            bad(states.TAKE_DOWN, "nothing of it has started within 50s: no node is free"), id="has waited too long",
        ),
        pytest.param(replace(QUEUED, started_at=140.0), RowSeen("PENDING"), 160, None, id="waits again"),
        pytest.param(BEGUN, RowSeen("COMING"), 210, None, id="starts"),
        pytest.param(
            BEGUN, RowSeen("COMING", "loading"), 211,
            bad(states.TAKE_DOWN, "it did not answer within 1m of its start: loading"), id="starts for too long",
        ),
        pytest.param(BEGUN, RowSeen("RUNNING"), 999, Step("a", states.SUBMIT), id="is up"),
        pytest.param(BEGUN, RowSeen("DEGRADED"), 160, Step("a", states.SUBMIT), id="is up with less"),
        pytest.param(
            replace(BEGUN, points=""), RowSeen("RUNNING"), 160, Step("a", states.FINISH, states.IS_UP), id="has no job"
        ),
        pytest.param(
            BEGUN, RowSeen("FAILED", "no file"), 160, bad(states.TAKE_DOWN, "it is FAILED: no file"), id="bad"
        ),
        pytest.param(
            BEGUN, RowSeen("DOWN"), 160, bad(states.TAKE_DOWN, "taken down by another command"), id="taken down"
        ),
        pytest.param(BEGUN, RowSeen(), 160, bad(states.TAKE_DOWN, "taken down by another command"), id="removed"),
        pytest.param(BUSY, RowSeen("RUNNING", job="RUNNING"), 9e9, None, id="works"),
        pytest.param(BUSY, RowSeen("RUNNING"), 210, Step("a", states.SUBMIT), id="its job was never sent"),
        pytest.param(BUSY, RowSeen("COMING"), 210, None, id="its job was never sent, and it starts again"),
        pytest.param(
            BUSY, RowSeen("RUNNING", job="DONE"), 210, Step("a", states.TAKE_DOWN, DONE), id="its job is done"
        ),
        pytest.param(
            replace(BUSY, keeps=True), RowSeen("RUNNING", job="DONE"), 210, Step("a", states.FINISH, DONE),
            id="its job is done, and it is kept",
        ),
        pytest.param(
            BUSY, RowSeen("RUNNING", job="DONE", failed_rows=3), 210, bad(states.TAKE_DOWN, "3 rows have an error"),
            id="rows have an error",
        ),
        pytest.param(
            BUSY, RowSeen("RUNNING", job="FAILED", job_reason="no column"), 210,
            bad(states.TAKE_DOWN, "its job is FAILED: no column"), id="its job failed",
        ),
        pytest.param(
            BUSY, RowSeen("FAILED", "all gone", job="RUNNING"), 210,
            bad(states.TAKE_DOWN, "it is FAILED while its job runs: all gone"), id="it failed under its job",
        ),
        pytest.param(BUSY, RowSeen(), 210, bad(states.TAKE_DOWN, "it is gone while its job runs"), id="it was removed"),
        pytest.param(BUSY, RowSeen("DOWN", job="DONE"), 210, Step("a", states.TAKE_DOWN, DONE), id="both"),
        pytest.param(LEAVING, RowSeen("STOPPING"), 310, None, id="ends"),
        pytest.param(LEAVING, RowSeen("RUNNING"), 310, Step("a", states.TAKE_DOWN, DONE), id="unheard"),
        pytest.param(LEAVING, RowSeen("DOWN"), 310, Step("a", states.FINISH, DONE), id="has ended"),
        pytest.param(
            replace(LEAVING, is_ours=False), RowSeen("RUNNING"), 310, Step("a", states.FINISH, DONE),
            id="is somebody else's",
        ),
        pytest.param(
            LEAVING, RowSeen("STOPPING", "1 task still ends"), 901,
            bad(states.FINISH, "it is not down after 10m: 1 task still ends; remuda down a"), id="does not end",
        ),
        pytest.param(row("a", OVER, outcome=DONE), RowSeen("DOWN"), 0, None, id="is over"),
        pytest.param(LONE, ends("STARTING"), 160, None, id="ends by itself, and starts"),
        pytest.param(
            LONE, ends("STARTING", "loading"), 211,
            bad(states.TAKE_DOWN, "it did not answer within 1m of its start: loading"),
            id="ends by itself, and starts for too long",
        ),
        pytest.param(LONE, ends("RUNNING"), 999, Step("a", states.SUBMIT), id="ends by itself, and works"),
        pytest.param(LONE, ends("STOPPING"), 999, None, id="ends by itself, so soon that nobody saw it work"),
        pytest.param(LONE, ends("DONE"), 999, Step("a", states.FINISH, DONE), id="ended before anybody looked"),
        pytest.param(
            LONE, ends("FAILED", "no file"), 160, bad(states.TAKE_DOWN, "it is FAILED: no file"),
            id="ends by itself, and never came up",
        ),
        pytest.param(LONE, RowSeen("DONE"), 160, bad(states.TAKE_DOWN, "it is DONE: "), id="was to stay, and is done"),
        pytest.param(ALONE, ends("RUNNING"), 9e9, None, id="works by itself"),
        pytest.param(ALONE, ends("STARTING"), 9e9, None, id="works by itself, and something of it starts again"),
        pytest.param(ALONE, ends("STOPPING"), 9e9, None, id="works by itself, and ends"),
        pytest.param(ALONE, ends("DONE"), 9e9, Step("a", states.FINISH, DONE), id="has ended by itself"),
        pytest.param(
            ALONE, ends("FAILED", "bench/0: exit code 10"), 210,
            bad(states.TAKE_DOWN, "it is FAILED: bench/0: exit code 10"), id="has ended by itself, and not well",
        ),
        pytest.param(
            ALONE, ends("STOPPED", "agg/0: cancelled by root"), 210,
            bad(states.TAKE_DOWN, "it is STOPPED: agg/0: cancelled by root"), id="was ended by a person",
        ),
        pytest.param(
            ALONE, ends("DOWN"), 210, bad(states.TAKE_DOWN, "taken down by another command"),
            id="works by itself, and was taken down",
        ),
        pytest.param(
            ALONE, RowSeen(), 210, bad(states.TAKE_DOWN, "taken down by another command"),
            id="works by itself, and was removed",
        ),
    ],
)  # fmt: skip
def test_what_comes_next(entry: CampaignItemRow, seen: RowSeen, now: float, expected: Step | None) -> None:
    actions = due([entry], {"a": seen} if seen != RowSeen() else {}, 1, now)
    assert list(actions) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("entries", "phases", "bound", "expected"),
    [
        ([row("a"), row("b"), row("c")], {}, 2, ["a", "b"]),
        ([BEGUN, row("b"), row("c")], {"a": "COMING"}, 2, ["b"]),
        ([LEAVING, row("b")], {"a": "STOPPING"}, 1, []),
        ([row("a", OVER, outcome=DONE), row("b")], {"a": "DOWN"}, 1, ["b"]),
        ([row("a", OVER, keeps=True, outcome=DONE), row("b")], {"a": "RUNNING"}, 1, []),
        ([row("a", OVER, keeps=True, outcome=DONE), row("b")], {"a": "DOWN"}, 1, ["b"]),
        ([row("a", OVER, points="", outcome=states.IS_UP), row("b")], {"a": "RUNNING"}, 1, []),
        ([BEGUN, BUSY, row("c")], {"a": "RUNNING"}, 1, []),
    ],
)
def test_places(entries: list[CampaignItemRow], phases: dict[str, str], bound: int, expected: list[str]) -> None:
    seen = {name: RowSeen(phase, job="RUNNING") for name, phase in phases.items()}
    actions = due(entries, seen, bound, 160.0)
    assert [action.name for action in actions if action.verb is states.CREATE] == expected


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
        f"s{n}": row(f"s{n}", keeps=world["keeps"], queue_timeout_s=world["timeout"], wait_s=99.0)
        for n, world in enumerate(worlds)
    }
    lives = {name: {"phase": "", "age": 0, "job": ""} for name in entries}
    for now in range(600):
        for (name, life), world in zip(lives.items(), worlds, strict=True):
            age(life, world)
            if life["phase"] == "COMING" and not entries[name].started_at:
                entries[name] = replace(entries[name], started_at=float(now))
        seen = {name: RowSeen(str(life["phase"]), job=str(life["job"])) for name, life in lives.items()}
        for action in due(list(entries.values()), seen, bound, float(now)):
            entries[action.name] = act(entries[action.name], action, lives[action.name], float(now))
        assert sum(life["phase"] not in ("", "DOWN") for life in lives.values()) <= bound
        if all(entry.state is OVER for entry in entries.values()):
            break
    assert all(entry.state is OVER for entry in entries.values())
    for (name, entry), world in zip(entries.items(), worlds, strict=True):
        late = world["timeout"] and world["queue"] > world["timeout"]
        if world["fails"] or late:
            assert entry.outcome is FAILED, name
        elif not world["timeout"]:
            assert entry.outcome is DONE, name
        stays = world["keeps"] and lives[name]["phase"] == "RUNNING"
        assert stays or lives[name]["phase"] == "DOWN"


LIVES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.sampled_from(["DONE", "FAILED", "STOPPED"])),
    min_size=1, max_size=6,
)  # fmt: skip


@given(LIVES, st.integers(1, 4), st.integers(1, 20))
def test_whatever_ends_by_itself_is_over_with_its_end(
    lives: list[tuple[int, int, int, str]], bound: int, look_s: int
) -> None:
    """However rarely anybody looks: of a short life nothing may be seen but its end."""
    entries = {f"s{n}": row(f"s{n}", points="", wait_s=99.0) for n in range(len(lives))}
    begun: dict[str, int] = {}
    for now in range(0, 9_000, look_s):
        seen = {}
        for (name, start), life in zip(begun.items(), (lives[int(name[1:])] for name in begun), strict=True):
            *spans, end = life
            words = ("STARTING", "RUNNING", "STOPPING")
            passed = next((word for n, word in enumerate(words) if now - start < sum(spans[: n + 1])), end)
            seen[name] = ends("DOWN" if entries[name].state == ENDING else passed, "why")
        assert sum(one.phase in ("STARTING", "RUNNING", "STOPPING") for one in seen.values()) <= bound
        for step in due(list(entries.values()), seen, bound, float(now)):
            if step.verb == states.CREATE:
                begun[step.name] = now
            entries[step.name] = act(entries[step.name], step, {}, float(now))
        if all(entry.state is OVER for entry in entries.values()):
            break
    for entry, life in zip(entries.values(), lives, strict=True):
        expected = (DONE, "") if life[-1] == "DONE" else (FAILED, f"it is {life[-1]}: why")
        assert (entry.state, entry.outcome, entry.reason) == (OVER, *expected)


def age(life: dict[str, Any], world: dict[str, Any]) -> None:
    """One second of a swarm and its job."""
    life["age"] += 1
    moves = {"PENDING": ("queue", "COMING"), "COMING": ("start", "RUNNING"), "STOPPING": ("end", "DOWN")}
    if life["phase"] in moves and life["age"] > world[moves[life["phase"]][0]]:
        fails = life["phase"] == "COMING" and world["fails"] == "start"
        life.update(phase="FAILED" if fails else moves[life["phase"]][1], age=0)
    elif life["phase"] == "RUNNING" and life["job"] == "RUNNING" and life["age"] > world["work"]:
        life["job"] = "FAILED" if world["fails"] == "job" else "DONE"


def act(entry: CampaignItemRow, step: Step, life: dict[str, Any], now: float) -> CampaignItemRow:
    """Do what was planned."""
    if step.verb == states.CREATE:
        life.update(phase="PENDING", age=0)
        return replace(entry, state=STARTING, uid="u", since=now)
    if step.verb == states.SUBMIT:
        life.update(job="RUNNING", age=0)
        return replace(entry, state=WORKING, since=now)
    if step.verb == states.TAKE_DOWN:
        life.update(phase="STOPPING", age=0)
    state = ENDING if step.verb == states.TAKE_DOWN else OVER
    return replace(entry, state=state, since=now, outcome=step.outcome, reason=step.reason)


def test_who_is_held_gives_its_place_to_the_next() -> None:
    rows = [row("a"), row("b"), row("c")]
    held = {"a": RowSeen(is_held=True), "b": RowSeen()}
    assert [action.name for action in due(rows, held, 1, 0.0)] == ["b"]


def test_ten_thousand_rows_cost_little() -> None:
    rows = [row(f"r{n}", OVER, outcome=DONE) for n in range(9_990)] + [row(f"w{n}") for n in range(10)]
    began = time.perf_counter()
    assert [action.name for action in due(rows, {}, 2, 0.0)] == ["w0", "w1"]
    assert time.perf_counter() - began < 0.1
