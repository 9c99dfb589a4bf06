from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.profile.invented import looks, recorded, track

from remuda.profile import Attempt, analyse, as_csv, as_json, tables
from remuda.profile.analysis import NOBODY, UNKNOWN
from remuda.profile.columns import join
from remuda.profile.stats import Stat, counts, describe
from remuda.profile.tables import show_stat

WATT = [1_000 * at for at in range(11)]


def test_a_row_of_a_gpu() -> None:
    one = track({"busy": [0, 0, 50, 100], "memory": [2.0**30] * 4, "energy": [0, 100_000, 200_000, 300_000]})
    (row,) = analyse(recorded(one)).gpus
    assert (row.use.samples, row.expected, row.use.seconds, row.share, row.gaps) == (4, 4, 4.0, 1.0, 0)
    assert row.use.stats["busy"] == (37.5, 0.0, 100.0, 100.0)
    assert row.use.stats["memory"].mean == 1.0
    assert row.use.idle == 0.5
    assert row.use.joules == 300.0
    assert row.heat_s is None


def test_a_gap_is_neither_idle_nor_busy() -> None:
    (row,) = analyse(recorded(track({"busy": [0, 0, 100, 100]}, [0, 1, 1001, 1002]))).gpus
    assert row.use.idle == 0.5
    assert row.use.seconds == 4.0
    assert row.gaps == 1
    assert row.expected == 1003
    assert row.share == pytest.approx(4 / 1003)


def test_missing_is_never_zero() -> None:
    (row,) = analyse(recorded(track({"busy": [None, None, 80], "power": [None] * 3, "energy": [None] * 3}))).gpus
    assert row.use.stats["busy"] == (80.0, 80.0, 80.0, 80.0)
    assert row.use.idle == 0.0
    assert "watts" not in row.use.stats
    assert row.use.joules is None


def test_a_thinned_minute_counts_as_much_as_a_whole_one() -> None:
    times = [*range(60), *(60 + at / 10 for at in range(600))]
    busy = [100.0] * 60 + [0.0] * 600
    (row,) = analyse(recorded(track({"busy": busy}, times, interval_s=0.1))).gpus
    assert row.use.idle == pytest.approx(0.5, abs=0.01)
    assert row.use.stats["busy"].mean == pytest.approx(50, abs=0.1)
    assert row.use.stats["busy"].p95 == 100
    assert row.gaps == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_percentiles_are_values_that_were_seen(values: list[float]) -> None:
    column, steps = np.array(values), np.full(len(values), 0.1)
    stat = describe(column, steps, counts(steps))
    assert stat is not None
    assert stat.p50 == sorted(values)[math.ceil(0.5 * len(values)) - 1]
    assert stat.p95 == sorted(values)[math.ceil(0.95 * len(values)) - 1]
    assert stat.mean == pytest.approx(sum(values) / len(values))


# Who used it


def test_a_gpu_of_one_task_is_all_its_own() -> None:
    one = track({"energy": WATT, "busy": [50] * 11}, token="a", looks=looks([(at, "a", 50) for at in range(2, 11)]))
    analysis = analyse(recorded(one))
    (task,) = analysis.tasks
    assert (task.task, task.use.joules, task.use.is_shared) == ("a", 10.0, False)
    assert not analysis.gpus[0].use.is_shared


def test_a_gpu_that_is_shared_is_split_by_shares() -> None:
    seen = looks([row for at in range(11) for row in ((at, "a", 60.0), (at, "b", 20.0))])
    analysis = analyse(recorded(track({"energy": WATT, "busy": [80] * 11}, looks=seen)))
    joules = {row.task: row.use.joules for row in analysis.tasks}
    assert joules == {"a": pytest.approx(7.5), "b": pytest.approx(2.5)}
    assert analysis.gpus[0].use.is_shared
    assert all(row.use.is_shared for row in analysis.tasks)
    assert [row.own and row.own.p50 for row in analysis.tasks] == [60.0, 20.0]
    assert [row.joules for row in analysis.processes] == [pytest.approx(7.5), pytest.approx(2.5)]


def test_who_does_not_compute_shares_what_idling_costs() -> None:
    seen = looks([row for at in range(11) for row in ((at, "a", 0.0), (at, "b", None))])
    rows = analyse(recorded(track({"energy": WATT}, looks=seen))).tasks
    assert [row.use.joules for row in rows] == [pytest.approx(5.0)] * 2


def test_time_without_a_process_is_the_tasks_beside_it_or_nobodys() -> None:
    seen = looks([(at, "a", 50.0) for at in range(5)])
    beside = analyse(recorded(track({"energy": WATT, "busy": [9] * 11}, token="a", looks=seen))).tasks
    assert [(row.task, row.use.joules) for row in beside] == [("a", 10.0)]
    alone = analyse(recorded(track({"energy": WATT, "busy": [9] * 11}, looks=seen))).tasks
    assert {row.task: row.use.joules for row in alone} == {NOBODY: pytest.approx(5.0), "a": pytest.approx(5.0)}


def test_a_stranger_makes_it_shared() -> None:
    seen = looks([row for at in range(11) for row in ((at, "a", 60.0), (at, "", 20.0))])
    analysis = analyse(recorded(track({"energy": WATT}, token="a", looks=seen)))
    assert analysis.gpus[0].use.is_shared
    assert {row.task for row in analysis.tasks} == {"a", UNKNOWN}


