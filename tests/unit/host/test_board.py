"""Rows of the board: what they say, what makes them again, and that they are those of a fresh look."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.supervise.build import group, key, want

from remuda.host import board as boards
from remuda.host.board import Board
from remuda.plan.model import Endpoint, Role
from remuda.supervise.model import Cause, Phase, Task, Want
from remuda.supervise.summary import ENDED
from remuda.views.columns import state
from remuda.views.queries import with_router
from remuda.views.workloads import RouterView, workload_view

if TYPE_CHECKING:
    from remuda.backends.base import TaskKey


class World:
    """What a board looks at: a supervisor's memory, changed by hand."""

    def __init__(self) -> None:
        self.wants: dict[str, Want] = {}
        self.all: dict[str, dict[TaskKey, Task]] = {}
        self.unreachable: dict[str, str] = {}
        self.routers: dict[str, RouterView] = {}
        self.created = {"w": 5.0}
        self.supervisor = self

    def tasks(self, name: str) -> dict[TaskKey, Task]:
        return self.all.get(name, {})

    def up(self, wanted: Want, *tasks: Task) -> None:
        name = wanted.workload.name
        self.wants[name], self.all[name] = wanted, {task.key: task for task in tasks}

    def change(self, index: int = 0, **changes: Any) -> None:
        """Replace a task, as the loop does."""
        tasks = self.all["w"]
        tasks[key(index)] = replace(tasks[key(index)], **changes)

    def board(self) -> Board:
        queries: Any = self
        return Board(queries)


def replicas(count: int = 2, phase: Phase = Phase.READY, **fields: Any) -> list[Task]:
    return [Task(key(index), "fake", phase, attempt=1, **fields) for index in range(count)]


@pytest.fixture
def world() -> World:
    world = World()
    world.up(want(), *replicas(since=7.0, node="n1", metrics={"tokens_per_s": 6267.0, "gpu_busy": 88.0}))
    return world


def test_rows_are_flat_and_finished(world: World) -> None:
    board = world.board()
    assert board.look() == board.rows
    assert board.rows["w/w"] == {
        "name": "w", "kind": "swarm", "uid": "u1", "state": "running", "tone": "good", "rank": 5, "ready": "2/2",
        "gpus": "77", "rate": "12.5k tok/s", "since": 5.0, "reason": "", "fold": True,
    }  # fmt: skip
    assert board.rows["t/w/replica/1"] == {
        "name": "replica/1", "of": "w", "uid": "u1", "role": "replica", "state": "ready", "tone": "good", "rank": 5,
        "node": "n1", "attempt": 1, "gpus": "7", "rate": "6.27k tok/s", "since": 7.0, "reason": "",
    }  # fmt: skip
    assert board.rows["h"] == {"head": "1 item: 1 running", "rate": "12.5k tok/s", "gpus": ""}


def test_nothing_is_made_again_for_the_same_objects(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    board = world.board()
    board.look()
    monkeypatch.setattr(boards, "summarise", None)
    monkeypatch.setattr(boards._Seen, "task_row", None)
    monkeypatch.setattr(boards._Seen, "row", None)
    assert board.look() == {}


def test_numbers_make_no_summary_and_wait_for_their_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    board = world.board()
    board.look()
    monkeypatch.setattr(boards, "summarise", None)
    world.change(metrics={"tokens_per_s": 1000.0}, last_seen=99.0, seq=7)
    assert board.look(numbers=False) == {}
    assert board.look() == {
        "t/w/replica/0": {"rate": "1.00k tok/s", "gpus": ""},
        "w/w": {"rate": "7.27k tok/s", "gpus": "7"},
        "h": {"rate": "7.27k tok/s"},
    }
    world.change(last_seen=100.0, seq=8, http_status=200)
    assert board.look() == {}


def test_a_phase_is_told_at_once_and_the_last_line_of_an_output_is_not(world: World) -> None:
    board = world.board()
    board.look()
    world.change(phase=Phase.UNHEALTHY, reason="no answer; log: shard 1 of 8", since=9.0)
    world.change(1, metrics={})
    delta = board.look(numbers=False)
    assert delta["t/w/replica/0"] is not None
    assert delta["t/w/replica/0"] | {"state": "unhealthy", "tone": "bad", "rank": 0} == delta["t/w/replica/0"]
    assert "t/w/replica/1" not in delta
    world.change(reason="no answer; log: shard 2 of 8")
    assert board.look(numbers=False) == {}
    assert (board.look()["t/w/replica/0"] or {})["reason"] == "no answer; log: shard 2 of 8"


def test_what_is_gone_is_none(world: World) -> None:
    board = world.board()
    board.look()
    stopped = replace(replicas()[1], phase=Phase.STOPPED)
    world.up(replace(want(), counts={"replica": 1}), world.all["w"][key(0)], stopped)
    assert board.look()["t/w/replica/1"] is None
    world.wants.clear()
    assert board.look() == {"w/w": None, "t/w/replica/0": None, "h": {"head": "0 items", "rate": ""}}
    assert set(board.rows) == {"h"}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({"paused": True}, {"state": "running, paused"}),
        ({"running": False}, {"state": "stopping"}),
    ],
)
def test_another_intent_is_seen(world: World, changes: dict[str, Any], cells: dict[str, object]) -> None:
    board = world.board()
    board.look()
    world.wants["w"] = replace(world.wants["w"], **changes)
    delta = board.look(numbers=False)["w/w"]
    assert delta is not None
    assert delta.items() >= cells.items()


