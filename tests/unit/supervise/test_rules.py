"""Groups that begin after others, and a workload that ends with one of them: tables, then random lives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.supervise.build import group, key, report

from remuda.backends.base import Handle, Life, Observed, TaskKey
from remuda.plan.model import Endpoint, Group, Kind, Replace, Role, Succession, Workload
from remuda.supervise import facts
from remuda.supervise.decide import Action, Cancel, Note, Submit, decide, next_due
from remuda.supervise.explain import explain
from remuda.supervise.groups import rules
from remuda.supervise.model import FINAL, LIVE, RUNNING, Phase, Task, Want
from remuda.supervise.summary import summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NOW = 1000.0
ONCE = Replace(policy="never")
SHUT = "waiting for these groups to be ready (`after`): "


def after(name: str, *names: str, count: int = 1, **changes: object) -> Group:
    made = group(name, count, role=Role.SCRIPT)
    return made.model_copy(update={"after": names, "probe": None, "listen": None, **changes})


def deployed(*groups: Group, ends_with: str | None = None, **changes: object) -> Want:
    fields: dict[str, object] = {"ends_with": ends_with, "lifetime_s": changes.pop("lifetime_s", 0.0)}
    workload = Workload(
        name="w", kind=Kind.DEPLOYMENT, uid="u1", backend="fake", groups=groups, run_dir="/run/w"
    ).model_copy(update=fields)
    return replace(Want(workload, running=True, generation=1), **changes)  # type: ignore[arg-type]


SERVICE, WORKER = after("service"), after("worker", "service", count=2)
FRONT, GENERATOR = after("front", "worker", "service"), after("generator", "front", replace=ONCE)
FOUR = deployed(SERVICE, WORKER, FRONT, GENERATOR, ends_with="generator")
ORDER = ["service", "worker", "front", "generator"]


def one(name: str, phase: Phase, index: int = 0, **changes: object) -> Task:
    """A task in the middle of its life: one that waits had an attempt before."""
    known: dict[str, object] = {"attempt": 1, "generation": 1, "token": f"{name}{index}", "not_before": NOW - 1}
    return Task(key(index, name), "fake", phase, **{**known, **changes})  # type: ignore[arg-type]


def fresh(name: str, index: int = 0, why: str = "") -> Task:
    return one(name, Phase.WAITING, index, attempt=0, not_before=0.0, reason=why)


def by_key(*tasks: Task) -> dict[TaskKey, Task]:
    return {task.key: task for task in tasks}


def up_to(name: str, phase: Phase = Phase.READY) -> list[Task]:
    """All tasks of the groups of `FOUR` up to and with that one are in that phase."""
    names = ORDER[: ORDER.index(name) + 1]
    return [one(each, phase, index) for each in names for index in range(FOUR.planned(each))]


def said(actions: Iterable[Action]) -> list[str]:
    """`submit front/0`, in the actions' order."""
    return [f"{type(one).__name__.lower()} {one.task.key.group}/{one.task.key.index}" for one in actions]


# --- after -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "gates"),
    [
        ([], {"worker": "service", "front": "worker, service", "generator": "front"}),
        ([one("service", Phase.STARTING)], {"worker": "service", "front": "worker, service", "generator": "front"}),
        ([one("service", Phase.READY)], {"front": "worker", "generator": "front"}),
        ([one("service", Phase.READY), one("worker", Phase.READY)], {"front": "worker", "generator": "front"}),
        ([*up_to("worker"), one("worker", Phase.READY, 7)], {"generator": "front"}),
        ([one("service", Phase.DONE), one("worker", Phase.READY), one("worker", Phase.READY, 7)],
         {"front": "worker", "generator": "front"}),
        (up_to("front"), {}),
        ([*up_to("worker"), one("front", Phase.UNHEALTHY)], {"generator": "front"}),
    ],
    ids=["nothing", "starting", "first", "one of two", "both and a surplus one", "a surplus one", "all", "unhealthy"],
)  # fmt: skip
def test_a_gate_is_closed_until_all_of_every_group_before_it_is_ready(
    tasks: list[Task], gates: Mapping[str, str]
) -> None:
    held = {key.group: why for key, why in rules.held(FOUR, by_key(*tasks)).items()}
    assert held == {name: SHUT + names for name, names in gates.items()}


