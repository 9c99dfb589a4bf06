"""What is written is what is read, whatever it is."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.supervise.build import key, workload

from remuda.backends.base import TaskKey
from remuda.store.rows import StoryLine, WorkloadRow
from remuda.supervise.changes import Changes
from remuda.supervise.model import Allocation, Cause, Phase, Task, Want
from remuda.supervise.records import row_of, task_of, want_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.supervise.bed import Bed

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
names = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,8}", fullmatch=True)
numbers = st.integers(-1, 2**40)
times = st.floats(0, 4e9, allow_nan=False)
metrics = st.dictionaries(texts, st.floats(allow_nan=False, allow_infinity=False), max_size=4)
keys = st.builds(TaskKey, names, names, st.integers(0, 10_000))
tasks = st.builds(
    Task,
    key=keys, backend=names, phase=st.sampled_from(Phase), attempt=numbers, generation=numbers, since=times,
    token=texts, submitted_at=times, native=texts, failures=numbers, not_before=times, ready_since=times, kill_at=times,
    cause=st.sampled_from(Cause), reason=texts, node=texts, url=texts, http_status=numbers, pid=numbers,
    restarts=numbers, exit_code=st.none() | st.integers(-255, 255), seq=numbers, last_seen=times, metrics=metrics,
    started_at=times, released=st.booleans(), never=texts, limit_at=times, requeues=numbers,
    ending=st.sampled_from(Cause), pool=texts, pool_refusals=numbers, pool_failures=numbers, pool_nevers=numbers,
    pool_left_at=times,
    quick_failures=numbers, restart_mark=numbers, ports=st.dictionaries(names, numbers, max_size=2),
)  # fmt: skip


@given(task=tasks)
def test_a_task_survives_its_row(task: Task) -> None:
    assert task_of(row_of(task)) == task


def test_every_field_of_a_task_has_a_column() -> None:
    other = {"key": TaskKey("a", "b", 3), "phase": Phase.READY, "cause": Cause.NODE, "metrics": {"running": 2.0},
             "ending": Cause.NODE, "released": True, "ports": {"bootstrap": 8998}}  # fmt: skip
    full = Task(TaskKey("a", "b", 3), "fake")
    for number, name in enumerate(Task.__slots__, 1):
        old = getattr(full, name)
        value = other.get(name, f"text {number}" if isinstance(old, str) else number)
        changed = Task(**{**{item: getattr(full, item) for item in Task.__slots__}, name: value})
        assert getattr(task_of(row_of(changed)), name) == value, name


@settings(max_examples=25, deadline=None)
@given(drawn=st.lists(tasks, max_size=5, unique_by=lambda task: task.key), text=texts)
def test_tasks_allocations_and_lines_survive_the_database(drawn: list[Task], text: str) -> None:
    from tests.unit.supervise.bed import Bed

    with tempfile.TemporaryDirectory() as folder:
        bed = Bed(Path(folder) / "remuda.db")
        try:
            _write_and_read(bed, drawn, text)
        finally:
            bed.close()


def _write_and_read(bed: Bed, drawn: list[Task], text: str) -> None:
    for name in {task.key.workload for task in drawn}:
        bed.store.add_workloads(bed.journal.fence, [WorkloadRow(name, "u", "swarm", "fake", "{}")])
    ends = [
        Allocation(
            f"token-{number}", task.key, task.attempt, task.backend, 5.0, text, text, float(number), task.exit_code, 9,
            task.cause, text, text, float(number), text,
        )
        for number, task in enumerate(drawn)
    ]  # fmt: skip
    lines = [
        StoryLine(float(number), task.key.workload, "move", text, "g/0", 3, "ready")
        for number, task in enumerate(drawn)
    ]
    bed.journal.record(tasks=drawn, allocations=ends, lines=lines)
    assert sorted(bed.journal.tasks(), key=lambda task: task.key) == sorted(drawn, key=lambda task: task.key)
    for name in {task.key.workload for task in drawn}:
        mine = [end for end in ends if end.key.workload == name]
        assert sorted(bed.journal.allocations(name), key=lambda end: end.token) == sorted(
            mine, key=lambda end: end.token
        )
        told = [(line.at, line.reason, line.task, line.attempt, line.phase) for line in bed.journal.store.events(name)]
        assert told == [(line.at, text, "g/0", 3, "ready") for line in lines if line.workload == name]


def test_allocations_come_by_their_end_and_living_ones_last(bed: Bed) -> None:
    bed.up()
    key = TaskKey("w", "replica", 0)
    made = [Allocation(f"t{at}", key, 1, "fake", submitted_at=1.0, ended_at=at) for at in (0.0, 30.0, 10.0)]
    bed.journal.record(allocations=made)
    assert [item.token for item in bed.journal.allocations("w")] == ["t10.0", "t30.0", "t0.0"]


@pytest.mark.parametrize("counts", [{}, {"replica": 7, "router": 0}])
@pytest.mark.parametrize("running", [True, False])
def test_an_intent_survives_its_row(counts: Mapping[str, int], running: bool) -> None:
    import json

    plan = workload()
    row = WorkloadRow(
        "w", plan.uid, "swarm", "fake", plan.model_dump_json(), "", running, 4, json.dumps(counts),
        paused=not running, restart_mark=7, group_marks=json.dumps(counts),
    )  # fmt: skip
    expected = Want(plan, running, 4, dict(counts), paused=not running, restart_mark=7, group_marks=dict(counts))
    assert want_of(row) == expected
    assert (expected.mark(key(0)), expected.mark(key(0, "other"))) == (7 + counts.get("replica", 0), 7)


def test_when_it_is_to_be_killed_is_no_news_of_its_own() -> None:
    """A thousand that are asked a moment late are not written down again; a host that comes later asks anew."""
    task = Task(TaskKey("w", "script", 0), "fake", Phase.STOPPING, kill_at=10.0)
    changes = Changes()
    changes.note(task, replace(task, kill_at=20.0), 5.0)
    assert changes.is_empty()
    changes.note(task, replace(task, reason="cannot be ended now"), 5.0)
    assert changes.tasks == {task.key}