def test_a_backend_that_does_not_answer_is_a_reason(world: World) -> None:
    board = world.board()
    board.look()
    world.unreachable["fake"] = "timeout"
    assert board.look(numbers=False) == {"w/w": {"reason": "timeout"}}
    world.up(want(), *replicas(phase=Phase.WAITING, reason="no room"))
    said = str((board.look(numbers=False)["w/w"] or {})["reason"])
    assert said.endswith("; timeout")
    assert "no room" in said
    world.unreachable.clear()
    assert board.look(numbers=False) == {"w/w": {"reason": said.removesuffix("; timeout")}}


def test_a_router_without_members_is_no_endpoint(world: World) -> None:
    groups = [group(), group("router", 1, role=Role.ROUTER)]
    tasks = [*replicas(), Task(key(0, "router"), "fake", Phase.READY, attempt=1)]
    world.up(want(*groups, endpoint=Endpoint(router="router")), *tasks)
    board = world.board()
    board.look()
    assert board.rows["w/w"]["state"] == "starting"
    world.routers["w"] = RouterView(url="r", members=["a", "b"], stats={})
    assert (board.look(numbers=False)["w/w"] or {})["state"] == "running"


@pytest.mark.parametrize(
    ("phase", "asked", "expected"),
    [
        ("waiting", {"is_new": True}, ("waiting", "wait", 3)),
        ("waiting", {}, ("waiting", "warn", 1)),
        ("pending", {"is_never": True}, ("pending", "bad", 0)),
        ("ready", {"yields": True}, ("yields", "good", 5)),
        ("DOWN", {}, ("down", "over", 6)),
    ],
)
def test_states_in_words(phase: str, asked: dict[str, bool], expected: tuple[str, str, int]) -> None:
    assert state(phase, **asked) == expected


def test_every_phase_has_a_rank_of_its_own() -> None:
    phases = {"PENDING", "WAITING", "STARTING", "RUNNING", "DEGRADED", "PAUSED", "STOPPING", "UNHEALTHY", "RESTARTING"}
    ranks = {phase: state(phase).rank for phase in [*phases, *ENDED, *Phase]}
    ill, over = ({phase.lower() for phase in ranks if ranks[phase] == rank} for rank in (0, 6))
    assert (ill, over) == ({"failed", "unhealthy"}, {"done", "stopped", "down"})


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(Phase), "reason": st.sampled_from(["", "why", "why; log: a", "why; log: b"]),
        "attempt": st.integers(0, 3), "yields_at": st.sampled_from([0.0, 9.0]), "cause": st.sampled_from(Cause),
        "never": st.sampled_from(["", "too big"]), "node": st.sampled_from(["", "n1"]), "since": st.floats(0, 9),
        "metrics": st.sampled_from([{}, {"tokens_per_s": 9.0}, {"gpu_busy": 50.0, "gpu_count": 2.0}]),
        "seq": st.integers(0, 99), "last_seen": st.floats(0, 99),
    },
)  # fmt: skip
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("task"), st.integers(0, 2), CHANGES),
        st.tuples(st.just("count"), st.integers(1, 3), st.just({})),
        st.tuples(st.just("running"), st.integers(0, 1), st.just({})),
        st.tuples(st.just("members"), st.integers(0, 3), st.just({})),
        st.tuples(st.just("look"), st.integers(0, 1), st.just({})),
        st.tuples(st.just("gone"), st.just(0), st.just({})),
    ),
    max_size=30,
)


@given(steps=STEPS)
def test_whatever_happened_the_rows_are_those_of_a_fresh_look(steps: list[tuple[str, int, dict[str, Any]]]) -> None:
    groups = [group(count=3), group("router", 1, role=Role.ROUTER)]
    world = World()
    front = Task(key(0, "router"), "fake", Phase.READY, attempt=1)

    def begin() -> None:
        world.up(want(*groups, endpoint=Endpoint(router="router")), *replicas(3), front)

    begin()
    board, copy = world.board(), dict[str, dict[str, Any]]()
    for what, number, changes in steps:
        match what:
            case "task":
                world.change(number, **changes)
            case "count":
                world.wants["w"] = replace(world.wants["w"], counts={"replica": number})
            case "running":
                world.wants["w"] = replace(world.wants["w"], running=bool(number))
            case "members":
                world.routers["w"] = RouterView(url="r", members=["u"] * number, stats={})
            case "gone":
                world.wants.clear()
                _apply(copy, board.look(numbers=False))
                begin()
            case _:
                _apply(copy, board.look(numbers=bool(number)))
    _apply(copy, board.look())
    fresh = world.board()
    fresh.look()
    assert board.rows == fresh.rows == copy
    view = workload_view(world.wants["w"], world.all["w"], created_at=5.0, unreachable="")
    view = with_router(view, world.wants["w"], world.routers.get("w"))
    assert board.rows["w/w"]["state"] == view.phase.lower()
    assert board.rows["w/w"]["reason"] == view.reason
    assert {key for key in board.rows if key[0] == "t"} == {f"t/w/{task.task}" for task in view.tasks}


def _apply(copy: dict[str, dict[str, Any]], delta: boards.Delta) -> None:
    for row, cells in delta.items():
        if cells is None:
            del copy[row]
        else:
            copy[row] = {**copy.get(row, {}), **cells}