@pytest.mark.parametrize(("phase", "is_held"), [(Phase.READY, True), (Phase.FAILED, True), (Phase.DONE, False)])
def test_who_looks_whether_all_is_well_has_to_end_well(phase: Phase, is_held: bool) -> None:
    want = deployed(after("look").model_copy(update={"role": Role.GATE}), after("generator", "look", replace=ONCE))
    assert bool(rules.held(want, by_key(one("look", phase)))) is is_held


@pytest.mark.parametrize(
    ("ready", "role", "tasks", "held"),
    [
        ("first", Role.DECODE, [one("worker", Phase.READY, 1)], []),
        ("first", Role.DECODE, [one("worker", Phase.STARTING)], ["front"]),
        ("first", Role.DECODE, [one("worker", Phase.READY), one("worker", Phase.READY, 1)], []),
        ("first", Role.DECODE, [one("worker", Phase.READY, 7)], ["front"]),
        ("first", Role.SERVICE, [one("worker", Phase.READY, 1)], ["front"]),
        ("all", Role.DECODE, [one("worker", Phase.READY, 1)], ["front"]),
    ],
)
def test_one_server_is_enough_where_the_first_makes_it_ready(
    ready: str, role: Role, tasks: list[Task], held: list[str]
) -> None:
    """Of what does not serve, such as services, all are waited for."""
    want = deployed(after("worker", count=2).model_copy(update={"role": role}), after("front", "worker"))
    endpoint = Endpoint(ready=ready)
    want = replace(want, workload=want.workload.model_copy(update={"endpoint": endpoint}))
    assert [*dict.fromkeys(key.group for key in rules.held(want, by_key(*tasks)))] == held


@pytest.mark.parametrize(
    ("want", "tasks", "expected"),
    [
        pytest.param(FOUR, [], ["submit service/0", "note worker/0", "note worker/1", "note front/0",
                                "note generator/0"], id="the first begins, the others are held"),
        pytest.param(FOUR, [one("service", Phase.READY), fresh("worker"), fresh("worker", 1),
                            fresh("front", why=SHUT + "worker"), fresh("generator", why=SHUT + "front")],
                     ["submit worker/0", "submit worker/1"], id="a gate opens"),
        pytest.param(FOUR, [*up_to("front")[:1], one("worker", Phase.WAITING, not_before=NOW + 9),
                            one("worker", Phase.READY, 1), one("front", Phase.WAITING), one("generator", Phase.READY)],
                     ["submit front/0"], id="a frontend that restarts does not wait for a worker"),
        pytest.param(FOUR, [one("service", Phase.WAITING), one("worker", Phase.WAITING), one("worker", Phase.READY, 1),
                            fresh("front", why=SHUT + "worker, service"), fresh("generator", why=SHUT + "front")],
                     ["submit service/0", "submit worker/0"], id="nor a worker for the service"),
        pytest.param(replace(FOUR, paused=True), [one("service", Phase.READY), fresh("worker", why=SHUT + "service"),
                                                  fresh("worker", 1), fresh("front"), fresh("generator")],
                     ["note worker/0", "note worker/1", "note front/0", "note generator/0"], id="paused"),
        pytest.param(replace(FOUR, generation=2), [one("service", Phase.STOPPED), one("front", Phase.STOPPED),
                     one("worker", Phase.FAILED), one("worker", Phase.STOPPED, 1), one("generator", Phase.DONE)],
                     ["note service/0", "note worker/0", "note worker/1", "note front/0", "note generator/0"],
                     id="wanted again"),
        pytest.param(replace(FOUR, counts={"worker": 0}), [one("service", Phase.READY)],
                     ["submit front/0", "note generator/0"], id="a group of none is waited for by nobody"),
    ],
)  # fmt: skip
def test_what_decide_does_at_a_gate(want: Want, tasks: list[Task], expected: list[str]) -> None:
    assert said(decide(want, by_key(*tasks), NOW)) == expected


