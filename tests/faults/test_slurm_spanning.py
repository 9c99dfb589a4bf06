"""Replicas that span nodes by the engine's own ranks, on the real cluster."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.faults.slurm_spanning import RANKS, ask, member, nodes_of, nothing_left, up, wait_replaced

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
    until(lambda: site.task("herd", "replica/0")["restarts"] == 1, "it is started again in place", 60)
    until(lambda: site.task("herd", "replica/0")["phase"] == "ready", "it serves again", 90)
    assert site.task("herd", "replica/0")["attempt"] == 1
    assert set(ask(site)["where"]) == {"0", "1"}
    site.run("down", "herd")
    nothing_left(site, slurm)


def test_a_second_node_that_crashes(site: Home, slurm: SlurmBed) -> None:
    up(site, RANKS)
    listed = slurm.run("squeue", "-h", "-o", "%N").stdout.strip()
    nodes = slurm.run("scontrol", "show", "hostnames", listed).stdout.split()
    first = site.task("herd", "replica/0")["node"]
    (second,) = [name for name in nodes if name != first]
    slurm.crash(second)
    wait_replaced(site, {second} if slurm.layout.isolated else set())
    site.run("down", "herd")
    nothing_left(site, slurm)
