"""A host that was stopped: whoever looks sees what it recorded last, and the next host goes on from there."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

LOOKS = [
    ("status",), ("status", "--all"), ("status", "herd"), ("status", "train"), ("list",), ("list", "--all"),
    ("swarm", "list"), ("explain", "herd"), ("explain", "train", "--all-lives"), ("events", "herd"),
    ("events", "train", "--all-lives"),
]  # fmt: skip
HEARD = {"router", "load", "metrics", "last_seen", "heartbeat_at", "progress"}
"""What only a host that runs can say."""


def recorded(said: Any) -> Any:
    """What is the same without a host: neither what only it hears, nor how long ago something was."""
    if isinstance(said, dict):
        return {key: recorded(value) for key, value in said.items() if key not in HEARD}
    if isinstance(said, list):
        return [recorded(one) for one in said]
    return re.sub(r" for \d\S*( \d+\w)?", "", said) if isinstance(said, str) else said


@pytest.fixture(scope="module")
def stopped(shared_home: Home) -> tuple[Home, dict[tuple[str, ...], Any]]:
    """A home with a swarm and a run, whose host was stopped, and what commands said before."""
    home = shared_home
    (home.root / "train.sh").write_text("#!/bin/bash\nwhile :; do sleep 0.1; done\n")
    home.run("run", "--backend", "local", "train.sh")
    home.run("up", "-c", str(home.swarm()))
    until(lambda: home.view("herd")["announced"] and len(home.view("herd")["router"]["members"]) == 2, "up")
    until(lambda: home.view("train")["phase"] == "RUNNING", "it runs")
    before = {words: json.loads(home.run(*words, "--json").stdout) for words in LOOKS}
    home.run("host", "stop")
    return home, before


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_it_says_what_it_said_before(stopped: tuple[Home, dict[tuple[str, ...], Any]], words: tuple[str, ...]) -> None:
    home, before = stopped
    done = home.run(*words, "--json")
    assert recorded(json.loads(done.stdout)) == recorded(before[words])
    assert re.fullmatch(
        r"the host was stopped at [\d-]+ [\d:]+ \w+; this is what it recorded last \(start it: remuda host start\)\n",
        done.stderr,
    )
    assert home.run(*words).stdout
    assert home.run("host", "status", check=False).returncode == 5
    assert not home.paths.socket.exists()


def test_who_watches_goes_on_with_the_next_host_which_adopts_all(
    stopped: tuple[Home, dict[tuple[str, ...], Any]],
) -> None:
    home, before = stopped
    pids = {task["task"]: task["pid"] for task in before["status", "herd"]["tasks"]}
    watching = home.start("status", "train", "--watch", "--json")
    try:
        assert watching.stdout is not None
        assert next(line for line in watching.stdout if '"paused"' in line).strip() == '"paused": false,'
        home.run("host", "start")
        home.run("pause", "train")
        assert any('"paused": true' in line for line in watching.stdout)
    finally:
        watching.kill()
        watching.communicate()
    until(lambda: home.view("herd")["phase"] == "RUNNING", "adopted")
    assert {task["task"]: task["pid"] for task in home.view("herd")["tasks"]} == pids


def test_one_that_ends_by_itself_is_started_again(stopped: tuple[Home, dict[tuple[str, ...], Any]]) -> None:
    home, _ = stopped
    home.run("host", "start")
    pid = home.host_pid()
    home.paths.socket.unlink()
    until(lambda: "this host is unreachable" in home.log(), "it ends")
    until(lambda: home.run("status", "herd", check=False).returncode == 0 and home.client.is_up(), "another host")
    assert home.host_pid() != pid
