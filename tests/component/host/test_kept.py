"""What is kept when a host is killed and the log of its database is lost with it; and what is said where it is less."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from tests.conftest import has_ended, until
from tests.fakes.clock import FakeClock

from remuda.base.disk.paths import StatePaths
from remuda.host.server import Host
from remuda.store import lease as leases
from remuda.store.engine import open_store
from remuda.store.rows import WorkloadRow
from remuda.wire.process import identify

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home


def in_file(database: Path) -> set[str]:
    """Names of the workloads that the file itself has, whatever its log says."""
    with closing(sqlite3.connect(f"{database.as_uri()}?immutable=1", uri=True)) as connection:
        try:
            return {name for (name,) in connection.execute("SELECT name FROM workload")}
        except sqlite3.DatabaseError:  # nobody is kept from writing meanwhile
            return set()


def lose_the_log(home: Home) -> None:
    """As a copy of the file alone does, or whoever clears away what looks temporary."""
    for suffix in ("-wal", "-shm", "-spare"):
        home.paths.database.with_name(f"remuda.db{suffix}").unlink(missing_ok=True)


def sleeper(home: Home) -> str:
    script = home.root / "sleep.sh"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    return str(script)


def test_what_was_written_is_in_the_file_itself_some_seconds_later(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path / "home")
    paths.prepare()
    kept_after: list[float] = []

    class Clock(FakeClock):
        written_at = 0.0

        async def sleep(self, seconds: float) -> None:
            if not self.written_at:
                store.add_workloads(lease.fence, [WorkloadRow("late", "u", "run", "local", "{}")])
                self.written_at = self.now()
            elif "late" in in_file(paths.database):
                kept_after.append(self.now() - self.written_at)
                await asyncio.Event().wait()
            await super().sleep(seconds)

    async def care() -> None:
        host = Host(paths, store)
        host.clock = Clock()  # type: ignore[assignment]
        task = asyncio.create_task(host._care())
        while not kept_after:
            await asyncio.wait([task], timeout=0.01)
            assert not task.done()
        task.cancel()

    with open_store(paths.database) as store:
        lease = leases.acquire(store, identify(os.getpid()), ttl_s=1e6, now=0.0)
        assert isinstance(lease, leases.Lease)
        asyncio.run(care())
    assert kept_after[0] <= 10


def test_a_killed_host_whose_log_is_lost_is_followed_by_one_that_knows_what_runs(home: Home) -> None:
    home.run("run", sleeper(home), "--name", "train", "--backend", "local")
    pid = until(lambda: home.view("train")["tasks"][0]["pid"], "it runs")
    until(lambda: "train" in in_file(home.paths.database), "the file itself has it")
    home.kill_host()
    lose_the_log(home)
    listed = home.run("list")
    assert "train" in listed.stdout
    assert "does not know" not in listed.stderr
    until(lambda: home.view("train")["tasks"][0]["pid"] == pid, "the same runs")
    home.run("stop", "train")
    assert has_ended(pid)


def test_a_database_that_knows_less_than_runs_is_told_with_what_ends_it(home: Home) -> None:
    home.run("host", "start")
    home.run("host", "stop")
    older = home.root / "older.db"
    shutil.copy(home.paths.database, older)
    home.run("run", sleeper(home), "--name", "train", "--backend", "local")
    pid = until(lambda: home.view("train")["tasks"][0]["pid"], "it runs")
    (home.paths.workloads / "empty").mkdir()  # what was never begun is nothing to worry about
    home.kill_host()
    lose_the_log(home)
    shutil.copy(older, home.paths.database)

    told = (
        "the database does not know 1 workload that has run directories here: train; remuda doctor shows what of them "
        "goes on, and remuda doctor --clean ends it\n"
    )
    for words in (["list"], ["status"]):
        assert home.run(*words).stderr.endswith(told)
    assert json.loads(home.run("list", "--json").stdout) == []
    assert told.strip() in home.run("status", "train", check=False).stderr
    looked = home.run("doctor", check=False)
    assert looked.returncode == 1, "something of it goes on"
    assert "lost records: the database does not know 1 workload that has run directories here: train\n" in looked.stdout
    assert f"{pid}: remuda doctor --clean" in looked.stdout or "there is no workload 'train' any more" in looked.stdout

    home.run("doctor", "--clean", "--yes")
    assert has_ended(pid)
    shutil.rmtree(home.paths.workload("train"))
    assert home.run("list").stderr == ""
    assert "lost records" not in home.run("doctor", check=False).stdout
