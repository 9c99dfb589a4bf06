"""State directories of earlier versions: what ran there is read, shown, restarted, recognised, and ended."""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.ports import free_port

from remuda.backends.rundir import allocation_dir
from remuda.views.job_folders import JobFolder

if TYPE_CHECKING:
    from tests.conftest import Home

TESTS = Path(__file__).parents[2]
CASES = TESTS / "cases/homes"
HERD = {
    "name": "herd", "model": "herd-1", "engine": "command", "replicas": 2, "ready": "all",
    "command": [sys.executable, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}", "--model",
                "herd-1"],
    "watchdog": {"probe_interval": 0.3, "http_path": "/health"}, "backend": {"type": "local"},
}  # fmt: skip
NAMES = {"202249d": ["herd", "over", "train"], "401b90f": ["herd", "over", "ranks", "routed", "train"]}

RESTARTED = {
    "herd replica/0": "tests.fakes.engine", "herd replica/1": "tests.fakes.engine", "herd router/0": "remuda.enter smg",
    "train script/0": "",
}  # fmt: skip
TASKS = {
    "202249d": RESTARTED,
    "401b90f": {
        **RESTARTED, "ranks rank/0": "", "ranks rank/1": "", "routed prefill/0": "sglang.launch_server",
        "routed decode/0": "sglang.launch_server", "routed decode/1": "sglang.launch_server",
        "routed frontend/0": "remuda.enter smg", "routed gate/0": "remuda.enter gate",
    },
}  # fmt: skip


def begun(home: Home) -> dict[str, str]:
    """Tasks that this version started, and the module that each one's interpreter runs, with the word of `enter`."""
    made: dict[str, str] = {}
    for path in home.paths.workloads.glob("*/*/attempt-*/child.json"):
        child = json.loads(path.read_text())
        module, word = (*child["argv"], "", "", "")[2:4] if "-m" in child["argv"][1:2] else ("", "")
        made[f"{child['workload']} {child['task']}"] = f"{module} {word}" if module == "remuda.enter" else module
    return made


def restore(home: Home, version: str) -> None:
    """Make the home as that version left it when its host was stopped and the machine restarted."""
    marks = {
        "@HOME@": str(home.paths.root), "@ROOT@": str(home.root), "@PYTHON@": sys.executable, "@NODE@": "n",
        "@SRC@": str(TESTS.parent / "src"), "@STANDINS@": str(TESTS / "standins"),
        "@PORT1@": str(free_port()), "@PORT2@": str(free_port()),
    }  # fmt: skip
    text = (CASES / f"{version}.sql").read_text()
    for mark, value in marks.items():
        text = text.replace(mark, value)
    for path in map(Path, set(re.findall(rf"{home.paths.root}/workloads/[\w./-]+\.(?:sh|key)", text))):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text("#!/bin/bash\nsleep 600\n" if path.suffix == ".sh" else secrets.token_urlsafe(24))
        path.chmod(0o700 if path.suffix == ".sh" else 0o600)
    (home.root / "model").mkdir()
    (home.root / "model/config.json").write_text("{}")
    with sqlite3.connect(home.paths.database) as connection:
        connection.executescript(text)
        live = connection.execute("SELECT token FROM allocation WHERE state = 'live'").fetchall()
    home.paths.database.chmod(0o600)
    for (token,) in live:  # claimed by a process of an earlier life of the machine
        folder = allocation_dir(home.paths.workloads, token)
        folder.mkdir(parents=True, mode=0o700)
        claim = {"pid": 4_000_000, "start": "1", "boot": "before", "node": os.uname().nodename}
        (folder / "claim.json").write_text(json.dumps(claim))


@pytest.mark.parametrize("version", NAMES)
def test_what_an_earlier_version_left(home: Home, version: str) -> None:
    restore(home, version)
    folder = JobFolder(home.paths, "asked")
    folder.create({"kind": "batch", "what": "chat", "created_at": 1e9, "output": "/o.parquet"})
    folder.write("outcome.json", {"state": "DONE", "reason": "", "summary": {"rows": 9, "failed": 0}})
    listed = json.loads(home.run("status", "--all", "--json").stdout)
    assert sorted(view["name"] for view in listed) == NAMES[version]
    uids = {view["name"]: view["uid"] for view in listed}
    for name in set(NAMES[version]) - {"over"}:
        until(lambda name=name: home.view(name)["phase"] == "RUNNING", f"{name} is back")  # type: ignore[misc]
    assert home.view("over")["phase"] == "DONE"
    if version == "401b90f":  # the gate was passed before, so it is asked to look once more
        home.run("restart", "routed", "gate")
        until(lambda: home.task("routed", "gate/0")["attempt"] == 2, "the gate looks")
        until(lambda: home.task("routed", "gate/0")["phase"] == "done", "the gate has seen tokens")
    assert begun(home) == TASKS[version], "and nothing else; programs of ours by their words of today"

    assert "herd is RUNNING" in home.run("explain", "herd").stdout
    if version == "401b90f":
        (home.root / "herd.yaml").write_text(json.dumps(HERD))
        again = json.loads(home.run("up", "-c", str(home.root / "herd.yaml"), "--json").stdout)
        assert again["uid"] == uids["herd"], "it is known when it is asked for again"
        assert again["labels"]["router"] == "smg"
        assert begun(home) == TASKS[version], "nothing was started for that"
        labels = home.view("routed")["labels"]
        assert (labels["frontend"], Path(labels["directory"]).parent.name) == ("sglang-router", "deployments")
    (job,) = json.loads(home.run("job", "list", "--json").stdout)
    assert (job["id"], job["state"], job["failed"], job["summary"]["rows"]) == ("asked", "DONE", 0, 9)
    home.run("down", "--all")
    assert not home.tokens()
