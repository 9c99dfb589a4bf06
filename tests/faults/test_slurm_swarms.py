"""What broken nodes do to a swarm: they crash, freeze, and their GPUs fall off the bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.conftest import PYTHON
from tests.faults.slurm_herds import BACKEND, Herd

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


@pytest.fixture
def herd(home: Home, slurm: SlurmBed) -> Herd:
    return Herd(home, slurm)


def test_both_replicas_of_a_crashed_node_are_replaced_elsewhere(herd: Herd) -> None:
    before = herd.up(replicas=3)
    node = next(node for node, names in herd.by_node().items() if sum(n.startswith("replica") for n in names) == 2)
    lost = [name for name, task in before.items() if task["node"] == node]
    herd.bed.crash(node)
    herd.wait(lambda: herd.serves() and all(herd.tasks()[name]["attempt"] > 1 for name in lost), "all serve again")
    now = herd.tasks()
    assert node not in {task["node"] for task in now.values()}
    assert {name: now[name]["attempt"] for name in before if name not in lost} == dict.fromkeys(
        set(before) - {*lost}, 1
    )
    assert herd.ask() == 200
    assert "node-failed" in herd.home.run("nodes", "history", node).stdout
    herd.down()


def test_a_frozen_node_is_left_out_and_its_replica_replaced_elsewhere(herd: Herd) -> None:
    """Nothing of it answers, and nothing of it says so: others that are heard are what tells."""
    before = herd.up(replicas=3, watchdog={"silence_after": 15})
    router = before["router/0"]["node"]
    name = next(name for name, task in before.items() if name.startswith("replica") and task["node"] != router)
    node, address = before[name]["node"], before[name]["url"]
    lost = [other for other, task in before.items() if task["node"] == node]
    herd.bed.freeze(node)
    herd.wait(lambda: address not in herd.members(), "nothing is sent there any more")
    assert herd.ask() == 200
    herd.wait(lambda: herd.serves() and all(herd.tasks()[one]["attempt"] > 1 for one in lost), "all serve again")
    assert node not in herd.by_node()
    herd.bed.thaw(node)
    assert herd.ask() == 200
    herd.down()


def test_a_replica_on_a_broken_gpu_is_begun_again_on_another_node(herd: Herd) -> None:
    """Its server says so in its log: no restart in place, and all workloads keep away from the node."""
    script = herd.home.root / "engine.sh"
    script.write_text(
        f"#!/bin/sh\nif mkdir {herd.home.root}/first; then\n"
        "  echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus'\n  exit 1\nfi\nexec \"$@\"\n"
    )
    serve = [PYTHON, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}", "--model", "herd-1"]
    herd.up(replicas=1, command=["/bin/sh", str(script), *serve])
    assert herd.tasks()["replica/0"]["attempt"] == 2
    ends = herd.home.client.get("/workloads/herd/explain")["allocations"]
    (broken,) = [end for end in ends if end["task"] == "replica/0" and end["ended_at"]]
    assert broken["cause"] == "node"
    assert broken["node"] != herd.tasks()["replica/0"]["node"]
    assert "xid-79" in herd.home.run("nodes", "history", broken["node"]).stdout
    assert herd.ask() == 200
    herd.down()


@pytest.mark.parametrize(
    ("place", "attempt"),
    [
        pytest.param({"partition": "gpu-l40s"}, 3, id="one of the two is kept"),
        pytest.param(
            {"partition": "spot", "preamble": ["#SBATCH --constraint=l40s"]}, 4,
            id="the others of the partition cannot run it, and Slurm says never",
        ),
    ],
)  # fmt: skip
def test_a_swarm_whose_two_nodes_have_each_stumbled_once_comes_back(
    herd: Herd, place: dict[str, object], attempt: int
) -> None:
    script = herd.home.root / "engine.sh"
    script.write_text(
        f"#!/bin/sh\nif mkdir {herd.home.root}/$SLURMD_NODENAME; then\n"
        "  echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus'\n  exit 1\nfi\nexec \"$@\"\n"
    )
    serve = [PYTHON, "-m", "tests.fakes.engine", "--host", "{host}", "--port", "{port}", "--model", "herd-1"]
    herd.up(
        backend=BACKEND | place, replicas=1, gpus_per_replica=1, router="none", command=["/bin/sh", str(script), *serve]
    )
    assert herd.tasks()["replica/0"]["attempt"] == attempt, herd.told()
    assert {node for node in herd.bed.node_names if (herd.home.root / node).exists()} == {"l40s-1", "l40s-2"}
    assert herd.ask() == 200
    herd.down()
