"""What is said of a whole workload: its phase, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.build import group, key, want

from remuda.plan.model import Endpoint, Kind, Pack, Role, Seat
from remuda.store.rows import StoryLine
from remuda.supervise.explain import explain
from remuda.supervise.model import TIME_OVER, Allocation, Cause, Phase, Task
from remuda.supervise.summary import by_role, current, summarise

if TYPE_CHECKING:
    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Want

NOW = 1_000_000.0
TWO = group(count=2)
ROUTER = group("router", 1, role=Role.ROUTER)
SWARM = want(TWO, ROUTER, endpoint=Endpoint(router="router"))
ALL = want(TWO, ROUTER, endpoint=Endpoint(router="router", ready="all"))
SHOWN = replace(ALL, announced=True)
ALONE = want(TWO)
PARTS = replace(ALONE, workload=ALONE.workload.model_copy(update={"kind": Kind.RECORDING}))
NONE = replace(SWARM, counts={"replica": 0})
DOWN = want(TWO, ROUTER, running=False, endpoint=Endpoint(router="router"))
RELAYED = want(TWO, ROUTER, group("relay", 1, role=Role.RELAY), endpoint=Endpoint(router="router", relay="relay"))
PACKED, BESIDE = (
    replace(SWARM, workload=SWARM.workload.model_copy(update={
        "pack": Pack(nodes=1, seats=(Seat(group=name, index=0, node=0, place=0),))
    })) for name in ("replica", "router")
)  # fmt: skip
SCRIPT = want(group("script", 1, role=Role.SCRIPT))

W, S, P, T, R, U, E, F, D, X = (
    Phase.WAITING, Phase.SUBMITTING, Phase.PENDING, Phase.STARTING, Phase.READY, Phase.UNHEALTHY, Phase.STOPPING,
    Phase.FAILED, Phase.DONE, Phase.STOPPED,
)  # fmt: skip


def tasks(*phases: Phase, router: Phase | None = None) -> dict[TaskKey, Task]:
    made = [Task(key(index), "fake", phase, attempt=1, reason=f"r{index}") for index, phase in enumerate(phases)]
    if router is not None:
        made.append(Task(key(0, "router"), "fake", router, attempt=1, reason="of the router"))
    return {task.key: task for task in made}


@pytest.mark.parametrize(
    ("wanted", "seen", "expected"),
    [
        pytest.param(SWARM, tasks(), ("PENDING", 0, 2, ""), id="nothing yet"),
        pytest.param(SWARM, tasks(S, S, router=S), ("PENDING", 0, 2, ""), id="submitting"),
        pytest.param(SWARM, tasks(P, P, router=P), ("PENDING", 0, 2, "replica/0: r0"), id="pending"),
        pytest.param(SWARM, tasks(P, T, router=P), ("STARTING", 0, 2, "replica/0: r0"), id="one starts"),
        pytest.param(SWARM, tasks(R, R, router=T), ("STARTING", 2, 2, "of the router"), id="router not ready"),
        pytest.param(SWARM, tasks(R, R), ("STARTING", 2, 2, "not started yet"), id="router not there"),
        pytest.param(SWARM, tasks(R, R, router=R), ("RUNNING", 2, 2, ""), id="all ready"),
        pytest.param(SWARM, tasks(R, T, router=R), ("DEGRADED", 1, 2, "replica/1: r1"), id="first is enough"),
        pytest.param(ALL, tasks(R, T, router=R), ("STARTING", 1, 2, "replica/1: r1"), id="first is not enough"),
        pytest.param(SHOWN, tasks(R, T, router=R), ("DEGRADED", 1, 2, "replica/1: r1"), id="lost one, once announced"),
        pytest.param(SHOWN, tasks(T, T, router=R), ("STARTING", 0, 2, "replica/0: r0"), id="lost all"),
        pytest.param(SHOWN, tasks(R, R, router=T), ("STARTING", 2, 2, "of the router"), id="lost its router"),
        pytest.param(SWARM, tasks(R, F, router=R), ("DEGRADED", 1, 2, "replica/1: r1"), id="one failed"),
        pytest.param(SWARM, tasks(F, F, router=R), ("FAILED", 0, 2, "r0"), id="all failed"),
        pytest.param(SWARM, tasks(R, R, router=F), ("FAILED", 2, 2, "the router failed: of the router"), id="front"),
        pytest.param(SWARM, tasks(W, U, router=R), ("STARTING", 0, 2, "replica/1: r1"), id="unhealthy before waiting"),
        pytest.param(SWARM, tasks(W, F, router=R), ("STARTING", 0, 2, "replica/1: r1"), id="failed before all"),
        pytest.param(PACKED, tasks(W, F, router=W), ("FAILED", 0, 2, "replica/1: r1"), id="one of a pack failed"),
        pytest.param(BESIDE, tasks(W, F, router=R), ("STARTING", 0, 2, "replica/1: r1"), id="one that is in no pack"),
        pytest.param(SWARM, tasks(W, W, router=W), ("WAITING", 0, 2, "replica/0: r0"), id="all wait"),
        pytest.param(SWARM, tasks(W, P, router=W), ("PENDING", 0, 2, "replica/0: r0"), id="one is in the queue"),
        pytest.param(NONE, tasks(), ("PENDING", 0, 0, ""), id="nobody wants a replica"),
        pytest.param(SWARM, tasks(W, router=W), ("PENDING", 0, 2, "replica/0: r0"), id="one was never submitted"),
        pytest.param(ALONE, tasks(R, R), ("RUNNING", 2, 2, ""), id="no endpoint, all ready"),
        pytest.param(ALONE, tasks(R, T), ("STARTING", 1, 2, "replica/1: r1"), id="no endpoint, one ready"),
        pytest.param(PARTS, tasks(R, X), ("RUNNING", 1, 2, ""), id="one of its parts was ended"),
        pytest.param(PARTS, tasks(R, P), ("RUNNING", 1, 2, ""), id="one of its parts waits"),
        pytest.param(PARTS, tasks(R, F), ("DEGRADED", 1, 2, "replica/1: r1"), id="one of its parts failed"),
        pytest.param(PARTS, tasks(D, F), ("FAILED", 0, 2, "replica/1: r1"), id="the last of its parts failed"),
        pytest.param(DOWN, tasks(E, X, router=E), ("STOPPING", 0, 0, "2 tasks still end"), id="ending"),
        pytest.param(DOWN, tasks(X, X, router=E), ("STOPPING", 0, 0, "1 task still ends"), id="one ends"),
        pytest.param(DOWN, tasks(X, F, router=D), ("DOWN", 0, 0, ""), id="down"),
        pytest.param(DOWN, tasks(), ("DOWN", 0, 0, ""), id="down before it began"),
        pytest.param(ALONE, tasks(R, R, X), ("RUNNING", 2, 2, ""), id="surplus that stopped"),
        pytest.param(ALONE, tasks(R, R, F), ("RUNNING", 2, 2, ""), id="surplus that failed"),
        pytest.param(ALONE, tasks(R, R, E), ("RUNNING", 2, 2, ""), id="surplus that ends"),
        pytest.param(ALONE, tasks(D, D), ("DONE", 0, 2, ""), id="all done"),
        pytest.param(ALONE, tasks(D, D, X), ("DONE", 0, 2, ""), id="all done but a surplus one"),
        pytest.param(ALONE, tasks(D, T), ("STARTING", 0, 2, "replica/1: r1"), id="one done"),
    ],
)
def test_summary(wanted: Want, seen: dict[TaskKey, Task], expected: tuple[str, int, int, str]) -> None:
    summary = summarise(wanted, seen)
    assert (summary.phase, summary.ready, summary.wanted, summary.reason) == expected


def apart(*prefill: Phase, decode: tuple[Phase, ...]) -> dict[TaskKey, Task]:
    made = [Task(key(index, "prefill"), "fake", phase, attempt=1) for index, phase in enumerate(prefill)]
    made += [Task(key(index, "decode"), "fake", phase, attempt=1) for index, phase in enumerate(decode)]
    return {task.key: task for task in made}


@pytest.mark.parametrize(
    ("seen", "phase", "expected"),
    [
        (apart(R, R, decode=(R, R)), "RUNNING", "prefill 2/2, decode 2/2"),
        (apart(R, R, decode=(R, T)), "DEGRADED", "prefill 2/2, decode 1/2"),
        (apart(R, T, decode=(T, R)), "DEGRADED", "prefill 1/2, decode 1/2"),
        (apart(T, T, decode=(R, R)), "STARTING", "prefill 0/2, decode 2/2"),
    ],
)
def test_what_runs_apart_is_up_with_one_of_each_role(seen: dict[TaskKey, Task], phase: str, expected: str) -> None:
    groups = [group(role.value, 2, role=role) for role in (Role.PREFILL, Role.DECODE)]
    wanted = want(*groups, group("relay", 1, role=Role.RELAY), endpoint=Endpoint())
    assert summarise(wanted, seen).phase == phase
    counts = by_role(wanted, seen).items()
    assert ", ".join(f"{role} {ready}/{of}" for role, (ready, of) in counts) == expected


@pytest.mark.parametrize(("phase", "expected"), [(D, "DONE"), (R, "RUNNING"), (F, "FAILED"), (W, "WAITING")])
def test_where_nothing_serves_every_task_counts(phase: Phase, expected: str) -> None:
    script = Task(key(0, "script"), "fake", phase, attempt=1)
    assert summarise(SCRIPT, {script.key: script}).phase == expected


def test_what_was_never_submitted_is_pending() -> None:
    script = Task(key(0, "script"), "fake", W)
    assert summarise(SCRIPT, {script.key: script}).phase == "PENDING"


@pytest.mark.parametrize(("phase", "expected"), [(U, "UNHEALTHY"), (E, "RESTARTING"), (P, "PENDING"), (T, "STARTING")])
def test_a_run_is_what_its_task_is(phase: Phase, expected: str) -> None:
    run = replace(SCRIPT, workload=SCRIPT.workload.model_copy(update={"kind": Kind.RUN}))
    script = Task(key(0, "script"), "fake", phase, attempt=1)
    assert summarise(run, {script.key: script}).phase == expected


@pytest.mark.parametrize("phase", [D, F, X])
def test_what_has_ended_has_no_count_of_what_is_ready(phase: Phase) -> None:
    script = Task(key(0, "script"), "fake", phase, attempt=1, cause=Cause.USER)
    first = explain(SCRIPT, {script.key: script}, [], [], "", NOW)[0]
    assert first == f"w is {phase.value.upper()}"
    assert explain(replace(SCRIPT, running=False), {script.key: script}, [], [], "", NOW)[0] == "w is DOWN"


def test_scaled_up_it_is_not_complete_yet() -> None:
    wanted = replace(SWARM, counts={"replica": 3})
    summary = summarise(wanted, tasks(R, R, router=R))
    assert (summary.phase, summary.ready, summary.wanted) == ("DEGRADED", 2, 3)


def test_what_ended_and_is_not_planned_does_not_matter_any_more() -> None:
    seen = tasks(R, X, X, E, router=R)
    kept = current(replace(SWARM, counts={"replica": 1}), seen)
    assert [str(one) for one in kept] == ["w/replica/0", "w/replica/3", "w/router/0"]
    assert list(current(replace(SWARM, running=False), tasks(X, F, X))) == [key(0), key(1)]


def test_explain_tells_states_ends_and_story() -> None:
    seen = tasks(R, W, router=R)
    seen[key(0)] = replace(seen[key(0)], since=NOW - 3600, node="n7", reason="answers its health probe")
    seen[key(1)] = replace(seen[key(1)], since=NOW - 5, attempt=3, failures=2, not_before=NOW + 40)
    end = Allocation(
        "t", key(1), 2, "fake", NOW - 60, ended_at=NOW - 5, exit_code=9, cause=Cause.APPLICATION,
        reason="ended with exit code 9", evidence="\n".join(f"line {number}" for number in range(9)),
    )  # fmt: skip
    story = [
        StoryLine(NOW - 50 + number, "w", "move", f"step {number}", "replica/1", 2, "ready") for number in range(20)
    ]
    text = explain(SWARM, seen, story, [end], "", NOW)
    assert text[0] == "w is DEGRADED: 1 of 2 ready"
    assert text[1] == "  because replica/1: r1"
    assert "replica/0: ready for 1h on n7" in text
    assert "replica/1: waiting for 5.0s, attempt 3" in text
    assert "  next attempt in 40s, after 2 failures" in text
    assert any("replica/1 attempt 2: ended with exit code 9 (cause: application)" in line for line in text)
    assert [line for line in text if line.startswith("      | ")] == [
        f"      | line {number}" for number in range(4, 9)
    ]
    assert len([line for line in text if " step " in line]) == 12
    assert text[-1].endswith("step 19")


def test_explain_tells_of_silence_and_little_else_when_there_is_little() -> None:
    text = explain(ALONE, {}, [], [replace(LIVING, ended_at=0.0)], "timed out", NOW)
    assert text == [
        "w is PENDING: 0 of 2 ready",
        "  the backend fake does not answer (timed out); nothing is concluded from that",
    ]


LIVING = Allocation("t", key(0), 1, "fake", NOW)


def relayed(router: Phase, relay: Phase) -> dict[TaskKey, Task]:
    task = Task(key(0, "relay"), "local", relay, attempt=1, reason="of the relay")
    return {**tasks(R, R, router=router), task.key: task}


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(relayed(R, R), ("RUNNING", ""), id="both"),
        pytest.param(relayed(R, T), ("STARTING", "of the relay"), id="the relay starts"),
        pytest.param(relayed(T, R), ("STARTING", "of the router"), id="the router starts"),
        pytest.param(relayed(R, F), ("FAILED", "the relay failed: of the relay"), id="the relay failed"),
    ],
)
def test_the_relay_is_part_of_the_way(seen: dict[TaskKey, Task], expected: tuple[str, str]) -> None:
    summary = summarise(RELAYED, seen)
    assert (summary.phase, summary.reason) == expected


RANKS = group("rank", 4, role=Role.RANK)
GANG = replace(want(RANKS), workload=want(RANKS).workload.model_copy(update={"kind": Kind.GANG}))
QUORUM = replace(GANG, workload=GANG.workload.model_copy(update={
    "groups": (RANKS.model_copy(update={"quorum": 2}),),
}))  # fmt: skip


def ranks(*phases: Phase, over: bool = False) -> dict[TaskKey, Task]:
    why = f"{TIME_OVER}; ended" if over else ""
    made = [
        Task(key(index, "rank"), "fake", phase, attempt=1, reason=why or f"r{index}")
        for index, phase in enumerate(phases)
    ]
    return {task.key: task for task in made}


@pytest.mark.parametrize(
    ("wanted", "seen", "expected"),
    [
        pytest.param(GANG, ranks(), ("PENDING", 0, 4, ""), id="nothing yet"),
        pytest.param(GANG, ranks(R, R, T, R), ("STARTING", 3, 4, "rank/2: r2"), id="one starts"),
        pytest.param(GANG, ranks(R, R, R, R), ("RUNNING", 4, 4, ""), id="all run"),
        pytest.param(GANG, ranks(R, R, W, R), ("STARTING", 3, 4, "rank/2: r2"), id="one is begun again"),
        pytest.param(GANG, ranks(R, D, D, R), ("RUNNING", 2, 4, ""), id="who is done is not missed"),
        pytest.param(GANG, ranks(D, D, W, D), ("PENDING", 0, 4, "rank/2: r2"), id="only one is not done, and waits"),
        pytest.param(GANG, ranks(D, D, D, D), ("DONE", 0, 4, ""), id="all done"),
        pytest.param(GANG, ranks(R, R, F, R), ("FAILED", 3, 4, "rank/2: r2"), id="one is enough to fail"),
        pytest.param(GANG, ranks(D, D, F, D), ("FAILED", 0, 4, "rank/2: r2"), id="one failed, the others are done"),
        pytest.param(QUORUM, ranks(R, R, T, W), ("DEGRADED", 2, 4, "rank/3: r3"), id="a quorum goes on"),
        pytest.param(QUORUM, ranks(R, W, W, W), ("STARTING", 1, 4, "rank/1: r1"), id="less than a quorum"),
        pytest.param(QUORUM, ranks(R, D, W, R), ("DEGRADED", 2, 4, "rank/2: r2"), id="a quorum, and one is done"),
        pytest.param(
            GANG, ranks(X, X, D, X, over=True), ("FAILED", 0, 4, "rank/0: its time is over; ended"), id="late"
        ),
    ],
)
def test_a_gang(wanted: Want, seen: dict[TaskKey, Task], expected: tuple[str, int, int, str]) -> None:
    found = summarise(wanted, seen)
    assert (found.phase, found.ready, found.wanted, found.reason) == expected


@pytest.mark.parametrize(
    ("fronts", "gate", "expected"),
    [
        ((R, R), D, ("RUNNING", "")),
        ((R, T), D, ("RUNNING", "")),
        ((T, T), D, ("STARTING", "of frontend 0")),
        ((F, T), D, ("STARTING", "of frontend 1")),
        ((F, R), D, ("RUNNING", "")),
        ((F, F), D, ("FAILED", "the frontend failed: of frontend 0")),
        ((R, R), R, ("STARTING", "of the gate")),
        ((R, R), W, ("STARTING", "of the gate")),
        ((R, R), F, ("FAILED", "the gate failed: of the gate")),
    ],
)
def test_frontends_and_the_gate_are_part_of_the_way(
    fronts: tuple[Phase, ...], gate: Phase, expected: tuple[str, str]
) -> None:
    groups = (TWO, group("frontend", 2, role=Role.FRONTEND), ROUTER, group("gate", 1, role=Role.GATE))
    wanted = want(*groups, endpoint=Endpoint(router="router", behind="frontend", gate="gate", ready="all"))
    seen = tasks(R, R, router=R)
    made = [Task(key(0, "gate"), "fake", gate, attempt=1, reason="of the gate")]
    for index, phase in enumerate(fronts):
        made.append(Task(key(index, "frontend"), "fake", phase, attempt=1, reason=f"of frontend {index}"))
    all_ = seen | {task.key: task for task in made}
    summary = summarise(wanted, all_)
    assert (summary.phase, summary.reason) == expected
    if gate is not D:
        assert summarise(replace(wanted, announced=True), all_).phase == "RUNNING", "what serves is not taken down"
