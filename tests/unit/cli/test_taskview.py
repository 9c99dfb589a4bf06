"""Tasks in a table, in lines and on the way up, at every width."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli import taskview, watch
from remuda.client import swarms

NOW = 10_000.0
TASK: dict[str, Any] = {
    "task": "replica/0", "phase": "ready", "node": "a100-1", "url": "http://10.0.0.1:8000", "http_status": 200,
    "attempt": 1, "restarts": 0, "since": NOW - 60, "last_seen": NOW - 2, "limit_at": NOW + 7140, "native": "12_0",
    "metrics": {"running": 12.0, "waiting": 3.0, "tokens_per_s": 812.4, "generated_tokens": 9e6}, "reason": "",
}  # fmt: skip
LOADS = {**TASK, "phase": "starting", "metrics": {}, "reason": "nothing listens on the port; log: shard 2 of 8"}
WAITS = {
    **TASK, "phase": "pending", "node": "", "url": "", "http_status": 0, "last_seen": 0.0, "limit_at": 0.0,
    "metrics": {}, "reason": "waits for others with higher priority; expected to start at 14:30",
}  # fmt: skip
VIEW: dict[str, Any] = {"backend": "slurm", "tasks": [TASK, LOADS, WAITS]}


def test_all_columns_where_nobody_looks_or_there_is_room() -> None:
    shown = taskview.columns(VIEW, 0)
    assert shown == taskview.columns(VIEW, 200)
    assert dict(zip(shown, taskview.row(TASK, shown, NOW), strict=True)) == {
        "task": "replica/0", "phase": "ready", "node": "a100-1", "address": "10.0.0.1:8000", "http": "200",
        "attempt": "1", "restarts": "0", "for": "1m", "seen": "2.0s", "queue": "12 +3", "tok/s": "812", "job": "12_0",
        "ends in": "1h 59m", "reason": "",
    }  # fmt: skip


def test_a_process_of_this_machine_beside_a_cluster_has_no_job() -> None:
    router = {**TASK, "task": "router/0", "native": "/home/me/.remuda/workloads/chat/router-0/1"}
    assert [taskview.cell(one, "job", NOW) for one in (TASK, router)] == ["12_0", ""]


def test_numbers_of_what_does_not_answer_are_old_and_not_shown() -> None:
    ill = {**TASK, "phase": "unhealthy"}
    assert [taskview.cell(ill, column, NOW) for column in ("queue", "tok/s")] == ["", ""]


def test_a_narrower_table_keeps_what_is_wanted_most() -> None:
    shown = taskview.columns(VIEW, 120)
    assert shown == ("task", "phase", "node", "restarts", "for", "queue", "tok/s", "ends in", "reason")
    assert "ends in" not in taskview.columns({"backend": "local"}, 120)
    assert sum(len(text) + 2 for text in taskview.row(TASK, shown, NOW)) < taskview.MIDDLE


def test_where_several_roles_work_each_is_counted() -> None:
    one = {"role": "prefill", "ready": 2, "wanted": 2}
    view = {"phase": "DEGRADED", "ready": 3, "wanted": 4, "roles": [one, {"role": "decode", "ready": 1, "wanted": 2}]}
    assert taskview.ready(view) == "prefill 2/2, decode 1/2"
    assert taskview.ready({**view, "roles": [one]}, " of ") == "3 of 4"
    assert taskview.ready({**view, "phase": "DOWN"}) == ""


@given(st.integers(8, 95), st.sampled_from([TASK, LOADS, WAITS]))
def test_lines_fit(width: int, task: dict[str, Any]) -> None:
    assert all(len(line) <= width for line in taskview.lines(task, NOW, width))
    assert len(taskview.progress(task, NOW, width)) <= width


def test_lines_in_words() -> None:
    assert taskview.lines(TASK, NOW, 80) == [
        "replica/0  ready for 1m", "  on a100-1, 12 +3 requests, 812 tok/s, ends in 1h 59m",
    ]  # fmt: skip
    assert taskview.lines(WAITS, NOW, 80) == [
        "replica/0  pending for 1m", "  waits for others with higher priority; expected to start at 14:30",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "width", "expected"),
    [
        (TASK, 0, "replica/0    ready      on a100-1"),
        (LOADS, 0, "replica/0    starting   on a100-1  nothing listens on the port; log: shard 2 of 8"),
        (LOADS, 60, "replica/0    starting       1m on a100-1  nothing listens o…"),
        ({**WAITS, "attempt": 2}, 0, "replica/0    pending    attempt 2  " + WAITS["reason"]),
    ],
)
def test_on_the_way_up(task: dict[str, Any], width: int, expected: str) -> None:
    assert taskview.progress(task, NOW, width) == expected


@given(st.lists(st.sampled_from(["ready", "starting", "pending", "failed"]), max_size=70), st.integers(3, 40))
def test_many_tasks_fit_on_the_screen(phases: list[str], room: int) -> None:
    tasks = [{"task": f"replica/{n}", "phase": phase} for n, phase in enumerate(phases)]
    kept, more = taskview.chosen(tasks, room)
    assert len(kept) + bool(more) <= room
    assert [task for task in tasks if task in kept] == kept
    assert bool(more) == (len(kept) < len(tasks))
    if any(task["phase"] == "ready" for task in kept):
        assert "failed" not in more
        assert "starting" not in more


def test_the_load_of_a_swarm() -> None:
    assert taskview.load({}) == ""
    assert taskview.load({"running": 4.0, "waiting": 0.0, "tokens_per_s": 1234.0}) == (
        "4 running, 0 waiting, 1,234 tokens/s"
    )


def views(*seen: dict[str, Any]) -> Any:
    frame = {"name": "herd", "ready": 0, "wanted": 1, "reason": "", "unreachable": "", "created_at": NOW}
    yield from ({**frame, "tasks": [task]} for task in seen)


def test_piped_a_new_line_of_output_alone_is_no_news(capsys: pytest.CaptureFixture[str]) -> None:
    more = {**LOADS, "reason": "nothing listens on the port; log: shard 3 of 8"}
    assert watch._plain(views(WAITS, LOADS, more, more, TASK))["tasks"] == [TASK]
    assert capsys.readouterr().err.splitlines() == [
        taskview.progress(task, 0.0, 0) for task in (WAITS, LOADS, TASK)
    ]  # fmt: skip


def test_ctrl_c_leaves_it_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str, limit_s: float, *, ends_with: str) -> Any:
        assert (name, limit_s, ends_with) == ("herd", 600.0, "bench")
        raise KeyboardInterrupt

    monkeypatch.setattr(swarms, "wait_up", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch.until_up({"name": "herd"}, {"wait_s": 600.0, "ends_with": "bench"})
    assert capsys.readouterr().err == (
        "herd is still coming up: remuda status herd --watch; take it down with remuda down herd\n"
    )


@pytest.mark.parametrize("phase", ["DONE", "FAILED", "STOPPED", "DOWN"])
def test_what_has_ended_shows_no_count_of_what_is_ready(phase: str) -> None:
    view = {"phase": "RUNNING", "ready": 1, "wanted": 2}
    assert (taskview.ready(view), taskview.ready(view, " of ")) == ("1/2", "1 of 2")
    assert taskview.ready({**view, "phase": phase}) == ""


def test_a_rank_has_steps_and_no_address() -> None:
    shown = taskview.columns({"kind": "gang", "backend": "local"}, 0)
    assert not {"address", "http", "queue", "tok/s"} & set(shown)
    rank = {**TASK, "task": "rank/3", "metrics": {"progress_step": 120.0, "progress_total": 500.0}}
    assert taskview.cell(rank, "progress", NOW) == "120/500"
    assert taskview.cell({**rank, "metrics": {"progress_step": 1.0}}, "progress", NOW) == "1"
    assert taskview.cell({**rank, "metrics": {}}, "progress", NOW) == ""