rows = st.lists(
    st.tuples(st.integers(0, 10), st.sampled_from("abc"), st.none() | st.floats(0, 100)),
    unique_by=lambda row: row[:2], max_size=33,
).map(sorted)  # fmt: skip


@settings(max_examples=60)
@given(
    rows, st.lists(st.integers(0, 10**6), min_size=10, max_size=10), st.sampled_from(["", "a", "d"]),
    st.sampled_from([0, 5, 900]),
)  # fmt: skip
def test_shares_add_up_to_what_the_gpu_used(
    seen: list[tuple[int, str, float | None]], steps: list[int], token: str, gap: int
) -> None:
    counter = np.concatenate([[0], np.cumsum(steps)]).tolist()
    times = [at + (gap if at > 5 else 0) for at in range(11)]
    moved = [(times[at], owner, busy) for at, owner, busy in seen]
    one = track({"energy": counter}, times, token=token, looks=looks(moved) if moved else None)
    analysis = analyse(recorded(one))
    total = sum(steps) / 1000
    assert analysis.joules == pytest.approx(total)
    if analysis.tasks:  # none where all of it is nobody's
        assert sum(row.use.joules or 0.0 for row in analysis.tasks) == pytest.approx(total)
    assert sum(row.joules or 0.0 for row in analysis.processes) <= total * (1 + 1e-9) + 1e-9


def test_restarts_on_other_nodes_are_one_task_on_one_timeline() -> None:
    first = track({"energy": WATT, "busy": [50] * 11}, token="t-1", node="n1")
    second = track({"energy": [7, 3_007], "busy": [100, 100]}, [60, 61], token="t-2", node="n2", boot="c")
    whole = recorded(first, second, attempt_of=lambda token: Attempt("train", int(token[-1])))
    (row,) = analyse(whole).tasks
    assert (row.task, row.attempts, row.nodes, row.gpus) == ("train", (1, 2), ("n1", "n2"), 2)
    assert row.use.joules == pytest.approx(13.0)
    assert row.use.seconds == 13.0
    assert whole.span_s == 62.0


def test_a_recorder_that_began_again_is_one_track_and_loses_no_joule() -> None:
    one = track({"energy": WATT[:5], "busy": [1] * 5}, [0, 1, 2, 3, 4])
    other = track({"energy": WATT[7:], "power": [5.0] * 4}, [8, 9, 10, 11])
    (whole,) = join([other, one])
    assert len(whole.times) == 9
    assert whole.gaps == [(int(whole.times[4]), int(whole.times[5]))]
    assert analyse(recorded(whole)).joules == 10.0
    assert np.isnan(whole.values["busy"][5:]).all()


def test_a_sample_that_two_have_is_there_once() -> None:
    one = track({"busy": [1, 2, 3]}, looks=looks([(0, "a", 5.0), (1, "a", 5.0)]))
    other = track({"busy": [2, 3, 4]}, [1, 2, 3], looks=looks([(1, "a", 5.0), (2, "b", 1.0)]))
    (whole,) = join([one, other])
    assert whole.values["busy"].tolist() == [1, 2, 3, 4]
    assert [whole.looks.people[who].owner for who in whole.looks.who] == ["task:a", "task:a", "task:b"]


def test_a_thousand_processes_on_a_gpu() -> None:
    seen = looks([(at, f"t{number}", 0.1) for at in range(11) for number in range(1000)])
    analysis = analyse(recorded(track({"energy": WATT}, looks=seen)))
    assert len(analysis.processes) == 1000
    assert sum(row.joules or 0.0 for row in analysis.processes) == pytest.approx(10.0)
    assert [table.more for table in tables(analysis)] == [0, 0, 950]


def test_the_last_hour_of_a_day() -> None:
    busy = [100.0] * 23 + [0.0, 0.0]
    whole = recorded(track({"busy": busy}, interval_s=3600.0))
    assert [row.use.idle for row in analyse(whole.last(3600)).gpus] == [1.0]


# Cells


def test_tables_and_files_say_the_same() -> None:
    seen = looks([row for at in range(11) for row in ((at, "a", 60.0), (at, "b", 20.0))])
    analysis = analyse(recorded(track({"energy": WATT, "busy": [80] * 11}, looks=seen)))
    assert [table.title for table in tables(analysis)] == ["GPUs", "Tasks", "Processes"]
    assert all(len(row) == len(table.columns) for table in tables(analysis) for row in table.rows)
    data = as_json(analysis)
    assert data["gpus"][0]["busy"] == {"mean": 80.0, "p50": 80.0, "p95": 80.0, "max": 80.0}
    head, *lines = as_csv(analysis).splitlines()
    assert [line.split(",")[0] for line in lines] == ["gpu", "task", "task", "process", "process"]
    assert {"joules", "busy_p95", "own_mean"} <= set(head.split(","))


@pytest.mark.parametrize(
    ("stat", "text"),
    [
        ((50.24, 51, 96, 1234.5), "50.2 · 51 · 96 · 1,234"),
        ((34.99999, 35, 35, 35), "35"),
        ((0.04, 0, 0, 1), "<0.1 · 0 · 0 · 1"),
        (None, "–"),
    ],
)
def test_four_numbers_or_one(stat: tuple[float, float, float, float] | None, text: str) -> None:
    assert show_stat(None if stat is None else Stat(*stat)) == text