def test_what_is_held_says_so_once_and_costs_no_turns() -> None:
    tasks = by_key(*(action.task for action in decide(FOUR, {}, NOW)))
    assert tasks[key(0, "front")].reason == SHUT + "worker, service"
    assert (tasks[key(0, "front")].phase, tasks[key(0, "front")].attempt) == (Phase.WAITING, 0)
    tasks[key(0, "service")] = one("service", Phase.STARTING)
    assert decide(FOUR, tasks, NOW) == ()
    assert next_due(tasks, NOW, FOUR) is None
    tasks[key(0, "service")] = one("service", Phase.READY)
    assert next_due(tasks, NOW, FOUR) == 0.0
    tasks |= by_key(*(action.task for action in decide(FOUR, tasks, NOW)))
    assert tasks[key(0, "worker")].phase is Phase.SUBMITTING
    assert tasks[key(0, "front")].reason == SHUT + "worker"


def test_what_was_stopped_comes_in_its_order_again_and_what_had_failed_at_once() -> None:
    want = replace(FOUR, generation=2)
    tasks = by_key(*[one(name, Phase.STOPPED) for name in ORDER], one("worker", Phase.FAILED, 1))
    for _ in range(2):
        tasks |= by_key(*(action.task for action in decide(want, tasks, NOW)))
    begun = {f"{each.group}/{each.index}" for each, task in tasks.items() if task.phase is Phase.SUBMITTING}
    assert begun == {"service/0", "worker/1"}
    assert tasks[key(0, "worker")].reason == SHUT + "service"


def test_a_successor_passes_a_gate_that_the_one_before_has_passed() -> None:
    turns = after("front", "worker", succession=Succession(lead_s=100))
    want = deployed(WORKER.model_copy(update={"after": ()}), turns, lifetime_s=9000.0)
    serves = one("front", Phase.READY, limit_at=NOW + 50, started_at=1.0)
    tasks = by_key(one("worker", Phase.UNHEALTHY), one("worker", Phase.READY, 1), serves)
    assert said(decide(want, tasks, NOW)) == ["submit front/500"]
    waiting = fresh("front", 500)
    assert said(decide(want, {**tasks, waiting.key: waiting}, NOW)) == ["submit front/500"]
    assert next_due({**tasks, waiting.key: waiting}, NOW, want) == 0.0
    third = replace(want, counts={"front": 2})
    assert said(decide(third, tasks, NOW)) == ["submit front/500", "note front/1"]
    of_worker = deployed(after("worker", succession=Succession()), after("front", "worker"), lifetime_s=9000.0)
    assert rules.held(of_worker, by_key(one("worker", Phase.READY, 500))) == {}


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ("ready ready ready ready", ["cancel generator/0"]),
        ("ready ready ready stopping", []),
        ("ready waiting ready stopped", ["cancel front/0", "note worker/0", "note worker/1"]),
        ("ready pending ready done", ["cancel front/0", "cancel worker/0", "cancel worker/1"]),
        ("ready ready failed stopped", ["cancel worker/0", "cancel worker/1"]),
        ("ready stopped ready stopped", ["cancel front/0"]),
        ("ready stopped stopped stopped", ["cancel service/0"]),
        ("stopping stopped stopped stopped", []),
    ],
)  # fmt: skip
def test_groups_end_in_reverse_order(phases: str, expected: list[str]) -> None:
    """Phases of the service, the workers, the front and the generator."""
    pairs = list(zip(ORDER, map(Phase, phases.split()), strict=True))
    tasks = [one(name, phase, index, kill_at=NOW + 9) for name, phase in pairs for index in range(FOUR.planned(name))]
    assert said(decide(replace(FOUR, running=False), by_key(*tasks), NOW)) == expected


