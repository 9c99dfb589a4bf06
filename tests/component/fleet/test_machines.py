"""Two machines with networks of their own: cables are pulled, addresses change, and processes are killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.component.fleet.machines import Machines
from tests.conftest import until
from tests.fakes.nvml import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.component.fleet.machines import Machine


@pytest.fixture
def machines() -> Iterator[Machines]:
    one = Machines({"gold": 2, "plain": 0})
    yield one
    one.close()


def test_two_machines_join_and_one_is_lost_for_a_while(machines: Machines) -> None:
    token = machines.begin()
    machines.connect("gold", token, "--gpus", "h100:2")
    machines.connect("plain", token)
    until(lambda: {one["state"] for one in machines.nodes().values()} == {"idle"}, "both are idle", 30)
    assert {name: one["gpus"] for name, one in machines.nodes().items()} == {"gold": 2, "plain": 0}
    gold = machines.by_name["gold"]
    # A run on the GPUs goes on while its node is cut off, and its client comes back by itself.
    (machines.head.root / "train.sh").write_text("#!/bin/sh\necho gpus=$CUDA_VISIBLE_DEVICES\nsleep 600\n")
    machines.head.run("run", "train.sh", "--backend", "fleet", "--gpus", "1")
    until(lambda: machines.head.view("train")["phase"] == "RUNNING", "it runs", 60)
    assert machines.head.view("train")["tasks"][0]["node"] == "gold"
    gold.cut()
    until(lambda: "silent" in "".join(machines.health()["gold"]), "gold is silent", 60)
    assert machines.health()["plain"] == []
    gold.heal()
    until(lambda: machines.health()["gold"] == [], "gold is well", 90)
    task = machines.head.view("train")["tasks"][0]
    assert (task["node"], task["attempt"], machines.head.view("train")["phase"]) == ("gold", 1, "RUNNING")
    machines.head.run("down", "train")


def test_a_machine_with_another_address_is_the_same_node(machines: Machines) -> None:
    machines.connect("plain", machines.begin())
    plain = machines.by_name["plain"]
    before = plain.status()
    plain.move(machines.layout.address(7))
    until(lambda: address_of(machines, "plain") == machines.layout.address(7), "its address is told", 60)
    until(lambda: machines.health()["plain"] == [], "it is well", 60)
    (machines.head.root / "hello.sh").write_text("#!/bin/sh\necho hello\n")
    machines.head.run("run", "hello.sh", "--backend", "fleet", "--wait")
    assert plain.status()["pid"] == before["pid"]
    assert [*machines.nodes()] == ["plain"]


def test_gpus_are_those_of_the_driver_whenever_its_client_begins(machines: Machines) -> None:
    token = machines.begin()
    gold = machines.by_name["gold"]
    folder = machines.head.root / "driver"
    folder.mkdir()
    with Driver(folder, 2) as driver:
        gold.env = driver.environment
        machines.connect("gold", token)
        kind = until(
            lambda: machines.nodes().get("gold", {}).get("gpus") == 2 and machines.nodes()["gold"]["gpu_type"], "2 GPUs"
        )
        slurmd = gold.status()["slurmd"]
        gold.kill("client")
        gold.remuda("client", "connect", machines.where, "--resilient", "--detach")
        until(lambda: machines.health()["gold"] == [], "it is well", 60)
        one = machines.nodes()["gold"]
        assert (one["gpus"], one["gpu_type"], gold.status()["slurmd"]) == (2, kind, slurmd)
        # A GPU that is gone when the client begins: the node has one less, and it is no loss that is still to come.
        driver.machine.count = 1
        gold.kill("client")
        gold.remuda("client", "connect", machines.where, "--resilient", "--detach")
        until(lambda: machines.nodes()["gold"]["gpus"] == 1, "it has one GPU", 60)
        assert machines.health()["gold"] == []


def address_of(machines: Machines, name: str) -> str:
    nodes = machines.head.client.get("/fleet")["nodes"]
    return str(next(one["address"] for one in nodes if one["name"] == name))


@pytest.mark.parametrize("victim", ["client", "slurmd", "munged", "host"])
def test_whatever_is_killed_a_run_goes_on_once(machines: Machines, victim: str) -> None:
    """Each kill while a job runs and while one waits; both end, each once."""
    machines.connect("plain", machines.begin())
    plain = machines.by_name["plain"]
    for name in ("one", "two"):
        path = machines.head.root / f"{name}.sh"
        path.write_text(f"#!/bin/sh\necho begun >> {machines.head.root}/{name}.begun\nsleep 6\n")
        machines.head.run("run", f"{name}.sh", "--backend", "fleet")
    until((machines.head.root / "one.begun").exists, "the first has begun", 60)
    kill(machines, plain, victim)
    if victim == "client":
        plain.remuda("client", "connect", machines.where, "--resilient", "--detach")
    for name in ("one", "two"):
        until(lambda name=name: machines.head.view(name)["phase"] == "DONE", f"{name} is done", 120)  # type: ignore[misc]
        assert (machines.head.root / f"{name}.begun").read_text() == "begun\n"
    until(lambda: machines.health()["plain"] == [], "the node is well", 60)
    assert [*machines.nodes()] == ["plain"]
    (token,) = json.loads(machines.head.run("host", "token", "list", "--json").stdout)
    assert token["uses"] == 1


def kill(machines: Machines, machine: Machine, victim: str) -> None:
    if victim == "host":
        machines.head.kill_host()
        machines.head.run("host", "start")
    else:
        machine.kill(victim)
