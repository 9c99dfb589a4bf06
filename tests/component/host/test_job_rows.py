"""What is known of jobs whoever runs them, with a host, after its death, and without its database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import PYTHON, Home, until
from tests.ports import free_port

from remuda.views.job_folders import JobFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 400


@pytest.fixture
def endpoint(home: Home) -> Iterator[str]:
    """A slow engine of somebody else's; it answers at once when `herd` is told to."""
    home.behave("slow", slow_s=1.0)
    port = free_port()
    command = [PYTHON, "-m", "tests.fakes.engine", "--port", str(port), "--model", "m"]
    with subprocess.Popen(
        [*command, "--control", str(home.root / "herd.control")], stdout=subprocess.DEVNULL
    ) as engine:
        yield f"http://127.0.0.1:{port}/v1"
        engine.kill()


def listed(home: Home) -> dict[str, dict[str, Any]]:
    return {job["id"]: job for job in json.loads(home.run("job", "list", "--json").stdout)}


def start(home: Home, endpoint: str, name: str) -> subprocess.Popen[str]:
    (home.root / "in.jsonl").write_text("".join(f'{{"prompt": "row {number}"}}\n' for number in range(ROWS)))
    job = home.start(
        "job", "submit", "completion", "--endpoint", endpoint, "-m", "m", "-i", "in.jsonl", "-o", f"{name}.jsonl",
        "--max-concurrency", "8", "--job-id", name,
    )  # fmt: skip
    until(lambda: name in listed(home) and listed(home)[name]["done"], "some rows")
    return job


def test_a_job_of_a_terminal_through_the_life_of_hosts(home: Home, endpoint: str) -> None:
    with start(home, endpoint, "mine") as job:
        assert not home.client.is_up(), "none is started for it"
        assert listed(home)["mine"]["state"] == "RUNNING"
        home.run("host", "start")
        known = listed(home)["mine"]
        assert (known["state"], known["detached"], known["pid"] > 0) == ("RUNNING", False, True)
        assert 0 < known["done"] < known["total"] == ROWS
        job.send_signal(signal.SIGSTOP)
        assert listed(home)["mine"]["state"] == "RUNNING", "frozen, not lost"
        home.kill_host()
        assert listed(home)["mine"]["state"] == "RUNNING"
        job.send_signal(signal.SIGCONT)
        home.behave("ok")
        job.communicate(timeout=180)
    for _ in range(2):
        done = listed(home)["mine"]
        assert (done["state"], done["done"], done["failed"], done["total"]) == ("DONE", ROWS, 0, ROWS)
        assert (done["rate"] > 0, done["summary"]["rows"], done["progress"]["state"]) == (True, ROWS, "done")
        home.run("host", "start")
    assert json.loads(home.run("job", "wait", "mine", "--json").stdout) == listed(home)["mine"]
    table = home.run("job", "list").stdout
    assert table.splitlines()[0].split()[:6] == ["JOB", "WHAT", "STATE", "ROWS", "ERRORS", "ROWS/S"]
    assert f"{ROWS}/{ROWS}" in table


def test_killed_it_is_lost_with_and_without_a_host(home: Home, endpoint: str) -> None:
    with start(home, endpoint, "mine") as job:
        home.run("host", "start")
        until(lambda: listed(home)["mine"]["state"] == "RUNNING", "it is taken in")
        job.kill()
        job.communicate()
    assert listed(home)["mine"]["state"] == "LOST"
    home.kill_host()
    lost = listed(home)["mine"]
    assert (lost["state"], lost["reason"]) == ("LOST", "its process was killed; type the same command again to resume")
    assert lost["done"] > 0


@pytest.mark.parametrize("damage", ["gone", "garbage"])
def test_without_its_database_the_folders_tell(home: Home, damage: str) -> None:
    home.run("host", "start")
    folder = JobFolder(home.paths, "old")
    folder.create({"kind": "batch", "what": "chat", "output": "/o.parquet"})
    folder.write("outcome.json", {"state": "FAILED", "reason": "no such column"})
    assert listed(home)["old"]["state"] == "FAILED"
    home.run("host", "stop")
    for path in home.paths.root.glob("remuda.db*"):
        path.unlink()
    if damage == "garbage":
        home.paths.database.write_bytes(b"not a database" * 1000)
    done = home.run("job", "list")
    assert "no such column" in done.stdout
    assert ("jobs are shown as their folders say" in done.stderr) == (damage == "garbage")
    assert not home.client.is_up()


def old_folders(home: Home, count: int) -> None:
    """Folders as versions before the table of jobs left them."""
    for number in range(count):
        folder = JobFolder(home.paths, f"old-{number:04}")
        folder.path.mkdir(mode=0o700)
        meta = {
            "created_at": 1e9 + number, "kind": "script" if number % 5 == 4 else "batch", "what": "chat",
            "input": "/i.parquet", "output": "/o.parquet", "swarm": "herd", "detached": number % 2 == 0,
            "backend": "local" if number % 2 == 0 else "", "progress": str(folder.path / "p/progress.json"),
        }  # fmt: skip
        folder.write("job.json", meta)
        folder.write("owner.json", {"pid": 4_000_000, "start": "1", "boot": "before", "node": os.uname().nodename})
        os.utime(folder.path / "owner.json", (1e9, 1e9))
        if number % 3:
            summary = {"rows": 9, "done": 9, "failed": number % 2, "seconds": 3.0}
            folder.write("outcome.json", {"state": "DONE", "reason": "", "summary": summary})


def test_folders_of_earlier_versions_are_taken_in_by_whichever_host_lives(home: Home) -> None:
    old_folders(home, 1500)
    before = listed(home)
    assert len(before) == 1500
    for _ in range(3):
        home.run("host", "start")
        home.kill_host()
    assert listed(home) == before
    home.run("host", "start")
    assert listed(home) == before
    home.run("host", "stop")
    for path in home.paths.jobs.glob("*/outcome.json"):
        path.unlink()
    assert listed(home) == before, "what is recorded is read without a host, too"


def test_frozen_drivers_are_not_lost_and_killed_ones_are_begun_again(home: Home) -> None:
    home.run("up", "-c", str(home.swarm(replicas=1)))
    home.behave("slow", slow_s=1.0)
    (home.root / "in.jsonl").write_text("".join(f'{{"prompt": "row {number}"}}\n' for number in range(ROWS)))
    home.run("job", "submit", "completion", "--name", "herd", "-i", "in.jsonl", "-o", "out.jsonl", "--detach",
             "--job-id", "far", "--max-concurrency", "8")  # fmt: skip
    until(lambda: listed(home)["far"]["done"], "some rows")
    driver = until(lambda: home.task("far", "driver/0")["pid"], "a driver")
    child = listed(home)["far"]["pid"]
    os.kill(child, signal.SIGSTOP)
    assert listed(home)["far"]["state"] == "RUNNING"
    os.kill(child, signal.SIGCONT)
    os.kill(driver, signal.SIGKILL)
    until(lambda: listed(home)["far"]["pid"] not in (0, child), "another driver")
    home.behave("ok")
    done = json.loads(home.run("job", "wait", "far", "--json").stdout)
    assert (done["state"], done["done"], done["failed"], done["heartbeat_at"] > 0) == ("DONE", ROWS, 0, True)
    assert listed(home)["far"]["summary"] == done["summary"]
