"""Configuration of the Slurm test bed, as text."""

from __future__ import annotations

import json
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import InputError, Unavailable
from remuda.testing.slurm import packages
from remuda.testing.slurm.accounting import associations
from remuda.testing.slurm.config import FIRST_PORT, PORTS_EACH, SLOTS, BedLayout, files, gres_conf, hosts, slurm_conf
from remuda.testing.slurm.topology import DEFAULT, MOST_NODES, NodeShape, Partition, Qos, Topology, cpu_farm

ONE = Topology(
    (NodeShape("n1", "a100", 1, cpus=4, memory_mib=8000, features=("x", "y")),), (Partition("p", ("n1",), "MaxTime=5"),)
)
LAYOUT = BedLayout(Path("/tmp/bed"), 3, "login", "me", ONE, accounting=False)


def test_one_node_shared_and_isolated() -> None:
    port = FIRST_PORT + 3 * PORTS_EACH
    rest = f"Port={port + 10} CPUs=4 RealMemory=8000 TmpDisk=0 Gres=gpu:a100:1 Feature=x,y"
    shared = slurm_conf(LAYOUT).splitlines()
    assert shared[-2:] == [
        f"NodeName=n1 NodeHostname=login NodeAddr=127.0.4.11 {rest}",
        "PartitionName=p Nodes=n1 State=UP MaxTime=5",
    ]
    assert "SlurmctldHost=login(127.0.0.1)" in shared
    isolated = slurm_conf(replace(LAYOUT, isolated=True)).splitlines()
    assert isolated[-2] == f"NodeName=n1 NodeHostname=n1 NodeAddr=10.214.3.11 {rest}"
    assert "SlurmctldHost=login(10.214.3.1)" in isolated
    assert hosts(replace(LAYOUT, isolated=True)) == "127.0.0.1 localhost\n10.214.3.1 login\n10.214.3.11 n1\n"


@pytest.mark.parametrize(("gpus", "file"), [(1, "nvidia0"), (4, "nvidia[0-3]")])
def test_devices(gpus: int, file: str) -> None:
    layout = replace(LAYOUT, topology=Topology((NodeShape("n1", "a100", gpus),), ()))
    assert gres_conf(layout) == f"AutoDetect=off\nNodeName=n1 Name=gpu Type=a100 File=/tmp/bed/dev/n1/{file}\n"


def test_extra_lines_win() -> None:
    lines = slurm_conf(replace(LAYOUT, extra=("KillWait=30", "PreemptMode=OFF"))).splitlines()
    assert [line for line in lines if line.startswith(("KillWait=", "PreemptMode="))] == [
        "KillWait=30",
        "PreemptMode=OFF",
    ]


def test_accounting_adds_its_files() -> None:
    assert set(files(replace(LAYOUT, accounting=True))) - set(files(LAYOUT)) == {"slurmdbd.conf", "my.cnf"}
    assert files(replace(LAYOUT, accounting=True))["slurmdbd.conf"].mode == 0o600  # slurmdbd refuses any other


def test_associations_in_stages() -> None:
    topology = replace(ONE, qos=(Qos("high", "Priority=9"),), accounts=("a", "b"))
    assert associations(topology, "me") == [
        ["add cluster bed"],
        ["add qos high Priority=9"],
        ["add account a,b Cluster=bed Description=bed Organization=bed QOS=normal,high"],
        ["add user me Account=a,b DefaultAccount=a"],
    ]
    assert associations(ONE, "me") == [["add cluster bed"]]


@pytest.mark.parametrize("topology", [DEFAULT, ONE, cpu_farm(MOST_NODES, 64)], ids=["default", "one", "farm"])
def test_a_layout_survives_its_file(topology: Topology) -> None:
    layout = replace(LAYOUT, topology=topology, extra=("A=b",), owner="1 2", preempt="qos")
    assert BedLayout.from_json(layout.root, json.loads(json.dumps(layout.to_json()))) == layout


@given(st.data())
@settings(deadline=None)
def test_no_two_beds_share_a_port_an_address_or_an_interface(data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, SLOTS - 1), min_size=2, max_size=2, unique=True))
    nodes = data.draw(st.integers(1, MOST_NODES))
    isolated = data.draw(st.booleans())

    def owned(slot: int) -> set[str]:
        layout = replace(LAYOUT, slot=slot, topology=cpu_farm(nodes), isolated=isolated)
        cables = {layout.cable(index) for index in range(nodes)}
        assert all(len(name) <= 15 for name in cables | {layout.bridge})
        assert len(set(layout.ports)) == nodes + 2
        return {*map(str, layout.ports), *cables, layout.bridge, *(layout.address(index) for index in range(nodes))}

    assert owned(one) & owned(other) == set()


def test_all_ports_are_below_those_that_the_kernel_gives_out() -> None:
    assert max(replace(LAYOUT, slot=SLOTS - 1, topology=cpu_farm(MOST_NODES)).ports) < 32_768


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"nodes": [], "partitions": []}, "a bed has 1 to 100 nodes, not 0"),
        ({"nodes": [{"name": "a"}, {"name": "a"}], "partitions": []}, "two nodes are called 'a'"),
        (
            {"nodes": [{"name": "a"}], "partitions": [{"name": "p", "nodes": ["b"]}]},
            "partition 'p' names a node 'b' that does not exist",
        ),
        ({"partitions": []}, "the topology cannot be read: 'nodes'"),
    ],
)
def test_bad_topologies(document: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        Topology.from_json(document)
    assert str(caught.value) == sentence


@given(st.text(string.ascii_lowercase, min_size=1, max_size=5))
@settings(deadline=None)
def test_unknown_words_in_a_topology_are_errors(word: str) -> None:
    if word in NodeShape.__dataclass_fields__:
        return
    with pytest.raises(InputError, match=r"^the topology cannot be read: "):
        Topology.from_json({"nodes": [{"name": "a", word: 1}], "partitions": []})


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        packages, "which", lambda program: None if program in {"slurmd", "slurmdbd"} else f"/bin/{program}"
    )
    monkeypatch.setattr(packages, "_plugin", lambda part: part == "base")
    assert packages.missing(accounting=False) == ["slurmd"]
    with pytest.raises(Unavailable) as caught:
        packages.require(accounting=True)
    assert str(caught.value) == (
        "a Slurm test bed needs packages that are not installed: slurmd, slurmdbd, slurm-wlm-mysql-plugin"
    )
    assert caught.value.hint == "apt-get install --no-install-recommends slurmd slurmdbd slurm-wlm-mysql-plugin"