def test_groups_without_an_order_end_at_once() -> None:
    want = replace(deployed(after("a"), after("b")), running=False)
    tasks = by_key(one("a", Phase.READY), one("b", Phase.READY))
    assert said(decide(want, tasks, NOW)) == ["cancel a/0", "cancel b/0"]


# --- ends_with -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "code", "word"), [(Phase.DONE, 0, "DONE"), (Phase.FAILED, 3, "FAILED"), (Phase.STOPPED, None, "STOPPED")]
)
def test_the_end_of_its_last_group_is_the_end_of_the_workload(phase: Phase, code: int | None, word: str) -> None:
    last = one("generator", phase, exit_code=code, reason="it ended so")
    tasks = by_key(*up_to("front"), last)
    why = "ended by `ends_with`: generator/0 has ended" + ("" if code is None else f" with code {code}")
    ending = summarise(FOUR, tasks)
    assert (ending.phase, ending.reason) == ("STOPPING", f"{why}; 4 tasks still end")
    for name in ("front", "worker", "service"):
        actions = decide(FOUR, tasks, NOW)
        assert {action.task.key.group for action in actions if isinstance(action, Cancel)} == {name}
        assert {action.task.reason for action in actions} == {why}
        tasks |= by_key(*(replace(action.task, phase=Phase.STOPPED) for action in actions))
    assert decide(FOUR, tasks, NOW) == ()
    assert next_due(tasks, NOW, FOUR) is None
    summary = summarise(FOUR, tasks)
    assert (summary.phase, summary.reason) == (word, "" if word == "DONE" else "generator/0: it ended so")
    assert tasks[last.key].exit_code == code


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in FINAL])
def test_it_goes_on_as_long_as_that_group_does(phase: Phase) -> None:
    tasks = by_key(*up_to("front"), one("generator", phase, kill_at=NOW + 9))
    assert rules.over(FOUR, tasks) == ""
    assert not any(action.task.key.group != "generator" for action in decide(FOUR, tasks, NOW))


def test_one_of_several_that_failed_is_told_when_all_have_ended() -> None:
    want = replace(FOUR, counts={"generator": 2})
    ended = [one("generator", Phase.DONE, exit_code=0), one("generator", Phase.FAILED, 1, exit_code=4)]
    assert rules.ender(want, by_key(ended[0], one("generator", Phase.READY, 1))) is None
    assert rules.ender(want, by_key(*ended)) == ended[1]
    assert rules.ender(replace(want, counts={"generator": 0}), {}) is None


def test_whoever_wants_it_again_gets_all_of_it_again() -> None:
    tasks = by_key(*up_to("front", Phase.STOPPED), one("generator", Phase.FAILED, exit_code=3))
    again = replace(FOUR, generation=2)
    assert rules.over(again, tasks) == ""
    assert len(decide(again, tasks, NOW)) == len(tasks)


def test_a_failure_of_it_is_never_tried_again() -> None:
    runs = one("generator", Phase.READY, started_at=1.0)
    after_end = facts.observed(runs, GENERATOR, Observed(Life.ENDED, exit_code=3), NOW)
    assert (after_end.phase, after_end.exit_code) == (Phase.FAILED, 3)


# --- for people, and on disk -----------------------------------------------------------------------------------------


def test_explain_names_the_rule() -> None:
    held = "\n".join(explain(FOUR, by_key(one("service", Phase.READY), one("worker", Phase.READY),
                                          fresh("front", why=SHUT + "worker")), [], [], "", NOW))  # fmt: skip
    assert f"front/0: waiting for 16m 40s\n  {SHUT}worker\n  1 of 2 of worker not ready yet" in held
    down = explain(replace(FOUR, running=False), by_key(*up_to("front")), [], [], "", NOW)
    assert down.count("  waiting for front to end (`after`)") == 2
    assert "  waiting for front, worker to end (`after`)" in down
    over = "\n".join(explain(FOUR, by_key(one("generator", Phase.DONE, exit_code=0), one("service", Phase.READY)),
                             [], [], "", NOW))  # fmt: skip
    assert "ended by `ends_with`: generator/0 has ended with code 0; 1 task still ends" in over


