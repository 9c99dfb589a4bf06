"""Replicas that span nodes by the engine's own ranks, on the real cluster."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.faults.slurm_spanning import RANKS, ask, member, names_in_queue, nodes_of, nothing_left, up, wait_replaced

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


@pytest.fixture
def site(home: Home, slurm: SlurmBed) -> Home:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    return home


def test_the_engines_own_ranks(site: Home, slurm: SlurmBed) -> None:
    """Two real processes on two nodes that talk over TCP; a rank that ends takes the whole with it, in place."""
    answer = up(site, RANKS)
    assert set(answer["where"]) == {"0", "1"}
    names = nodes_of(answer)
    assert len(names) == (2 if slurm.layout.isolated else 1)
    told_of = slurm.run("scontrol", "show", "job", "-o").stdout
    assert "NumNodes=2 " in told_of
    assert "of-the-ranks" not in told_of
    os.kill(member(site), signal.SIGKILL)
    until(lambda: site.task("herd", "replica/0")["restarts"] == 1, "it is started again in place")
    until(lambda: site.task("herd", "replica/0")["phase"] == "ready", "it serves again")
    assert site.task("herd", "replica/0")["attempt"] == 1
    assert set(ask(site)["where"]) == {"0", "1"}
    (events,) = site.paths.workloads.glob("herd/replica-0/*/events.jsonl")
    ended = re.compile(r"exit code 1: rank 1 on \S+ ended with code 137")
    until(lambda: ended.search(events.read_text()), "why it ended is written down")
    assert "CANCELLED AT" not in site.run("logs", "herd").stdout, "that Slurm ended a step for us is no news"
    site.run("down", "herd")
    nothing_left(site, slurm)


def test_a_second_node_that_crashes(site: Home, slurm: SlurmBed) -> None:
    up(site, RANKS)
    first = site.task("herd", "replica/0")["node"]
    (second,) = names_in_queue(slurm) - {first}
    slurm.crash(second)
    wait_replaced(site, {second} if slurm.layout.isolated else set())
    site.run("down", "herd")
    nothing_left(site, slurm)


def test_a_gpu_that_breaks_on_the_second_node(site: Home, slurm: SlurmBed) -> None:
    """Its line comes with the node's name, so that node is avoided and not the first one."""
    broken = site.root / "broken"
    up(site, RANKS, env={"GPUS_OF_A_NODE": "2", "BROKEN_FILE": str(broken)})
    nodes = names_in_queue(slurm)
    first = site.task("herd", "replica/0")["node"]
    (second,) = nodes - {first}
    broken.write_text(second)
    wait_replaced(site, set())
    until(lambda: len(slurm.run("squeue", "-h", "-o", "%A").stdout.split()) == 1, "its first job has left the queue")
    assert second not in names_in_queue(slurm)
    told = site.run("explain", "herd").stdout
    assert f"[{second}] NVRM: Xid" in told
    assert "xid-79" in site.run("nodes", "history", second, "--backend", "slurm").stdout
    assert "xid-79" not in site.run("nodes", "history", first, "--backend", "slurm").stdout
    site.run("down", "herd")
    nothing_left(site, slurm)
