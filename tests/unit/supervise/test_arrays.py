"""Arrays: how many tasks have begun at a time, and what the whole is called: tables, then random lives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.supervise.build import key, script
from tests.unit.supervise.test_rules import EVENTS, NOW, World, by_key, deployed, fresh, one, said

from remuda.host.grouping import begun_again
from remuda.look.allocate import devices_by_task, taken_gpus, with_devices
from remuda.plan.model import Kind, Resources
from remuda.supervise.decide import Note, decide, next_due
from remuda.supervise.explain import explain
from remuda.supervise.groups import rules
from remuda.supervise.model import FINAL, LIVE, Phase, Task, Want
from remuda.supervise.summary import summarise

TURN = "its turn has not come: 2 at a time"


def array(*indices: int, at_most: int = 0, gpus: int = 0, backend: str = "fake") -> Want:
    mine = script(
        count=len(indices), indices=indices, at_most=at_most, listen=None, resources=Resources(gpus=gpus)
    )  # fmt: skip
    want = deployed(mine)
    return replace(want, workload=want.workload.model_copy(update={"kind": Kind.RUN, "backend": backend}))


FOUR = array(1, 3, 7, 500, at_most=2)


def of(*phases: Phase) -> list[Task]:
    return [one("script", phase, index) for phase, index in zip(phases, (1, 3, 7, 500), strict=False)]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([], ["submit script/1", "submit script/3", "note script/7", "note script/500"], id="at first"),
        pytest.param(of(Phase.READY), ["submit script/3", "note script/7", "note script/500"], id="a free place"),
        pytest.param(of(Phase.DONE, Phase.READY), ["submit script/7", "note script/500"], id="one is done"),
        pytest.param(of(Phase.FAILED, Phase.FAILED), ["submit script/7", "submit script/500"], id="two have failed"),
        pytest.param(of(Phase.STOPPED, Phase.READY), ["submit script/7", "note script/500"], id="one was cancelled"),
        pytest.param([*of(Phase.STOPPING, Phase.READY), fresh("script", 7, TURN), fresh("script", 500, TURN)],
                     ["cancel script/1"], id="one that ends has its place still"),
        pytest.param([*of(Phase.READY), one("script", Phase.WAITING, 7, not_before=NOW + 9), fresh("script", 3, TURN),
                      fresh("script", 500, TURN)], [], id="one that waits after a failure keeps its place"),
    ],
)  # fmt: skip
def test_who_begins(tasks: list[Task], expected: list[str]) -> None:
    assert said(decide(FOUR, by_key(*tasks), NOW)) == expected


def test_without_a_limit_all_begin() -> None:
    assert said(decide(array(4, 6), {}, NOW)) == ["submit script/4", "submit script/6"]
    assert rules.held(array(4, 6), {}) == {}


def test_who_has_no_place_says_so_once_and_costs_no_turns() -> None:
    tasks = by_key(*of(Phase.READY, Phase.READY))
    for action in decide(FOUR, tasks, NOW):
        assert isinstance(action, Note)
        assert (action.task.phase, action.task.reason) == (Phase.WAITING, TURN)
        tasks[action.task.key] = action.task
    assert decide(FOUR, tasks, NOW) == ()
    assert next_due(tasks, NOW, FOUR) is None


def test_on_this_machine_a_place_has_its_own_gpus() -> None:
    """Index 7 has the GPUs of index 1, so it does not begin when index 3 has ended."""
    want = array(1, 3, 7, 9, at_most=2, gpus=1, backend="local")
    tasks = by_key(*of(Phase.READY, Phase.DONE))
    assert said(decide(want, tasks, NOW)) == ["note script/7", "submit script/9"]
    placed = with_devices(want.workload.model_copy(update={"place": {"gpus": ["0", "1", "2"]}}), {})
    given = devices_by_task(placed)
    assert {task.index: ids for task, ids in given.items()} == {1: ["0"], 3: ["1"], 7: ["0"], 9: ["1"]}
    assert taken_gpus([(replace(want, workload=placed), tasks)]) == {"0": "w", "1": "w"}


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ((Phase.READY,), ("RUNNING", "")),
        ((Phase.DONE, Phase.READY), ("RUNNING", "")),
        ((Phase.FAILED, Phase.READY), ("DEGRADED", "script/1: code 1")),
        ((Phase.FAILED, Phase.DONE, Phase.DONE, Phase.WAITING), ("PENDING", "script/1: code 1")),
        ((Phase.FAILED, Phase.DONE, Phase.DONE, Phase.DONE), ("FAILED", "script/1: code 1")),
        ((Phase.FAILED, Phase.DONE, Phase.FAILED, Phase.STOPPED), ("FAILED", "script/1: code 1")),
        ((Phase.DONE,) * 4, ("DONE", "")),
    ],
)
def test_what_the_whole_is(phases: tuple[Phase, ...], expected: tuple[str, str]) -> None:
    tasks = [replace(task, reason="code 1" if task.phase is Phase.FAILED else "") for task in of(*phases)]
    summary = summarise(FOUR, by_key(*tasks))
    assert (summary.phase, summary.reason) == expected
    assert summary.wanted == 4


def test_explain_tells_of_those_of_whom_there_is_something_to_tell_or_of_one() -> None:
    tasks = by_key(*of(Phase.DONE, Phase.FAILED, Phase.READY), fresh("script", 500, TURN))
    tasks[key(9, "script")] = replace(tasks[key(7, "script")], phase=Phase.STOPPING, key=key(9, "script"))
    heads = [line for line in explain(FOUR, tasks, [], [], "", NOW) if line.startswith("script/")]
    assert [line.partition(":")[0] for line in heads] == ["script/3", "script/7", "script/9"]
    alone = explain(FOUR, tasks, [], [], "", NOW, only=key(1, "script"))
    assert [line for line in alone if line.startswith("script/")] == ["script/1: done for 16m 40s"]


@st.composite
def arrays(draw: st.DrawFn) -> Want:
    indices = sorted(draw(st.sets(st.integers(0, 999), min_size=1, max_size=6)))
    here = draw(st.booleans())
    return array(*indices, at_most=draw(st.integers(0, 4)), gpus=int(here), backend="local" if here else "fake")


@settings(max_examples=300, deadline=None)
@given(
    arrays(),
    st.lists(st.tuples(st.sampled_from((*EVENTS, "restart", "begin one again")), st.integers(0, 7)), max_size=40),
)
def test_never_too_many_and_none_starves(want: Want, story: list[tuple[str, int]]) -> None:
    world, group = World(want), want.workload.groups[0]

    def check() -> None:
        living = [task.index for task in (task.key for task in world.tasks.values() if task.phase in LIVE)]
        assert len(living) <= (group.at_most or len(group.indices))
        if group.resources.gpus:
            assert len({group.place_of(index) for index in living}) == len(living), "two with the same GPU"

    for event, which in story:
        world.step()
        check()
        if event == "restart":
            world.want = replace(world.want, restart_mark=world.want.restart_mark + 1)
        elif event == "begin one again":
            world.want = begun_again(world.want, str(group.indices[which % len(group.indices)]))
        else:
            world.happen(event, which)
        check()
    for _ in range(100):
        world.rest(all_get_ready=True)
        check()
        world.happen("ends well", 0)
    world.rest()
    assert {task.key.index for task in world.tasks.values()} == set(group.indices)
    assert {task.phase for task in world.tasks.values()} <= FINAL
