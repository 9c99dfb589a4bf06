"""Who keeps the rows of jobs: what it takes in, what it records, and what a death in between costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.supervise.bed import Bed, Killed

from remuda.backends.base import TaskKey
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, NotFound, Unwritable
from remuda.host.reconcilers.job_rows import JobKeeper, told_of
from remuda.plan.model import Command, Group, Kind, Role, Workload
from remuda.store.rows import JobRow
from remuda.supervise.jobs import SILENT_S, JobSeen
from remuda.supervise.model import Cause, Phase, Task, Want
from remuda.supervise.reconciler import Moment
from remuda.views.job_folders import JobFolder
from remuda.wire.process import identify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

KEY = TaskKey("j1", "driver", 0)
AWAY = {"pid": 7, "start": "1", "boot": "another", "node": "far-away"}


def want(*, running: bool = True, kind: Kind = Kind.JOB) -> Want:
    group = Group(name="driver", role=Role.DRIVER, count=1, command=Command(argv=("x",)))
    return Want(Workload(name="j1", kind=kind, uid="u", backend="slurm", groups=(group,), run_dir="/r"), running, 1)


def driver(phase: Phase, reason: str = "", cause: Cause = Cause.NONE, since: float = 5.0) -> dict[TaskKey, Task]:
    return {KEY: Task(KEY, "slurm", phase=phase, reason=reason, cause=cause, since=since, native="12", node="n1")}


class Site:
    """A state directory with a database, and the keeper of the host of the moment."""

    def __init__(self, root: Path) -> None:
        self.paths = StatePaths(root)
        self.bed = Bed(root / "remuda.db")
        self.keeper = self.new_host()

    def new_host(self) -> JobKeeper:
        self.bed.new_host()
        self.keeper = JobKeeper(self.bed.journal, self.bed.host, self.paths, self.bed.clock)
        return self.keeper

    def job(self, name: str = "j1", **meta: Any) -> JobFolder:
        folder = JobFolder(self.paths, name)
        folder.create({"what": "chat", **meta})
        return folder

    async def say(self, one: Want, tasks: dict[TaskKey, Task]) -> None:
        self.bed.host.wants["j1"], self.bed.host.all["j1"] = one, tasks
        self.keeper.step(Moment(one, tasks))

    async def state(self, name: str = "j1") -> str:
        await self.keeper.look()
        assert self.recorded()[name] == self.keeper.rows[name]
        return self.keeper.rows[name].state

    def recorded(self) -> dict[str, JobRow]:
        return {row.id: row for row in self.bed.store.jobs()}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.bed.close()


@pytest.mark.parametrize(
    ("running", "phase", "cause", "expected"),
    [
        (True, Phase.READY, Cause.NONE, ("RUNNING", "")),
        (True, Phase.WAITING, Cause.NODE, ("WAITING", "as told")),
        (True, Phase.DONE, Cause.NONE, ("DONE", "")),
        (True, Phase.FAILED, Cause.NODE, ("FAILED", "as told")),
        (True, Phase.STOPPED, Cause.USER, ("STOPPED", "as told")),
        (False, Phase.STOPPING, Cause.NONE, ("STOPPED", "cancelled")),
        (False, Phase.STOPPED, Cause.NONE, ("STOPPED", "cancelled")),
    ],
)
def test_what_the_supervisor_says(running: bool, phase: Phase, cause: Cause, expected: tuple[str, str]) -> None:
    told = told_of(want(running=running), driver(phase, "as told", cause))
    assert (told.word, told.reason.removeprefix("driver/0: ")) == expected
    assert (told.native, told.node, told.since) == ("12", "n1", 5.0)


@pytest.mark.parametrize("kind", ["batch", "script"])
async def test_an_end_that_no_driver_lived_to_write_is_written(site: Site, kind: str) -> None:
    folder = site.job(kind=kind, detached=True)
    await site.say(want(), driver(Phase.READY))
    assert await site.state() == "RUNNING"
    assert folder.read("outcome.json") == {}
    await site.say(want(), driver(Phase.FAILED, "its node failed", Cause.NODE))
    assert await site.state() == "FAILED"
    assert folder.read("outcome.json") == {"state": "FAILED", "reason": "its node failed", "by": "host"}
    await site.say(want(running=False), driver(Phase.STOPPED))
    assert await site.state() == "FAILED", "what has failed was not cancelled"
    await site.say(want(), driver(Phase.READY, since=6.0))
    assert await site.state() == "RUNNING", "it was restarted"


@pytest.mark.parametrize(("kind", "expected"), [("batch", None), ("script", "DONE")])
async def test_a_batch_says_itself_that_it_is_done(site: Site, kind: str, expected: str | None) -> None:
    folder = site.job(kind=kind, detached=True)
    await site.say(want(), driver(Phase.DONE))
    assert await site.state() == "DONE"
    assert folder.read("outcome.json").get("state") == expected


async def test_a_driver_that_was_done_before_it_was_stopped(site: Site) -> None:
    folder = site.job(detached=True)
    await site.say(want(running=False), driver(Phase.STOPPING))
    assert await site.state() == "STOPPED"
    folder.write("outcome.json", {"state": "DONE", "summary": {"rows": 3}})
    site.new_host()
    await site.say(want(running=False), driver(Phase.STOPPED))
    assert await site.state() == "DONE", "its word is later than what is recorded"


async def test_only_news_are_looked_at_between_two_rounds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("j1", "j2"):
        site.job(name, detached=True)
    await site.keeper.look()
    looked: list[str] = []
    look = JobFolder.look

    def noted(folder: JobFolder) -> JobSeen | None:
        looked.append(folder.id)
        return look(folder)

    monkeypatch.setattr(JobFolder, "look", noted)
    for _ in range(2):
        await site.say(want(), driver(Phase.READY))
        await site.keeper.look(())
    assert looked == ["j1"]
    assert site.recorded()["j1"].state == "RUNNING"


async def test_a_host_killed_while_it_takes_in_leaves_the_rest_to_the_next(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1100):
        folder = site.job(f"old-{number:05}", created_at=float(number))
        if number % 2:
            folder.write("outcome.json", {"state": "DONE", "reason": "", "summary": {"rows": number}})
    record, calls = site.bed.store.record_jobs, 0

    def die_at_the_second(fence: int, rows: Sequence[JobRow], removed: Sequence[str] = ()) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Killed
        record(fence, rows, removed)

    monkeypatch.setattr(site.bed.store, "record_jobs", die_at_the_second)
    with pytest.raises(Killed):
        await site.keeper.look()
    assert len(site.recorded()) == 500, "a part of it, whole"
    monkeypatch.undo()
    await site.new_host().look()
    rows = site.recorded()
    assert rows == site.keeper.rows
    assert len(rows) == 1100
    assert {row.state for row in rows.values() if int(row.id[-5:]) % 2} == {"DONE"}
    assert rows["old-00007"].summary == {"rows": 7}
    await site.new_host().look()
    assert site.recorded() == rows, "nothing is taken in twice"


async def test_a_database_that_is_full_hides_nothing_and_is_written_later(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise Unwritable("no space left for database x")

    folder = site.job()
    folder.write("owner.json", identify(os.getpid()).__dict__)
    monkeypatch.setattr(site.bed.store, "record_jobs", full)
    for _ in range(2):
        assert json.loads(await site.keeper.answer("j1", brief=True))["rows"][0][2] == "RUNNING"
    folder.write("outcome.json", {"state": "DONE"})
    await site.keeper.look()
    assert site.recorded() == {}
    assert [record.message for record in caplog.records] == ["jobs cannot be recorded: no space left for database x"]
    monkeypatch.undo()
    assert await site.state() == "DONE"


async def test_frozen_with_a_clock_that_was_set_it_is_not_lost_and_killed_it_is(site: Site) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            folder = site.job()
            folder.write("owner.json", identify(process.pid).__dict__)
            assert await site.state() == "RUNNING"
            process.send_signal(signal.SIGSTOP)
            for by in (7200.0, -86400.0):
                site.bed.clock.set_by(by)
                site.bed.clock.follow(by)
                assert await site.state() == "RUNNING"
            site.bed.clock.advance(7200.0)
            assert await site.state() == "RUNNING"
        finally:
            process.kill()
            process.wait()
    assert await site.state() == "LOST"
    assert site.keeper.rows["j1"].reason == "its process was killed; type the same command again to resume"


async def test_on_another_machine_it_is_lost_when_it_was_silent_for_long(site: Site) -> None:
    folder = site.job()
    folder.write("owner.json", AWAY)
    assert await site.state() == "RUNNING"
    site.bed.clock.stop(10 * SILENT_S)
    assert await site.state() == "RUNNING", "this host stood still, and heard nobody"
    site.bed.clock.advance(SILENT_S - 1)
    assert await site.state() == "RUNNING"
    site.bed.clock.advance(1)
    assert await site.state() == "LOST"
    os.utime(folder.path / "owner.json")
    assert await site.state() == "RUNNING", "it was frozen, or its network was away"
    folder.write("owner.json", {**AWAY, "node": os.uname().nodename})
    assert await site.state() == "LOST", "this machine was restarted"


async def test_a_row_lives_as_long_as_its_folder(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("j1", "j2"):
        site.job(name)
    (site.paths.jobs / "stranger").mkdir()
    await site.keeper.look()
    assert site.recorded().keys() == {"j1", "j2"}
    (site.paths.jobs / "j1/job.json").unlink()
    (site.paths.jobs / "j1").rmdir()
    with monkeypatch.context() as away:
        away.setattr(os, "listdir", lambda _: (_ for _ in ()).throw(OSError("stale file handle")))
        await site.keeper.look()
    assert site.recorded().keys() == {"j1", "j2"}, "what cannot be listed is not gone"
    await site.keeper.look()
    assert site.recorded().keys() == {"j2"}


async def test_old_jobs_are_forgotten_with_their_folders(site: Site) -> None:
    for name in ("old", "new", "runs"):
        folder = site.job(name)
        folder.write("outcome.json" if name != "runs" else "owner.json", {"state": "DONE"})
    os.utime(site.paths.jobs / "old/outcome.json", (50.0, 50.0))
    site.job("runs-2").write("owner.json", identify(os.getpid()).__dict__)
    await site.keeper.look()
    assert await site.keeper.prune(60.0) == 1
    assert "old" not in site.recorded()
    assert not (site.paths.jobs / "old").exists()
    assert (site.paths.jobs / "new").exists()


async def test_what_is_asked_for(site: Site) -> None:
    for name, at in (("out-abcde", 5.0), ("out-fghjk", 9.0)):
        site.job(name, created_at=at, output="/o.parquet")
    whole = json.loads(await site.keeper.answer())
    assert sorted(JobRow(*row).id for row in whole["rows"]) == ["out-abcde", "out-fghjk"]
    assert JobRow(*json.loads(await site.keeper.answer("out"))["rows"][0]) == site.keeper.rows["out-fghjk"]
    short = json.loads(await site.keeper.answer("out-abcde", brief=True))
    assert dict(zip(short["columns"], short["rows"][0], strict=True))["output"] == "/o.parquet"
    with pytest.raises(NotFound, match="there is no job 'out-abcdf'") as caught:
        await site.keeper.answer("out-abcdf")
    assert caught.value.hint == "did you mean 'out-abcde'?"
    site.bed.host.wants["train"] = want(kind=Kind.RUN)
    with pytest.raises(Conflict, match="'train' is a run, not a job"):
        await site.keeper.answer("train")


async def test_a_bug_in_the_keeping_does_not_end_it(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = asyncio.Queue[None]()

    async def broken(only: object = None) -> None:
        calls.put_nowait(None)
        raise ZeroDivisionError

    monkeypatch.setattr(site.keeper, "look", broken)
    site.keeper.turns.wake()
    await calls.get()
    await site.say(want(), driver(Phase.READY))
    await calls.get()
    await site.keeper.close()
    assert {record.message for record in caplog.records} == {"bug in what keeps jobs"}
