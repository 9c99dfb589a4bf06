"""How many tasks a swarm has on a real cluster, and how often the cluster is asked about them."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.faults.slurm_herds import BACKEND, Herd

from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, RestartRule, Role, Workload
from remuda.testing.slurm import SlurmBed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Home

MANY = 64
SLOTS = 32
"""Processors in the partition `cpu`: so many run, the others wait."""
POLL_S = 2.0


@pytest.fixture
def herd(home: Home, slurm: SlurmBed) -> Herd:
    return Herd(home, slurm)


def test_three_replicas_at_two_a_node_are_three_tasks_on_two_nodes(herd: Herd) -> None:
    herd.up(
        replicas=3, gpus_per_replica=None, gpus_per_node=4, replicas_per_node=2, cpus_per_task=1,
        backend={**BACKEND, "partition": "gpu-a100"},
    )  # fmt: skip
    replicas = herd.replicas()
    assert sorted(replicas) == ["replica/0", "replica/1", "replica/2"]
    assert sorted(Counter(task["node"] for task in replicas.values()).values()) == [1, 2]
    assert sum(".replica." in name for name in herd.jobs()) == 3
    gpus = herd.bed.run("squeue", "-h", "-r", "-o", "%j %b").stdout.splitlines()
    assert [line.split()[1] for line in gpus if ".replica." in line] == ["gres:gpu:2"] * 3
    herd.down()


@pytest.fixture
def small(home: Home) -> Iterator[Herd]:
    """A cluster whose arrays have four tasks at most."""
    bed = SlurmBed(tempfile.mkdtemp(prefix="rmsl", dir="/tmp"), accounting=False, owned=True, extra=["MaxArraySize=4"])
    bed.up()
    try:
        yield Herd(home, bed)
    finally:
        home.close()
        bed.down()


def test_more_replicas_than_an_array_may_have(small: Herd) -> None:
    """What is beyond is submitted one by one, and so is one that is replaced."""
    backend = {"type": "slurm", "partition": "cpu", "account": "inference", "qos": "normal"}
    small.up(replicas=6, gpus_per_replica=0, backend={**backend, "endpoint": {"cpus_per_task": 1}})
    assert len(small.replicas()) == 6
    last = small.tasks()["replica/5"]
    small.bed.run("scancel", last["native"])
    small.wait(lambda: small.tasks()["replica/5"]["attempt"] == 2 and small.serves(), "it is replaced")
    small.down()


@pytest.mark.timeout(1200)
def test_many_replicas_are_one_call_and_one_question_a_poll(herd: Herd) -> None:
    home, asked = herd.home, herd.home.root / "asked"
    folder = home.root / "bin"
    folder.mkdir()
    for name in ("sbatch", "squeue", "sacct", "scontrol", "scancel"):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho {name} >> "{asked}"\nexec {shutil.which(name)} "$@"\n')
        path.chmod(0o755)
    home.env |= {"PATH": f"{folder}:{home.env['PATH']}", "REMUDA_SLURM_POLL_S": f"{POLL_S:g}"}
    home.run("host", "start")
    group = Group(
        name="replica", count=MANY, role=Role.REPLICA, command=Command(argv=("sleep", "600")), kill_grace_s=2.0,
        restart=RestartRule(policy="never"),
    )  # fmt: skip
    workload = Workload(
        name="herd", kind=Kind.SWARM, uid=new_suffix(8), backend="slurm", groups=(group,),
        run_dir=str(home.paths.workload("herd")), place={"partition": "cpu", "workdir": str(home.root)},
    )  # fmt: skip
    home.client.post("/workloads", {"workload": json.loads(workload.model_dump_json()), "spec": ""})

    def phases() -> Counter[str]:
        return Counter(task["phase"] for task in herd.tasks().values())

    herd.wait(lambda: phases() == {"ready": SLOTS, "pending": MANY - SLOTS}, "half of them run", 300)
    assert Counter(asked.read_text().split())["sbatch"] == 1
    asked.unlink()
    begin = time.monotonic()
    herd.wait(lambda: asked.exists() and asked.read_text().split().count("squeue") >= 4, "it is asked again and again")
    polls = (time.monotonic() - begin) / POLL_S + 2  # one at each end
    calls = Counter(asked.read_text().split())
    assert calls["squeue"] <= polls, calls
    assert calls["sacct"] <= polls, calls
    assert set(calls) <= {"squeue", "sacct"}, calls

    home.client.post("/workloads/herd/down")
    herd.wait(lambda: str(herd.view()["phase"]) == "DOWN", "it is down", 300)
    assert herd.jobs() == []
    assert Counter(asked.read_text().split())["scancel"] < MANY, "many are ended by one call"
