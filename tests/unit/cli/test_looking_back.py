"""Commands that only look, where a host was stopped: they show what it recorded last, and start none."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import time
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.supervise.bed import store_at
from tests.unit.supervise.build import group, script

from remuda.base.errors import HostUnreachable, RemudaError
from remuda.cli import main
from remuda.client import http, mirror
from remuda.client.http import looking
from remuda.plan.model import Endpoint, Kind, Role, Workload
from remuda.store.engine import open_beside
from remuda.store.lease import Lease, acquire, release
from remuda.store.rows import AllocationRow, StoryLine, TaskRow, WorkloadRow
from remuda.wire.process import ProcessId, identify

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STOPPED_AT = 1_700_000_000.0
SAID = time.strftime("%m-%d %H:%M:%S %Z", time.localtime(STOPPED_AT))
NOTE = f"the host was stopped at {SAID}; this is what it recorded last (start it: remuda host start)\n"
LIVE = {"attempt": 1, "since": 1000.0, "last_seen": 1500.0, "metrics": '{"running": 3, "tokens_per_s": 7}'}


def row(name: str, kind: Kind, *, up: bool = True, endpoint: Endpoint | None = None) -> WorkloadRow:
    groups = (script(),) if kind is Kind.RUN else (group(), group("router", 1, role=Role.ROUTER))
    plan = Workload(name=name, kind=kind, uid="u1", backend="local", groups=groups, run_dir=f"/run/{name}",
                    endpoint=endpoint)  # fmt: skip
    return WorkloadRow(name, "u1", kind.value, "local", plan.model_dump_json(), running=up, created_at=900.0,
                       spec='{"replicas": 2}', phase="announced" if endpoint else "")  # fmt: skip


def record(path: Path, *, owner: ProcessId | None = None) -> None:
    """What a host leaves that was stopped; with `owner` one that runs elsewhere."""
    with store_at(path) as store:
        lease = acquire(store, owner or identify(os.getpid()), 20.0, STOPPED_AT - 3)
        assert isinstance(lease, Lease)
        chat = row("chat", Kind.SWARM, endpoint=Endpoint(host="127.0.0.1", port=9, model="m", router="router"))
        rows = [chat, row("old", Kind.SWARM, up=False), row("train", Kind.RUN)]
        store.add_workloads(lease.fence, rows, [StoryLine(900.0, "train", kind="intent", reason="brought up")])
        tasks = [TaskRow("chat", "replica", index, "local", "ready", **LIVE) for index in (0, 1)]  # type: ignore[arg-type]
        tasks += [TaskRow("chat", "router", 0, "local", "ready", **LIVE)]  # type: ignore[arg-type]
        tasks += [TaskRow("train", "script", 0, "local", "starting", token="train.script.0.1.u1", **LIVE)]  # type: ignore[arg-type]
        ends = [AllocationRow("train.script.0.1.u1", "train", "script", 0, 1, "local", submitted_at=950.0)]
        store.record(lease.fence, tasks=tasks, allocations=ends)
        if owner is None:
            release(store, lease, STOPPED_AT)


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Hosts that were started; there is none."""
    began: list[object] = []

    def start(*_: object) -> None:
        began.append(1)
        raise RemudaError("a host would start")

    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(http, "start_host", start)
    (tmp_path / "home").mkdir(mode=0o700)
    return began


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    record(tmp_path / "home/remuda.db")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["status"], ["chat swarm RUNNING 2/2", "train run"]),
        (["status", "--all"], ["old "]),
        (["status", "chat"], ["RUNNING: 2 of 2 ready", "replica/1 ready"]),
        (["status", "train"], ["train (run on local, run_once)"]),
        (["list"], ["train"]),
        (["list", "--all"], ["train"]),
        (["swarm", "list", "--no-probe"], ["chat local RUNNING"]),
        (["explain", "chat"], ["chat is RUNNING: 2 of 2 ready"]),
        (["explain", "train", "--task", "script/0"], ["script/0: starting"]),
        (["explain", "train", "--all-lives"], ["brought up"]),
        (["events", "train"], ["intent brought up"]),
        (["swarm", "describe", "chat"], ["name chat replicas 2"]),
        (["swarm", "describe", "old", "-o", "yaml"], ["name: old"]),
        (["swarm", "describe", "chat", "-o", "json"], ['"replicas": 2']),
    ],
)
def test_what_was_recorded_last_is_shown(
    stopped: Path, started: list[object], capsys: pytest.CaptureFixture[str], words: list[str], says: list[str]
) -> None:
    before = (stopped / "remuda.db").read_bytes()
    assert main(words) == 0
    seen = capsys.readouterr()
    assert [text for text in says if text not in " ".join(seen.out.split())] == [], seen.out
    assert seen.err == NOTE
    assert not started
    assert (stopped / "remuda.db").read_bytes() == before


