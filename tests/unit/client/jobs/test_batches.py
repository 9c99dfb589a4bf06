"""What is known of a job, from its folder and from the host."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.clock import FakeClock
from tests.unit.client.streams import lines_of

from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, HostUnreachable, InputError, NotFound, Unavailable, Unwritable
from remuda.client.jobs import batches
from remuda.host.feed import FeedFrame
from remuda.host.reconcilers.job_rows import JobKeeper
from remuda.plan.model import Kind
from remuda.store.rows import BRIEF, WHOLE, JobRow
from remuda.supervise.jobs import JobTold
from remuda.views import job_folders
from remuda.views.job_folders import JobFolder, new_id
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALIVE = identify(os.getpid()).__dict__
DEAD = {**ALIVE, "start": "1"}


class FakeKeeper(JobKeeper):
    """Keeps rows as the host does, without a database, and a supervisor that says what a test says."""

    views: dict[str, dict[str, Any]]

    def _told(self, name: str) -> JobTold | None:
        view = self.views.get(name)
        if view is None or "phase" not in view:
            return None
        task = {"since": 0.0, "native": "", "node": "", "attempt": 0, **next(iter(view.get("tasks", ())), {})}
        return JobTold(view["phase"], view["reason"], **task)


class FakeClient:
    """Answers as the host does, and remembers what it was told."""

    def __init__(self, paths: StatePaths, views: dict[str, dict[str, Any]]) -> None:
        self.posted: list[str] = []
        self.views = views
        kinds = {name: Kind(view.get("kind", "job")) for name, view in views.items()}
        wants: Any = {name: SimpleNamespace(workload=SimpleNamespace(kind=kind)) for name, kind in kinds.items()}
        store = SimpleNamespace(jobs=list, record_jobs=lambda *_: None)
        journal: Any = SimpleNamespace(store=store, fence=1)
        supervisor: Any = SimpleNamespace(wants=wants)
        self.keeper = FakeKeeper(journal, supervisor, paths, FakeClock(time.time()))
        self.keeper.views = views

    def get(self, path: str, *, name: str = "", brief: bool = False) -> Any:
        assert path == "/jobs"
        return json.loads(asyncio.run(self.keeper.answer(name, brief=brief)))

    def post(self, path: str, body: object = None) -> Any:
        self.posted.append(path)
        if path.endswith("/down"):
            self.views[path.split("/")[-2]] |= {"phase": "STOPPING", "reason": "cancelled"}


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path)


def make(paths: StatePaths, job_id: str = "j1", **meta: Any) -> JobFolder:
    folder = JobFolder(paths, job_id)
    folder.create({"kind": "batch", "what": "chat", "input": "a", "output": "b", "progress": "", **meta})
    return folder


def test_a_full_disk_is_one_sentence_and_leaves_no_job(paths: StatePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(job_folders, "write_atomic", full)
    with pytest.raises(Unwritable, match="/j1 cannot be written: No space left on device") as caught:
        make(paths)
    assert "make room" in caught.value.hint
    assert not (paths.jobs / "j1").exists()


@pytest.mark.parametrize(
    ("detached", "outcome", "owner", "phase", "expected"),
    [
        (False, None, ALIVE, None, "RUNNING"),
        (False, None, DEAD, None, "LOST"),
        (False, None, None, None, "LOST"),
        (False, {"state": "DONE"}, DEAD, None, "DONE"),
        (False, {"state": "FAILED", "reason": "no such column"}, ALIVE, None, "FAILED"),
        (False, {"state": "STOPPED"}, None, None, "STOPPED"),
        (True, None, None, None, "WAITING"),
        (True, None, None, "PENDING", "WAITING"),
        (True, None, None, "STARTING", "WAITING"),
        (True, None, None, "RUNNING", "RUNNING"),
        (True, None, None, "DEGRADED", "WAITING"),
        (True, None, None, "DONE", "DONE"),
        (True, None, None, "FAILED", "FAILED"),
        (True, None, None, "STOPPING", "STOPPED"),
        (True, None, None, "DOWN", "STOPPED"),
        (True, None, None, "STOPPED", "STOPPED"),
        (True, None, ALIVE, "STARTING", "RUNNING"),
        (True, {"state": "DONE"}, None, "RUNNING", "DONE"),
    ],
)
def test_the_state_is_what_its_process_said_else_who_runs_it_else_what_the_host_says(
    paths: StatePaths, detached: bool, outcome: Any, owner: Any, phase: str | None, expected: str
) -> None:
    folder = make(paths, detached=detached)
    if outcome:
        folder.write("outcome.json", outcome)
    if owner:
        folder.write("owner.json", owner)
    client: Any = FakeClient(paths, {"j1": {"phase": phase, "reason": "as the host says"}}) if phase else None
    state = batches.job_state(paths, client, "j1")
    assert state.state == expected
    assert batches.list_jobs(paths, client) == [state]
    if outcome:
        assert state.reason == outcome.get("reason", "")
    elif expected == "RUNNING" and owner:
        assert state.reason == ""
    elif phase:
        assert state.reason == "as the host says"
    else:
        assert state.reason


def test_progress_and_summary_come_from_its_files(paths: StatePaths, tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    progress.write_text('{"done": 7, "total": 9}')
    folder = make(paths, progress=str(progress), swarm="herd", detached=True)
    folder.write("outcome.json", {"state": "DONE", "summary": {"rows": 9}})
    state = batches.job_state(paths, None, "j1")
    assert (state.progress, state.summary, state.swarm) == ({"done": 7, "total": 9}, {"rows": 9}, "herd")
    assert json.loads(json.dumps(state.to_json()))["summary"] == {"rows": 9}
    progress.write_text("{half")
    assert batches.job_state(paths, None, "j1").progress == {}


def test_jobs_are_listed_newest_first_and_strangers_are_not(paths: StatePaths) -> None:
    assert batches.list_jobs(paths, None) == []
    for at, name in ((5.0, "old"), (9.0, "new"), (7.0, "middle")):
        make(paths, name, created_at=at)
    (paths.jobs / "stranger").mkdir()
    assert [state.id for state in batches.list_jobs(paths, None)] == ["new", "middle", "old"]


def test_unknown_jobs_are_answered_with_the_nearest(paths: StatePaths) -> None:
    with pytest.raises(NotFound) as caught:
        batches.job_state(paths, None, "answers-1")
    assert caught.value.hint == "`remuda job list` shows what there is"
    make(paths, "answers-2")
    with pytest.raises(NotFound) as caught:
        batches.job_state(paths, None, "answers-1")
    assert caught.value.hint == "did you mean 'answers-2'?"


def test_an_id_is_taken_once_and_must_be_a_name(paths: StatePaths) -> None:
    make(paths)
    with pytest.raises(Conflict, match="there is a job 'j1' already"):
        make(paths)
    with pytest.raises(InputError, match="cannot be a name"):
        make(paths, "../x")
    assert (JobFolder(paths, "j1").path / "job.json").stat().st_mode & 0o777 == 0o600


def test_new_ids_are_names_made_of_the_output(paths: StatePaths) -> None:
    made = new_id("/data/My Answers (3).parquet")
    assert made.startswith("my-answers-3-")
    assert make(paths, made).path.exists()
    assert new_id("/data/My Answers (3).parquet") != made


def test_cancelling_what_is_detached_takes_it_down(paths: StatePaths) -> None:
    folder = make(paths, detached=True)
    client: Any = FakeClient(paths, {"j1": {"phase": "RUNNING", "reason": ""}})
    assert batches.cancel_job(paths, client, "j1").state == "STOPPED"
    assert client.posted == ["/workloads/j1/down"]
    assert folder.read("outcome.json")["reason"] == "cancelled"
    with pytest.raises(Conflict, match="is STOPPED already"):
        batches.cancel_job(paths, client, "j1")


def test_cancelling_what_runs_in_a_terminal_interrupts_it(paths: StatePaths) -> None:
    import subprocess

    process = subprocess.Popen(["sleep", "60"])
    try:
        folder = make(paths)
        folder.write("owner.json", identify(process.pid).__dict__)
        assert batches.cancel_job(paths, None, "j1").id == "j1"
        assert process.wait(90) == -2
    finally:
        process.kill()
        process.wait()
    assert batches.job_state(paths, None, "j1").state == "LOST"


def test_waiting_ends_with_the_job(paths: StatePaths) -> None:
    folder = make(paths)
    folder.write("owner.json", ALIVE)
    states = batches.wait_job(paths, None, "j1")
    assert next(states).state == "RUNNING"
    folder.write("outcome.json", {"state": "DONE"})
    assert [state.state for state in states] == ["DONE"]
    assert batches.ended(paths, None, "j1").state == "DONE"


class Telling(FakeClient):
    """A host that tells of these rows, one life of it after the other, and counts what it is asked for."""

    asked = 0

    def __init__(self, paths: StatePaths, views: dict[str, dict[str, Any]], *lives: list[dict[str, Any]]) -> None:
        super().__init__(paths, views)
        self.lives = list(lives)

    def get(self, path: str, *, name: str = "", brief: bool = False) -> Any:
        self.asked += 1
        return super().get(path, name=name, brief=brief)

    def lines(self, path: str, quiet_s: Any, /, **_: Any) -> Iterator[str]:
        if not self.lives:
            raise Unavailable("64 follow already")
        for rows in self.lives.pop(0):
            self.views["j1"] |= {"phase": rows.get("w/j1", {}).get("state", self.views["j1"]["phase"])}
            yield from lines_of(FeedFrame("delta", json.dumps({"rows": rows}).encode(), "1-a.1"))


@pytest.mark.parametrize(
    ("lives", "asked", "slept"),
    [
        pytest.param([[{"w/j1": {}}, {"w/x": {}}, {"t/j1/driver/0": {"rate": "7"}}, {"w/j1": {"state": "DONE"}}]],
                     4, 0, id="told"),
        pytest.param([[{"w/j1": {}}], [{"w/j1": {"state": "DONE"}}]], 4, 1, id="its host goes away"),
        pytest.param([], 3, 2, id="a host that tells nobody"),
    ],
)  # fmt: skip
def test_the_host_tells_who_waits_for_what_is_detached(
    paths: StatePaths, monkeypatch: pytest.MonkeyPatch, lives: list[Any], asked: int, slept: int
) -> None:
    make(paths, detached=True, backend="local", kind="script")
    views = {"j1": {"phase": "RUNNING", "reason": ""}}
    client: Any = Telling(paths, views, *lives)
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if not lives and len(pauses) == 2:
            views["j1"]["phase"] = "DONE"

    monkeypatch.setattr(batches, "time", SimpleNamespace(time=time.time, sleep=sleep))  # other tests left threads
    assert batches.ended(paths, client, "j1").state == "DONE"
    assert (client.asked, len(pauses)) == (asked, slept)


def test_without_a_host_a_job_that_writes_its_progress_is_running(paths: StatePaths, tmp_path: Path) -> None:
    progress = tmp_path / "progress.json"
    progress.write_text('{"done": 7}')
    make(paths, progress=str(progress), detached=True, backend="slurm")
    state = batches.job_state(paths, None, "j1")
    assert (state.state, state.progress["done"]) == ("RUNNING", 7)
    assert "no host runs" in state.reason
    os.utime(progress, (1, 1))
    assert batches.job_state(paths, None, "j1").state == "WAITING"
    with pytest.raises(HostUnreachable, match="the host is not running, so the job cannot be stopped"):
        batches.cancel_job(paths, None, "j1")


def test_an_outcome_that_cannot_be_seen_yet_is_waited_for(paths: StatePaths) -> None:
    """What another machine wrote may come late on a network file system; only it tells of rows with errors."""
    make(paths, detached=True, backend="slurm")
    task = {"native": "12", "node": "n1", "attempt": 2, "since": time.time()}
    view = {"phase": "DONE", "reason": "", "tasks": [task]}
    client: Any = FakeClient(paths, {"j1": view})
    state = batches.job_state(paths, client, "j1")
    assert (state.state, state.native, state.node, state.attempt) == ("RUNNING", "12", "n1", 2)
    task["since"] = time.time() - 3600
    assert batches.job_state(paths, client, "j1").state == "DONE"


def test_a_bare_name_is_the_newest_job_of_it(paths: StatePaths) -> None:
    for job_id, created_at in (("answers-abcde", 5.0), ("answers-fghjk", 9.0), ("answers-two-bcdef", 10.0)):
        JobFolder(paths, job_id).create({})
        JobFolder(paths, job_id).write("job.json", {"created_at": created_at})
    assert batches.job_state(paths, None, "answers").id == "answers-fghjk"
    assert batches.job_state(paths, None, "answers-abcde").id == "answers-abcde"
    assert batches.ended(paths, None, "answers-two").id == "answers-two-bcdef"
    with pytest.raises(NotFound):
        batches.job_state(paths, None, "answer")


def test_a_name_that_no_file_can_have_is_not_found_either(paths: StatePaths) -> None:
    make(paths)
    for name in ("a" * 4096, "../j1", "", "."):
        with pytest.raises(NotFound, match="there is no job") as caught:
            batches.job_state(paths, None, name)
        assert len(str(caught.value)) < 200


def test_what_is_no_job_is_told_as_what_it_is(paths: StatePaths) -> None:
    client: Any = FakeClient(paths, {"train": {"kind": "run"}})
    with pytest.raises(Conflict, match="'train' is a run, not a job") as caught:
        batches.job_state(paths, client, "train")
    assert caught.value.hint == "remuda status train"
    with pytest.raises(NotFound, match="there is no job 'trian'"):
        batches.job_state(paths, client, "trian")


@pytest.mark.parametrize("brief", [True, False])
def test_a_host_of_another_version_has_other_columns(paths: StatePaths, brief: bool) -> None:
    row = JobRow("j1", state="DONE", what="chat", output="/o", done=7, outcome='{"hint": "none"}')
    names = BRIEF if brief else WHOLE
    known = {name: getattr(row, name) for name in names}
    for columns in (names, [*names, "colour"], ["colour", *reversed(names)], names[:-1]):
        cells = [known.get(name, "red") for name in columns]
        client: Any = SimpleNamespace(
            get=lambda *_, answer=(columns, cells), **__: {"columns": answer[0], "rows": [answer[1]]}
        )
        wanted = replace(JobRow("j1"), **{name: value for name, value in known.items() if name in columns})
        assert batches.list_jobs(paths, client, whole=not brief) == [wanted]
        assert batches.job_state(paths, client, "j1") == wanted


@pytest.mark.parametrize("name", ["progress.json", "outcome.json"])
def test_no_pipe_holds_up_who_looks_at_a_job(paths: StatePaths, name: str) -> None:
    folder = make(paths, progress=str(paths.jobs / "j1" / "progress.json"))
    os.mkfifo(folder.path / name)
    assert batches.job_state(paths, None, "j1").state == "LOST"


def test_a_terminal_is_no_progress(paths: StatePaths) -> None:
    make(paths, progress="/dev/zero")
    assert batches.job_state(paths, None, "j1").progress == {}


def test_a_last_word_that_is_no_state_is_told(paths: StatePaths) -> None:
    make(paths).write("outcome.json", {"state": "SKIPPED\x1b[2J", "reason": "x"})
    state = batches.job_state(paths, None, "j1")
    assert (state.state, state.reason) == ("WAITING", "its folder says 'SKIPPED', which is not a state")
