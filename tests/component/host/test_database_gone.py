"""The database is removed under a live host, as scratch purges do: it is noticed, and nothing that is known is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conftest import has_ended, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home


def sleeper(home: Home) -> Path:
    script = home.root / "sleep.sh"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    return script


def pid_of(home: Home, name: str) -> int:
    return int(home.view(name)["tasks"][0]["pid"])


def test_a_database_that_is_removed_is_noticed_and_brought_back(home: Home) -> None:
    script = str(sleeper(home))
    for name in ("one", "two"):
        home.run("run", script, "--name", name, "--backend", "local")
    pid, _ = [until(lambda: pid_of(home, name), "it runs") for name in ("one", "two")]  # noqa: B023
    host = home.host_pid()
    home.paths.database.unlink()
    refused = home.run("run", script, "--name", "three", "--backend", "local", check=False)
    assert refused.returncode == 5
    assert f"database {home.paths.database} was removed or replaced" in refused.stderr
    assert "remuda db backup FILE" in refused.stderr
    assert "three" not in home.run("list").stdout
    assert home.host_pid() == host, "it goes on"
    assert not home.paths.database.exists(), "nobody makes an empty one in its place"
    saved = home.root / "saved.db"
    home.run("db", "backup", str(saved))
    home.run("host", "stop")
    home.run("db", "restore", str(saved))
    home.run("host", "start")
    assert {view["name"] for view in home.client.get("/workloads")} == {"one", "two"}
    until(lambda: pid_of(home, "one") == pid, "the same runs")
    home.run("stop", "one")
    assert has_ended(pid)


def test_what_is_to_end_is_ended_without_it_and_recorded_when_it_is_back(home: Home) -> None:
    home.run("run", str(sleeper(home)), "--name", "one", "--backend", "local")
    pid = until(lambda: pid_of(home, "one"), "it runs")
    aside = home.root / "aside.db"
    home.paths.database.rename(aside)
    home.run("stop", "one")
    assert has_ended(pid)
    aside.rename(home.paths.database)
    until(lambda: _is_recorded(home), "it is recorded")
    home.kill_host()
    home.run("host", "start")
    until(lambda: home.view("one")["phase"] == "DOWN", "what was wanted counts")


def _is_recorded(home: Home) -> bool:
    lines = home.client.get("/workloads/one/events", limit=100)
    return any(line["kind"] == "intent" and line["reason"].startswith("taken down") for line in lines)