def test_what_only_a_host_hears_is_left_out(stopped: Path) -> None:
    view = looking().get("/workloads/chat", fresh="true")
    assert (view["phase"], view["router"], view["load"], view["endpoint"]) == (
        "RUNNING",
        None,
        {},
        "http://127.0.0.1:9",
    )
    assert [(task["metrics"], task["last_seen"], task["since"]) for task in view["tasks"]] == [({}, 0.0, 1000.0)] * 3
    (run,) = looking().get("/workloads", kind="run")
    assert (run["run"]["heartbeat_at"], run["run"]["progress"]) == (0.0, {})


@pytest.mark.parametrize("words", [["status"], ["explain"], ["events"], ["status", "--watch"], ["swarm", "describe"]])
def test_a_wrong_name_has_the_nearest(
    stopped: Path, started: list[object], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    del stopped
    assert main([*words, "trian"]) == 3
    assert capsys.readouterr().err == "error: nothing is called 'trian'\n  did you mean 'train'?\n"
    assert not started


def died(home: Path) -> None:
    (home / "host.json").write_text('{"pid": 1}')


def older(home: Path) -> None:
    with closing(sqlite3.connect(home / "remuda.db")) as file, file:
        file.execute("UPDATE remuda_revision SET version_num = '0009'")


def broken(home: Path) -> None:
    (home / "remuda.db").write_bytes(b"no database" * 1000)


def unreadable(home: Path) -> None:
    with closing(sqlite3.connect(home / "remuda.db")) as file, file:
        file.execute("ALTER TABLE workload RENAME COLUMN uid TO identity")


def elsewhere(home: Path) -> None:
    (home / "remuda.db").unlink()
    record(home / "remuda.db", owner=ProcessId(7, "1", "b", "login1"))


def rebooted(home: Path) -> None:
    """It was asked to stop when the machine went down."""
    with closing(sqlite3.connect(home / "remuda.db")) as file, file:
        file.execute("UPDATE lease SET boot = 'earlier'")


@pytest.mark.parametrize("changes", [{"node": "login1", "boot": "another"}, {"boot": ""}], ids=["elsewhere", "unknown"])
def test_a_boot_that_says_nothing(stopped: Path, started: list[object], changes: dict[str, str]) -> None:
    with closing(sqlite3.connect(stopped / "remuda.db")) as file, file:
        for name, value in changes.items():
            file.execute(f"UPDATE lease SET {name} = ?", (value,))
    assert main(["status"]) == 0
    assert not started


def test_where_nothing_is_wanted_a_boot_starts_no_host(stopped: Path, started: list[object]) -> None:
    rebooted(stopped)
    with closing(sqlite3.connect(stopped / "remuda.db")) as file, file:
        file.execute("UPDATE workload SET running = 0")
    assert main(["status", "--all"]) == 0
    assert not started


@pytest.mark.parametrize("happens", [rebooted, died, older, broken, unreadable, elsewhere])
def test_where_more_is_the_matter_a_host_is_started(
    stopped: Path, started: list[object], happens: Callable[[Path], None]
) -> None:
    happens(stopped)
    assert main(["status"]) == 1
    assert len(started) == 1


@pytest.mark.parametrize("words", [["logs", "train"], ["logs", "train", "-f"], ["down", "train"], ["restart", "train"]])
def test_what_takes_a_host_starts_one(stopped: Path, started: list[object], words: list[str]) -> None:
    del stopped
    assert main(words) == 1
    assert len(started) == 1


def test_a_database_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], started: list[object]
) -> None:
    record(tmp_path / "other.db")
    monkeypatch.setenv("REMUDA_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")
    assert main(["status", "--json"]) == 0
    seen = capsys.readouterr()
    assert ([view["name"] for view in json.loads(seen.out)], seen.err) == (["chat", "train"], NOTE)
    assert not started


def test_what_ran_and_is_not_in_the_database_is_told_too(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (stopped / "workloads/lost/script-0/attempt-1-u1").mkdir(parents=True)
    assert main(["list"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first + "\n" == NOTE
    assert second.startswith("the database does not know 1 workload that has run directories here: lost; remuda doctor")


def test_who_watches_goes_on_with_the_host_that_comes(stopped: Path) -> None:
    watching: Any = looking()
    assert [view["name"] for view in watching.get("/workloads")] == ["chat", "train"]
    with pytest.raises(HostUnreachable, match="no host is running"):
        watching.get("/workloads/train/settings")
    news = watching.lines("/stream")
    assert [told.data for told in mirror.frames(islice(news, 3))] == [{"rows": {}}]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(stopped / "host.sock"))
        with pytest.raises(HostUnreachable, match="the host does not answer on"):
            watching.get("/workloads")
        with pytest.raises(HostUnreachable, match="the host went away"):
            next(news)


def test_nothing_can_be_written_to_what_is_only_read(stopped: Path) -> None:
    with open_beside(stopped / "remuda.db") as store, pytest.raises(RemudaError, match="is read-only"):
        acquire(store, identify(os.getpid()), 20.0, STOPPED_AT)