@pytest.mark.parametrize(
    ("ready", "up", "told"),
    [
        ("first", 0, ["none of 2 of server ready yet, and one is enough"]),
        ("first", 1, []),
        ("all", 0, ["2 of 2 of server not ready yet"]),
        ("all", 1, ["1 of 2 of server not ready yet"]),
    ],
)
def test_what_is_waited_for_is_what_is_needed(ready: str, up: int, told: list[str]) -> None:
    servers = after("server", count=2, role=Role.REPLICA)
    want = deployed(servers, after("front", "server"))
    want = replace(want, workload=want.workload.model_copy(update={"endpoint": Endpoint(ready=ready)}))
    phases = [Phase.READY] * up + [Phase.STARTING] * (2 - up)
    front = fresh("front")
    assert (
        rules.tell(want, front, by_key(front, *(one("server", *each) for each in zip(phases, (0, 1), strict=True))))
        == told
    )


def test_what_was_recorded_before_there_were_rules_has_none() -> None:
    stored = FOUR.workload.model_dump(mode="json")
    assert Workload.model_validate(stored) == FOUR.workload
    del stored["ends_with"]
    for each in stored["groups"]:
        del each["after"]
    old = Workload.model_validate(stored)
    assert (old.ends_with, {each.after for each in old.groups}) == (None, {()})


# --- random lives ----------------------------------------------------------------------------------------------------

EVENTS = ("ready", "unhealthy", "fails", "ends well", "vanishes", "host dies", "time", "again")


