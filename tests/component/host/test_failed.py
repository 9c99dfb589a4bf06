"""A swarm that failed as a whole, on this machine: nothing of it is left, and it is seen until somebody acts."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home


def test_what_failed_is_ended_and_seen_until_it_is_brought_up_again(home: Home) -> None:
    file = str(home.swarm(replicas=1, watchdog={"max_restarts": 0, "replace": "never"}))
    home.run("up", "-c", file)
    home.behave("slow", slow_s=600)
    (home.root / "in.jsonl").write_text("".join(json.dumps({"prompt": f"row {at}"}) + "\n" for at in range(50)))
    job = ("job", "submit", "completion", "--name", "herd", "-i", "in.jsonl", "-o", "out.jsonl")
    home.run(*job, "--detach", "--job-id", "orphan", "--max-concurrency", "2")
    until(lambda: home.client.get("/workloads/orphan")["tasks"][0]["phase"] == "ready", "its driver works")
    os.kill(home.task("herd", "replica/0")["pid"], signal.SIGKILL)

    waited = home.run("job", "wait", "orphan", check=False)
    assert waited.returncode == 1, waited.stdout
    assert "the swarm was taken down: it failed: killed by signal 9" in waited.stdout, "nobody else at that port"
    until(lambda: not home.tokens(), "router and driver have ended, too")
    view = home.view("herd")
    assert (view["phase"], view["wanted"]) == ("FAILED", 1)
    (shown,) = [one for one in json.loads(home.run("status", "--json").stdout) if one["name"] == "herd"]
    assert (shown["phase"], shown["reason"]) == ("FAILED", view["reason"])
    assert f"herd is FAILED\n  because {view['reason']}" in home.run("explain", "herd").stdout
    refused = home.run(*job, check=False)
    assert (refused.returncode, f"herd is FAILED: {view['reason']}" in refused.stderr) == (1, True)

    home.behave("ok")
    home.run("up", "-c", file)
    assert home.view("herd")["phase"] == "RUNNING"
    os.kill(home.task("herd", "replica/0")["pid"], signal.SIGKILL)
    until(lambda: home.view("herd")["phase"] == "FAILED", "it failed once more")
    home.run("down", "herd")
    assert home.view("herd")["phase"] == "DOWN"
    assert "herd" not in home.run("status").stdout
