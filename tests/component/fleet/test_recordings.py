"""One recording of all nodes of a fleet: what is killed goes on, and what leaves is not waited for."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.fleet.machines import Machines
from tests.conftest import until
from tests.fakes.nvml import Driver

from remuda.base.errors import NotFound
from remuda.profile import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def machines() -> Iterator[Machines]:
    one = Machines({"gold": 2, "silver": 2, "plain": 0})
    yield one
    one.close()


@pytest.fixture
def driver(machines: Machines) -> Iterator[Driver]:
    """Of both machines: their GPUs are told apart by their nodes."""
    folder = machines.head.root / "driver"
    folder.mkdir()
    with Driver(folder, 2) as driver:
        yield driver


def status(machines: Machines, *words: str) -> dict[str, Any]:
    """As `profiler status` has it, by node."""
    found = json.loads(machines.head.run("profiler", "status", "--json", *words).stdout)
    return {one["node"]: one for one in found}


def seen(folder: Path) -> dict[tuple[str, int], int]:
    """Samples by node and GPU; each time once."""
    with suppress(NotFound):
        tracks = read(folder).tracks
        assert all(len(set(track.times)) == len(track.times) for track in tracks)
        return {(track.node, track.gpu.index): len(track.times) for track in tracks}
    return {}


def test_one_recording_has_each_gpu_with_its_node(machines: Machines, driver: Driver) -> None:
    head, token = machines.head, machines.begin()
    for name in ("gold", "silver"):
        machines.connect(name, token, "--gpus", "h100:2")
    machines.connect("plain", token)
    until(lambda: {one["state"] for one in machines.nodes().values()} == {"idle"}, "all are idle", 60)
    said = head.run("profiler", "start", "--name", "exp1", "--freq", "50ms", env=driver.environment)
    assert (said.stdout, said.stderr.splitlines()[0]) == ("exp1\n", "exp1 records 4 GPUs of 2 nodes at 20Hz")

    folder = head.paths.recordings / "exp1"
    before = status(machines)
    assert {name: one["state"] for name, one in before.items()} == {"gold": "recording", "silver": "recording"}
    assert head.run("profiler", "status", "--node", "silver").stdout.startswith("exp1 on silver: recording, ")
    refused = head.run("profiler", "status", "--node", "plain", check=False)
    assert refused.stderr.splitlines()[0] == "error: what is recorded has no node 'plain'"

    # A client, the host and a recorder die: each node records on, and no sample is there twice.
    machines.by_name["gold"].kill("client")
    head.kill_host()
    machines.by_name["silver"].run("kill", "-9", str(before["silver"]["pid"]))
    until((folder / "silver" / "001" / "open").exists, "a new recorder goes on there", 60)
    numbers = seen(folder)
    until(lambda: all(count > numbers.get(one, 0) + 20 for one, count in seen(folder).items()), "all go on", 60)
    assert head.run("status", "exp1").returncode == 0
    machines.by_name["gold"].remuda("client", "connect", machines.where, "--resilient", "--detach")

    # A recording is no work that a node which leaves would wait for; the other goes on.
    machines.by_name["gold"].remuda("client", "disconnect")
    until(lambda: status(machines)["gold"]["state"] == "ended", "its recorder has ended", 60)
    assert head.view("exp1")["phase"] == "RUNNING"
    assert head.run("profiler", "stop").stdout == "exp1\n"

    analysis = json.loads(head.run("profiler", "analyze", "exp1", "--json").stdout)
    assert [(gpu["node"], gpu["index"]) for gpu in analysis["gpus"]] == [
        (name, index) for name in ("gold", "silver") for index in (0, 1)
    ]
    assert [path.name for path in folder.glob("*.parquet")] == ["recording.parquet"]
    (session,) = json.loads(head.run("profiler", "sessions", "--json").stdout)
    assert (session["name"], session["state"]) == ("exp1", "complete")


def test_a_node_and_a_machine(machines: Machines, driver: Driver) -> None:
    head = machines.head
    machines.connect("gold", machines.begin(), "--gpus", "h100:2")
    until(lambda: {one["state"] for one in machines.nodes().values()} == {"idle"}, "it is idle", 60)
    for words, why in (
        (("--node", "gold", "--here"), "--here is this machine, and --node one of the fleet"),
        (("--node", "silver"), "the fleet has no node 'silver'"),
        (("--node", "gold", "--gpus", "7"), "--gpus: gold has none of the GPUs 7"),
    ):
        refused = head.run("profiler", "start", *words, check=False, env=driver.environment)
        assert (refused.returncode != 0, why in refused.stderr) == (True, True), refused.stderr
    assert "no recordings" in head.run("profiler", "sessions").stdout
    head.run("profiler", "start", "--name", "there", "--node", "gold", "--gpus", "1", env=driver.environment)
    head.run("profiler", "start", "--name", "here", "--here", env=driver.environment)
    assert [gpu["index"] for gpu in status(machines, "--name", "there")["gold"]["gpus"]] == [1]
    assert [*status(machines, "--name", "here")] == [""]
    for name in ("there", "here"):
        head.run("profiler", "stop", "--name", name)
    head.run("profiler", "start", "--name", "killed", env=driver.environment)
    folder = head.paths.recordings / "killed"
    until(lambda: seen(folder).get(("gold", 0), 0) >= 10, "a second is recorded", 60)
    machines.by_name["gold"].close()  # its power is gone
    until(lambda: "crashed" in head.run("profiler", "sessions").stdout, "nothing is recorded any more", 60)
    assert head.run("profiler", "recover").stdout.startswith("killed: 2 GPUs, ")
    assert (folder / "recording.parquet").exists()
