"""Services of a deployment as real processes: first up, found by others, killed, and back where they were."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

PARTS = Path(__file__).with_name("programs") / "parts.py"
RECIPE = """\
schema: 2
name: apart
model: {{path: {root}, name: tiny}}
python: {root}/python
engine: mocker
roles: {{prefill: {{workers: 1}}, decode: {{workers: 1}}}}
dynamo: {{discovery: etcd, request_plane: nats, event_plane: nats}}
"""


def tasks(home: Home) -> dict[str, dict[str, Any]]:
    return {task["task"]: task for task in home.view("apart")["tasks"]}


def pids(home: Home) -> dict[str, int]:
    """Of those that are told where services are."""
    return {name: task["pid"] for name, task in tasks(home).items() if name not in ("etcd/0", "nats/0")}


def is_back(home: Home, name: str, pid: int) -> bool:
    """Whether it runs again, and all of it is well."""
    return bool(tasks(home)[name]["pid"] != pid and home.view("apart")["phase"] == "RUNNING")


def test_services_come_first_and_are_found_again_when_they_were_killed(home: Home) -> None:
    for name in ("python", "etcd", "nats-server"):
        (home.root / name).write_text(f"#!{sys.executable} -IS\n{PARTS.read_text()}")
        (home.root / name).chmod(0o755)
    (home.root / "config.json").write_text("{}")
    (home.root / "recipe.yaml").write_text(RECIPE.format(root=home.root))
    home.run("apply", "recipe.yaml", "--backend", "local")
    moves = [(line["task"], line["phase"]) for line in home.client.get("/workloads/apart/events")]
    for service in ("etcd/0", "nats/0"):
        for other in ("prefill/0", "decode/0", "frontend/0"):
            assert moves.index((service, "ready")) < moves.index((other, "submitting"))
    assert "service 2/2" in home.run("status", "apart").stdout

    before, url = pids(home), tasks(home)["etcd/0"]["url"]
    killed = tasks(home)["etcd/0"]["pid"]
    os.kill(killed, signal.SIGKILL)
    until(lambda: is_back(home, "etcd/0", killed), "etcd is begun again where it was")
    assert (tasks(home)["etcd/0"]["url"], tasks(home)["etcd/0"]["attempt"]) == (url, 1)

    killed = tasks(home)["etcd/0"]["pid"]
    home.run("restart", "apart", "etcd")
    until(lambda: is_back(home, "etcd/0", killed), "another attempt of etcd")
    assert (tasks(home)["etcd/0"]["url"], tasks(home)["etcd/0"]["attempt"]) == (url, 2)
    assert pids(home) == before, "nobody else was disturbed"

    refused = home.run("scale", "apart", "etcd=2", check=False)
    assert "it is a service, whose number is fixed" in refused.stderr
    home.run("down", "apart")
    ends = [line["task"] for line in home.client.get("/workloads/apart/events") if line["phase"] == "stopped"]
    assert set(ends[-2:]) == {"etcd/0", "nats/0"}, "and last to end"
