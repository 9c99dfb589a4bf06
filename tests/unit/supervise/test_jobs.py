"""What becomes of a job: the table of moves, and what follows from what is to be seen of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.base.errors import Conflict
from remuda.store.rows import JobRow
from remuda.supervise.jobs import (
    BY,
    DONE,
    ELSEWHERE,
    ENDED,
    FAILED,
    GONE,
    HERE,
    LOST,
    MOVES,
    RUNNING,
    SILENT_S,
    STOPPED,
    WAITING,
    JobSeen,
    JobTold,
    due,
    last_word,
    moved,
    taken_in,
)

NOW = 1_000_000.0
STATES = (WAITING, RUNNING, DONE, FAILED, STOPPED, LOST)
REFUSED = {
    (LOST, WAITING), (FAILED, STOPPED), (FAILED, LOST), (STOPPED, FAILED), (STOPPED, LOST), (DONE, FAILED),
    (DONE, STOPPED), (DONE, LOST),
}  # fmt: skip


def seen(*, detached: bool = False, kind: str = "batch", **known: Any) -> JobSeen:
    meta = {"created_at": 5.0, "kind": kind, "what": "chat", "detached": detached, "output": "/o.parquet"}
    return JobSeen(**{
        "id": "j1", "meta": meta, "outcome": {}, "outcome_at": 0.0, "progress": {}, "heard_at": NOW - 1.0, **known,
    })  # fmt: skip


def after(*said: tuple[JobSeen, JobTold | None], quiet_s: float = 0.0) -> JobRow:
    row: JobRow | None = None
    for one, told in said:
        row = taken_in(row, one, told, quiet_s, NOW)
    assert row is not None
    return row


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("word", STATES)
def test_the_table_of_moves(state: str, word: str) -> None:
    if (state, word) not in REFUSED:
        assert moved(state, word) == word
        return
    with pytest.raises(Conflict, match=f"a job that is {state} cannot be {word}"):
        moved(state, word)


def test_every_state_has_its_moves_and_words_that_nobody_knows_are_refused() -> None:
    assert MOVES.keys() == set(STATES)
    with pytest.raises(Conflict):
        moved(RUNNING, "GONE FISHING")


@pytest.mark.parametrize(
    ("life", "quiet_s", "expected"),
    [
        (HERE, 0.0, RUNNING),
        (HERE, 1e6, RUNNING),  # it was frozen, or its disk is full
        (GONE, 0.0, LOST),
        (ELSEWHERE, 0.0, RUNNING),
        (ELSEWHERE, SILENT_S - 1, RUNNING),
        (ELSEWHERE, SILENT_S, LOST),
        (ELSEWHERE, -1e6, RUNNING),  # the clock of its file system is ahead
    ],
)
def test_a_job_of_a_terminal_is_lost_with_its_process_alone(life: str, quiet_s: float, expected: str) -> None:
    row = after((seen(life=life), None), quiet_s=quiet_s)
    assert row.state == expected
    assert row.reason == ("its process was killed; type the same command again to resume" if expected == LOST else "")


def test_who_was_silent_and_speaks_again_was_not_lost() -> None:
    lost = after((seen(life=ELSEWHERE), None), quiet_s=SILENT_S)
    assert (lost.state, lost.ended_at) == (LOST, NOW - 1.0)
    again = taken_in(lost, seen(life=ELSEWHERE, heard_at=NOW), None, 0.0, NOW)
    assert (again.state, again.reason, again.ended_at) == (RUNNING, "", 0.0)


@pytest.mark.parametrize(
    ("phase", "life", "expected"),
    [
        ("PENDING", GONE, WAITING), ("STARTING", HERE, RUNNING), ("RUNNING", ELSEWHERE, RUNNING),
        ("FAILED", GONE, FAILED), ("STOPPING", HERE, STOPPED), ("DOWN", GONE, STOPPED), ("DONE", GONE, DONE),
    ],
)  # fmt: skip
def test_of_a_detached_job_the_supervisor_says_how_it_is(phase: str, life: str, expected: str) -> None:
    row = after((seen(detached=True, life=life), JobTold(phase, "as told", node="n1", attempt=2, heard_at=7.0)))
    assert (row.state, row.node, row.attempt, row.heartbeat_at) == (expected, "n1", 2, 7.0)


def test_the_word_of_its_process_is_truer_than_the_supervisors() -> None:
    told = JobTold("STOPPING", "cancelled")
    done = seen(detached=True, outcome={"state": DONE, "reason": "", "summary": {"rows": 9}}, outcome_at=NOW)
    row = after((seen(detached=True), told), (done, told))
    assert (row.state, row.summary, row.ended_at) == (DONE, {"rows": 9}, NOW)
    assert after((done, None), (seen(detached=True), told)) == after((done, None)), "what is written stays"


def test_what_the_host_wrote_for_readers_of_folders_gives_way_to_its_supervisor() -> None:
    failed = after((seen(detached=True, kind="script"), JobTold("FAILED", "its node failed")))
    word = last_word(failed, seen(detached=True, kind="script"))
    assert word == {"state": FAILED, "reason": "its node failed", BY: "host"}
    written = seen(detached=True, kind="script", outcome=word)
    assert last_word(failed, written) is None
    assert after((written, None)).state == FAILED
    assert taken_in(failed, written, JobTold("STARTING"), 0.0, NOW).state == WAITING, "it was restarted"


@pytest.mark.parametrize(("kind", "state"), [("batch", None), ("script", DONE), ("benchmark", DONE)])
def test_a_batch_says_itself_that_it_is_done(kind: str, state: str | None) -> None:
    one = seen(detached=True, kind=kind)
    row = after((one, JobTold("DONE", since=NOW - 60.0)))
    assert (row.state, (last_word(row, one) or {}).get("state")) == (DONE, state)


def test_numbers_are_those_of_its_progress() -> None:
    progress = {"done": 7, "failed": 2, "total": None, "rows_per_s": 3.5}
    row = after((seen(life=HERE, progress=progress), None))
    assert (row.done, row.failed, row.total, row.rate, row.progress) == (7, 2, None, 3.5, progress)
    summary = {"rows": 9, "done": 8, "seconds": 2.0, "failed": 1}
    row = taken_in(row, seen(outcome={"state": DONE, "summary": summary}, outcome_at=NOW), None, 0.0, NOW)
    assert (row.done, row.failed, row.total, row.rate, row.started_at) == (8, 1, 9, 4.0, 5.0)


@pytest.mark.parametrize("odd", [None, "7", [], {}, True, 1e300, float("nan"), -(10**30)])
def test_what_somebody_else_put_into_its_files_does_no_harm(odd: Any) -> None:
    progress = {"done": odd, "failed": odd, "total": odd, "rows_per_s": odd}
    outcome = {"state": odd, "summary": odd, "error": odd}
    meta = {"created_at": odd, "what": odd, "detached": odd}
    row = after((seen(meta=meta, progress=progress, outcome=outcome), None))
    assert (row.done, row.failed, row.rate) == (None, None, 0.0)
    assert row.state in STATES
    json.dumps(row.to_json())


def test_another_job_of_the_same_id_begins_anew_and_one_whose_file_cannot_be_read_does_not() -> None:
    row = after((seen(outcome={"state": DONE}), None))
    other = replace(seen(life=HERE), meta={"created_at": 6.0})
    assert taken_in(row, other, None, 0.0, NOW).state == RUNNING
    assert taken_in(row, replace(seen(life=GONE), meta={}), None, 0.0, NOW) == row


def test_what_is_due() -> None:
    def row(name: str, state: str, ended_at: float = 0.0) -> JobRow:
        return JobRow(name, state=state, ended_at=ended_at)

    rows = {one.id: one for one in (
        row("waits", WAITING), row("runs", RUNNING), row("done", DONE, 5.0), row("told", FAILED, 5.0),
        row("lost", LOST, 5.0), row("just-lost", LOST, NOW - 60.0), row("gone", RUNNING),
    )}  # fmt: skip
    folders = {*rows, "new"} - {"gone"}
    assert due(rows, folders, {"told", "gone"}, NOW) == ["just-lost", "new", "runs", "told", "waits"]


@given(st.lists(st.tuples(
    st.sampled_from(["", *STATES]), st.sampled_from([HERE, GONE, ELSEWHERE]),
    st.sampled_from(["", "PENDING", "RUNNING", "DONE", "FAILED", "STOPPING", "DOWN"]), st.floats(0, 2000),
    st.booleans(),
), max_size=12))  # fmt: skip
def test_whatever_is_seen_only_allowed_moves_are_made_and_a_second_look_changes_nothing(steps: list[Any]) -> None:
    row: JobRow | None = None
    for word, life, phase, quiet_s, detached in steps:
        one = seen(life=life, outcome={"state": word} if word else {}, detached=detached)
        told = JobTold(phase, since=NOW - 60.0) if phase and detached else None
        before, row = row, taken_in(row, one, told, quiet_s, NOW)
        assert row.state in MOVES[before.state if before else WAITING]
        assert (row.ended_at > 0) == (row.state in ENDED)
        assert taken_in(row, one, told, quiet_s, NOW) == row