class World:
    """A backend on which anything may happen, and a host that may die between recording and doing."""

    def __init__(self, want: Want) -> None:
        self.want, self.now, self.seq = want, NOW, 0
        self.tasks: dict[TaskKey, Task] = {}
        self.living: dict[str, TaskKey] = {}
        self.made: set[str] = set()

    def step(self, *, dies: bool = False) -> bool:
        """One round of the loop; whether anything was decided."""
        actions = decide(self.want, self.tasks, self.now)
        for action in actions:
            self.check(action)
            self.tasks[action.task.key] = action.task
        for action in actions if not dies else ():
            if isinstance(action, Submit):
                self.submit(action)
            elif isinstance(action, Cancel):
                self.living.pop(action.task.token, None)
        self.look()
        due = next_due(self.tasks, self.now, self.want)
        assert dies or due != 0.0 or decide(self.want, self.tasks, self.now), "the loop would turn for nothing"
        return bool(actions)

    def check(self, action: Action) -> None:
        """What both rules promise, at the moment when it counts."""
        before, mine = self.tasks.get(action.task.key), self.want.workload.group(action.task.key.group)
        is_first = before is None or (before.phase is Phase.WAITING and not before.not_before)
        if isinstance(action, Submit) and not action.again and is_first:
            for name in mine.after:
                phases = [self.tasks[key(index, name)].phase for index in range(self.want.planned(name))]
                assert set(phases) <= {Phase.READY, Phase.DONE}
        is_end = not self.want.running or rules.over(self.want, self.tasks)
        if isinstance(action, Cancel) and is_end and before is not None and before.phase in RUNNING:
            followers = {each.name for each in self.want.workload.groups if mine.name in each.after}
            assert not [one for one in self.tasks.values() if one.key.group in followers and one.phase in LIVE]

    def submit(self, action: Submit) -> None:
        task = action.task
        assert action.again or task.token not in self.made, "started twice"
        assert task.token in self.living or task.key not in self.living.values(), "two of one task"
        if task.token not in self.made:
            self.made.add(task.token)
            self.living[task.token] = task.key
        mine = [token for token in self.made if token.startswith(f"w.{task.key.group}.{task.key.index}.")]
        assert task.key.group != self.want.workload.ends_with or len(mine) <= self.want.generation, "it was replaced"
        self.tasks[task.key] = facts.accepted(task, Handle(task.token).native, self.now)

    def look(self) -> None:
        for task in [one for one in self.tasks.values() if one.phase in LIVE and one.phase is not Phase.SUBMITTING]:
            life = Life.RUNNING if task.token in self.living else Life.GONE
            self.take(task, Observed(life))

    def take(self, task: Task, seen: Observed) -> None:
        if seen.life is not Life.RUNNING:
            self.living.pop(task.token, None)
        self.tasks[task.key] = facts.observed(task, self.want.workload.group(task.key.group), seen, self.now)

    def says(self, task: Task, state: str) -> None:
        self.seq += 1
        self.tasks[task.key] = facts.reported(task, report(task.token, state, self.seq), self.now)

    def happen(self, event: str, which: int) -> None:
        if event == "time":
            self.now += 7.0
        elif event == "again":
            self.want = replace(self.want, generation=self.want.generation + 1)
        elif event == "host dies":
            self.step(dies=True)
        elif self.living:
            task = self.tasks[self.living[sorted(self.living)[which % len(self.living)]]]
            if task.phase not in RUNNING | {Phase.PENDING}:
                return
            if event in ("ready", "unhealthy"):
                self.says(task, event)
            else:
                code = {"fails": 1, "ends well": 0}.get(event)
                self.take(task, Observed(Life.GONE if code is None else Life.ENDED, exit_code=code))

    def rest(self, *, all_get_ready: bool = False) -> None:
        """Until nothing changes any more."""
        for _ in range(400):
            if all_get_ready:
                for task in [one for one in self.tasks.values() if one.phase in RUNNING | {Phase.PENDING}]:
                    self.says(task, "ready")
            if not self.step() and next_due(self.tasks, self.now, self.want) is None:
                return
            self.now += min(next_due(self.tasks, self.now, self.want) or 0.0, 60.0)
        raise AssertionError(self.tasks)


@st.composite
def wants(draw: st.DrawFn) -> Want:
    names, groups = "abcd"[: draw(st.integers(1, 4))], []
    for at, name in enumerate(names):
        before = [other for other in names[:at] if draw(st.booleans())]
        groups.append(after(name, *before, count=draw(st.integers(1, 2))))
    last = draw(st.sampled_from([None, *names]))
    rule = {"replace": ONCE}
    made = [one.model_copy(update=rule) if one.name == last else one for one in groups]
    return deployed(*draw(st.permutations(made)), ends_with=last)


@settings(max_examples=300, deadline=None)
@given(wants(), st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 7)), max_size=40))
def test_whatever_happens_none_starves_all_come_to_rest_and_nothing_is_started_twice(
    want: Want, story: list[tuple[str, int]]
) -> None:
    world = World(want)
    for event, which in story:
        world.step()
        world.happen(event, which)
    world.rest(all_get_ready=True)
    if rules.over(world.want, world.tasks):
        assert {task.phase for task in world.tasks.values()} <= FINAL
    gates = rules.held(world.want, world.tasks)
    for task in world.tasks.values():
        if task.phase not in {Phase.READY, *FINAL}:
            assert task.key in gates
            before = world.want.workload.group(task.key.group).after
            assert any(one.phase is not Phase.READY for one in world.tasks.values() if one.key.group in before)
    world.want = replace(world.want, running=False)
    world.rest()
    assert {task.phase for task in world.tasks.values()} <= FINAL
    assert not world.living


def test_notes_are_all_that_is_done_with_what_is_held() -> None:
    actions = [action for action in decide(FOUR, {}, NOW) if action.task.key.group != "service"]
    assert all(isinstance(action, Note) for action in actions)
