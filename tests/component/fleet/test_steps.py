"""kill -9 at every step of joining and leaving, on either side: one node, one use of its token, and nothing left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.fleet import joining, membership
from remuda.fleet.processes import Daemons

if TYPE_CHECKING:
    from tests.component.fleet.homes import Fleet
    from tests.conftest import Home


def begin_dying(home: Home, who: str, step: str) -> subprocess.Popen[bytes]:
    """Start a client or a host that will be killed at this step."""
    words = [sys.executable, "-m", "tests.component.fleet.dying", who, *step.split()]
    return subprocess.Popen(words, env=home.env, cwd=Path(__file__).parents[3], stderr=subprocess.DEVNULL)


def die(home: Home, who: str, step: str) -> None:
    assert begin_dying(home, who, step).wait(60) == -signal.SIGKILL


def prepare(fleet: Fleet, token: str) -> None:
    """As `connect` records it, without a client."""
    asked = joining.Asked(fleet.where, token, name="box", resilient=True)
    joining.prepare(fleet.box.paths, asked)


def uses(fleet: Fleet) -> int:
    return sum(one["uses"] for one in json.loads(fleet.head.run("host", "token", "list", "--json").stdout))


JOINING = ["before ask join", "after ask join", "before record", "after record", "before furnish", "after furnish",
           "before ask beat", "after ask beat"]  # fmt: skip


@pytest.mark.parametrize("step", JOINING)
def test_a_client_that_dies_while_it_joins(fleet: Fleet, step: str) -> None:
    fleet.begin()
    token = fleet.token("--uses", "1")
    prepare(fleet, token)
    die(fleet.box, "client", step)
    fleet.connect(token, "--resilient")
    fleet.idle()
    assert [*fleet.nodes()] == ["box"]
    assert uses(fleet) == 1


@pytest.mark.parametrize("step", ["before end", "after end", "before ask leave", "after ask leave", "before drop"])
def test_a_client_that_dies_while_it_leaves(fleet: Fleet, step: str) -> None:
    fleet.connect(fleet.begin(), "--resilient")
    fleet.idle()
    pid = fleet.status()["pid"]
    subprocess.run(["kill", "-9", str(pid)], check=True)
    until(lambda: not fleet.status()["pid"], "the client is gone")
    dying = begin_dying(fleet.box, "client", step)
    until(lambda: fleet.status()["pid"], "it runs")
    fleet.box.run("client", "disconnect")
    assert dying.wait(60) == -signal.SIGKILL
    assert membership.read(fleet.box.paths.fleet_node) is None
    until(lambda: fleet.nodes() == {}, "the node is gone", 60)
    assert json.loads(fleet.head.run("health", "--json").stdout)["nodes"] == []
    daemons = Daemons(fleet.box.paths.fleet_node / "slurm")
    assert [daemons.pid(name) for name in ("slurmd", "munged")] == [None, None]


@pytest.mark.parametrize("step", ["before join", "after join"])
def test_a_host_that_dies_while_a_machine_joins(fleet: Fleet, step: str) -> None:
    token = fleet.begin()
    fleet.head.run("host", "stop")
    dying = begin_dying(fleet.head, "host", step)
    until(lambda: fleet.head.client.is_up() and fleet.head.client.get("/fleet"), "the host is up", 60)
    prepare(fleet, token)
    client = subprocess.Popen([sys.executable, "-m", "remuda.fleet.client"], env=fleet.box.env,
                              stderr=subprocess.DEVNULL)  # fmt: skip
    assert dying.wait(60) == -signal.SIGKILL
    fleet.head.run("host", "start")
    until(lambda: fleet.status()["state"] == "connected", "it has joined", 60)
    assert uses(fleet) == 1
    assert [*fleet.nodes()] == ["box"]
    client.kill()
    client.wait()
