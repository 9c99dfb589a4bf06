"""Rows go in and come out, in one transaction, under one fence; on both databases."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from remuda.base.errors import Conflict, Fenced, NotFound
from remuda.store.database import EVIDENCE_KEPT_S
from remuda.store.rows import AllocationRow, Evidence, JobRow, StoryLine, TaskRow, WorkloadRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.store.database import Store

SWARM = WorkloadRow(
    name="llama",
    uid="x7k2p",
    kind="swarm",
    backend="local",
    plan='{"groups":[]}',
    spec="replicas: 2  # zwei",
    created_at=1_795_000_000.25,
    changed_at=1_795_000_001.5,
)
TASK = TaskRow(
    workload="llama",
    group_name="replica",
    idx=0,
    backend="local",
    phase="ready",
    attempt=3,
    since=1_795_000_002.125,
    token="remuda-llama-replica-0-3-x7k2p",
    native="4242",
    failures=1,
    reason="ütf-8 ✓ 'quoted' \"twice\" $(touch x)",
    url="http://127.0.0.1:8000",
    http_status=200,
    pid=2**22,
    exit_code=None,
    seq=2**40,
    metrics='{"running": 1.5}',
)
ALLOCATION = AllocationRow(
    token=TASK.token, workload="llama", group_name="replica", idx=0, attempt=3, backend="local", submitted_at=5.0
)


@pytest.fixture
def swarm(store: Store, fence: int) -> Store:
    store.add_workloads(fence, [SWARM])
    return store


def test_a_workload_comes_back_as_it_was(store: Store, fence: int) -> None:
    store.add_workloads(fence, [SWARM])
    assert store.workload("llama") == SWARM
    assert store.workloads() == [SWARM]


def test_a_name_is_taken_once(swarm: Store, fence: int) -> None:
    with pytest.raises(Conflict, match="'llama' exists already"):
        swarm.add_workloads(fence, [replace(SWARM, uid="other")])
    assert swarm.workload("llama") == SWARM


def test_unknown_names_are_not_found(store: Store, fence: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.workload("llama"),
        lambda: store.replace_workload(fence, SWARM),
        lambda: store.set_intent(fence, "llama", running=False, counts="{}", changed_at=1.0),
        lambda: store.set_workload_phase(fence, "llama", "ready"),
    ]
    for call in calls:
        with pytest.raises(NotFound, match="no workload 'llama'"):
            call()
    store.remove_workload(fence, "llama")


def test_an_intent_raises_the_generation(swarm: Store, fence: int) -> None:
    first = swarm.set_intent(fence, "llama", running=True, counts='{"replica": 3}', changed_at=7.0, note="scaled")
    second = swarm.set_intent(fence, "llama", running=False, counts="{}", changed_at=8.0)
    assert (first, second) == (2, 3)
    assert swarm.workload("llama") == replace(SWARM, running=False, counts="{}", generation=3, changed_at=8.0)


def test_many_end_in_one_transaction(swarm: Store, fence: int) -> None:
    names = [f"run-{number:03}" for number in range(600)]
    swarm.add_workloads(fence, [replace(SWARM, name=name, uid=name, paused=True) for name in names])
    generations = swarm.end_workloads(fence, [*names, "nobody"], changed_at=9.0, note="taken down")
    assert generations == dict.fromkeys(names, SWARM.generation + 1)
    rows = {row.name: row for row in swarm.workloads()}
    expected = replace(SWARM, running=False, changed_at=9.0, note="taken down", generation=SWARM.generation + 1)
    assert rows["run-599"] == replace(expected, name="run-599", uid="run-599", paused=True)
    assert rows["llama"] == SWARM, "others are left alone"


def test_a_pause_and_a_restart_stay_until_they_are_changed(swarm: Store, fence: int) -> None:
    swarm.set_intent(fence, "llama", running=True, counts="{}", changed_at=1.0, paused=True, restart_mark=3)
    swarm.set_intent(fence, "llama", running=True, counts="{}", changed_at=2.0)
    assert (swarm.workload("llama").paused, swarm.workload("llama").restart_mark) == (True, 3)
    swarm.set_intent(fence, "llama", running=True, counts="{}", changed_at=3.0, paused=False)
    assert (swarm.workload("llama").paused, swarm.workload("llama").restart_mark) == (False, 3)


def test_generations_are_given_once_each(swarm: Store, fence: int) -> None:
    seen: list[int] = []

    def ask() -> None:
        for _ in range(10):
            seen.append(swarm.set_intent(fence, "llama", running=True, counts="{}", changed_at=1.0))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(2, 42))


def test_replacing_keeps_the_tasks(swarm: Store, fence: int) -> None:
    swarm.record(fence, tasks=[TASK])
    swarm.replace_workload(fence, replace(SWARM, uid="new", plan="{}", phase="starting"))
    assert swarm.workload("llama").uid == "new"
    assert swarm.tasks("llama") == [TASK]


def test_the_phase_is_kept(swarm: Store, fence: int) -> None:
    swarm.set_workload_phase(fence, "llama", "ready")
    assert swarm.workload("llama") == replace(SWARM, phase="ready")


def test_removing_takes_the_tasks_and_leaves_the_story(swarm: Store, fence: int) -> None:
    swarm.record(fence, tasks=[TASK], allocations=[ALLOCATION], events=[StoryLine(at=1.0, workload="llama")])
    swarm.remove_workload(fence, "llama")
    assert swarm.workloads() == []
    assert swarm.tasks() == []
    assert swarm.allocations("llama") == [ALLOCATION]
    assert len(swarm.events("llama")) == 1


def test_tasks_come_in_order_and_are_overwritten_whole(swarm: Store, fence: int) -> None:
    swarm.add_workloads(fence, [replace(SWARM, name="a")])
    rows = [replace(TASK, idx=idx) for idx in (10, 2, 0)]
    router = replace(TASK, group_name="a-router")
    other = replace(TASK, workload="a")
    swarm.record(fence, tasks=[*rows, router, other])
    assert swarm.tasks() == [other, router, *rows[::-1]]
    later = replace(TASK, idx=2, phase="failed", exit_code=1, reason="")
    swarm.record(fence, tasks=[later])
    assert swarm.tasks("llama") == [router, rows[2], later, rows[0]]


def test_a_record_is_all_or_nothing(swarm: Store, fence: int) -> None:
    orphan = replace(TASK, workload="gone")
    with pytest.raises(Conflict):
        swarm.record(fence, tasks=[TASK, orphan], events=[StoryLine(at=1.0, workload="llama")])
    assert swarm.tasks() == []
    assert swarm.events("llama") == []


def test_allocations_are_overwritten_by_token(swarm: Store, fence: int) -> None:
    ended = replace(ALLOCATION, ended_at=9.0, exit_code=137, signal=9, evidence="tail\0of \udcff log")
    swarm.record(fence, allocations=[ALLOCATION])
    swarm.record(fence, allocations=[ended])
    assert swarm.allocations("llama") == [replace(ended, evidence="tail\N{REPLACEMENT CHARACTER}of ? log")]


def test_events_are_read_forwards_and_from_the_end(swarm: Store, fence: int) -> None:
    lines = [StoryLine(at=float(n), workload="llama", task=f"replica/{n % 2}", reason=str(n)) for n in range(10)]
    swarm.record(fence, events=[*lines, StoryLine(at=0.0, workload="other")])
    found = swarm.events("llama")
    assert [replace(event, id=0) for event in found] == lines
    assert swarm.events("llama", limit=3) == found[-3:]
    assert swarm.events("llama", limit=3, after_id=found[1].id) == found[2:5]
    assert swarm.events("llama", after_id=found[-1].id) == []
    assert [event.reason for event in swarm.events("llama", task="replica/1", limit=2)] == ["7", "9"]


def test_evidence_expires(store: Store, fence: int) -> None:
    weak = Evidence(node="n1", at=1.0, kind="xid", weight=0.5, device="0", expires_at=10.0)
    store.add_evidence(fence, [weak, replace(weak, node="n2", expires_at=20.0)])
    assert [item.node for item in store.evidence(now=5.0)] == ["n1", "n2"]
    assert [item.node for item in store.evidence(now=10.0)] == ["n2"]


def test_evidence_is_written_with_the_facts_or_not_at_all(swarm: Store, fence: int) -> None:
    seen = Evidence(node="n1", at=1.0, kind="xid", cluster="slurm", workload="llama", expires_at=10.0)
    swarm.record(fence, tasks=[TASK], evidence=[seen])
    assert [replace(item, id=0) for item in swarm.evidence(now=5.0)] == [seen]
    with pytest.raises(Conflict):
        swarm.record(fence, tasks=[replace(TASK, workload="no such")], evidence=[seen])
    assert len(swarm.evidence(now=5.0)) == 1


def test_the_history_of_a_node_keeps_what_has_expired(store: Store, fence: int) -> None:
    one = Evidence(node="n1", at=1.0, kind="xid", cluster="a", expires_at=2.0)
    store.add_evidence(fence, [one, replace(one, node="n2"), replace(one, at=3.0), replace(one, at=4.0, cluster="b")])
    assert [(item.at, item.cluster) for item in store.node_history("n1")] == [(1.0, "a"), (3.0, "a"), (4.0, "b")]
    assert [item.at for item in store.node_history("n1", cluster="a")] == [1.0, 3.0]
    assert [item.at for item in store.node_history("n1", limit=2)] == [3.0, 4.0]
    later = 2.0 + EVIDENCE_KEPT_S
    store.add_evidence(fence, [replace(one, at=later, expires_at=later + 9)])
    assert len(store.node_history("n1")) == 4, "kept to the last second"
    store.add_evidence(fence, [replace(one, at=later + 1, expires_at=later + 9)])
    assert [item.at for item in store.node_history("n1")] == [later, later + 1]


def test_a_ban_is_taken_back_and_remembered(store: Store, fence: int) -> None:
    ban = Evidence(node="n1", at=1.0, kind="ban", cluster="a", expires_at=100.0)
    fault = replace(ban, kind="xid")
    store.add_evidence(fence, [ban, ban, fault, replace(ban, node="n2"), replace(ban, cluster="b")])
    assert store.end_evidence(fence, "n1", cluster="a", kind="ban", now=5.0) == 2
    assert store.end_evidence(fence, "n1", cluster="a", kind="ban", now=6.0) == 0
    assert [(item.node, item.kind, item.cluster) for item in store.evidence(now=5.0)] == [
        ("n1", "xid", "a"), ("n2", "ban", "a"), ("n1", "ban", "b"),
    ]  # fmt: skip
    assert len(store.node_history("n1")) == 4


def test_meta_values(store: Store, fence: int) -> None:
    assert store.meta("color") == ""
    store.set_meta(fence, "color", "bay")
    store.set_meta(fence, "color", "roan")
    assert store.meta("color") == "roan"


def test_every_write_checks_the_fence(swarm: Store, fence: int) -> None:
    swarm.record(fence, tasks=[TASK])
    calls: list[Callable[[int], object]] = [
        lambda old: swarm.add_workloads(old, [replace(SWARM, name="b")]),
        lambda old: swarm.replace_workload(old, replace(SWARM, plan="no")),
        lambda old: swarm.set_intent(old, "llama", running=False, counts="{}", changed_at=1.0),
        lambda old: swarm.set_workload_phase(old, "llama", "no"),
        lambda old: swarm.remove_workload(old, "llama"),
        lambda old: swarm.record(old, tasks=[replace(TASK, phase="no")]),
        swarm.record,
        lambda old: swarm.add_evidence(old, [Evidence(node="n", at=1.0, kind="k", expires_at=9.0)]),
        lambda old: swarm.end_evidence(old, "n", cluster="", kind="ban", now=1.0),
        lambda old: swarm.set_meta(old, "k", "no"),
    ]
    for wrong in (fence - 1, fence + 1):
        for call in calls:
            with pytest.raises(Fenced, match=f"lease {fence} is in force"):
                call(wrong)
    assert (swarm.workloads(), swarm.tasks(), swarm.evidence(0), swarm.meta("k")) == ([SWARM], [TASK], [], "")


_anything = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)
_times = st.floats(min_value=0, max_value=4e9)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(reason=_anything, since=_times, exit_code=st.none() | st.integers(-255, 255), seq=st.integers(-1, 2**53))
def test_any_task_comes_back_as_it_was(
    swarm: Store, fence: int, reason: str, since: float, exit_code: int | None, seq: int
) -> None:
    row = replace(TASK, reason=reason, since=since, exit_code=exit_code, seq=seq)
    swarm.record(fence, tasks=[row])
    assert swarm.tasks() == [row]


def test_a_thousand_tasks_are_written_by_a_few_statements(swarm: Store, fence: int) -> None:
    rows = [replace(TASK, idx=idx) for idx in range(1000)]
    swarm.record(fence, tasks=rows)
    statements: list[str] = []
    event.listen(swarm.engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    changed = [replace(row, attempt=9) for row in rows]
    swarm.record(fence, tasks=changed)
    assert len(statements) < 10, statements
    assert swarm.tasks() == changed


def test_several_changes_are_one_transaction(swarm: Store, fence: int) -> None:
    with swarm.together(fence):
        swarm.set_intent(fence, "llama", running=False, counts="{}", changed_at=9.0)
        swarm.record(fence, tasks=[TASK])
        assert swarm.workload("llama").running is False, "it reads what it wrote"
        seen: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(swarm.workload("llama").running))
        other.start()
        other.join(120)
        assert seen == [True], "nobody else does before it has ended"
    assert swarm.workload("llama").running is False
    assert swarm.tasks("llama") == [TASK]


def test_of_several_changes_that_fail_none_is_kept(swarm: Store, fence: int) -> None:
    def stop(*names: str) -> None:
        with swarm.together(fence):
            for name in names:
                swarm.set_intent(fence, name, running=False, counts="{}", changed_at=9.0)

    with pytest.raises(NotFound):
        stop("llama", "nobody")
    assert swarm.workload("llama").running is True
    swarm.record(fence, tasks=[TASK])
    with pytest.raises(Fenced), swarm.together(fence + 1):
        pass


def test_jobs_are_written_whole_and_forgotten(store: Store, fence: int) -> None:
    row = JobRow("out-k3f9a", what="my.jobs:Ask", state="RUNNING", done=2**40, total=None, rate=1.5, detached=True,
                 output="/ü/✓\0.parquet", told='{"done": 1}', created_at=1_795_000_000.25, pid=2**22)  # fmt: skip
    other = replace(row, id="other", state="WAITING", failed=3)
    store.record_jobs(fence, [row, other])
    clean = "/ü/✓�.parquet"
    assert {one.id: one for one in store.jobs()} == {one.id: replace(one, output=clean) for one in (row, other)}
    done = replace(row, state="DONE", output="/o", outcome='{"state": "DONE"}', ended_at=7.5)
    store.record_jobs(fence, [done], ["other", "never was"])
    assert store.jobs() == [done]
    with pytest.raises(Fenced):
        store.record_jobs(fence + 1, [], [done.id])
    assert store.jobs() == [done]
