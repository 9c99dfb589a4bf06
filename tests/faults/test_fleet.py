"""What happens to the machines of a fleet, in the middle of a run: nodes with a network of their own."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Home, until
from tests.fleetbed import LEASE_S, NAMES, FleetBed

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """#!/bin/bash
while :; do echo $(date +%s.%N) $SLURMD_NODENAME >> {beats}; sleep 0.1; done
"""


@pytest.fixture
def home(home: Home, fleet: FleetBed) -> Home:
    """The state directory of the head."""
    home.paths.fleet.mkdir(mode=0o700)
    said = {"SLURM_CONF": f"{fleet.root}/slurm.conf", "PATH": "/usr/sbin:/usr/bin"}
    home.paths.fleet_environment.write_text(json.dumps(said))
    return home


class Beats:
    """A run that writes down when it lived, and where."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.path: Path = home.root / "beats"
        (home.root / "train.sh").write_text(SCRIPT.format(beats=self.path))
        home.run("run", "train.sh", "--backend", "fleet", "--gpus", "2", "--set", "backoff_base=1")
        until(lambda: self.task["phase"] == "ready" and self.path.exists(), "it runs")

    @property
    def task(self) -> dict[str, object]:
        """As `status` has it."""
        return self.home.task("train", "script/0")

    def of(self, node: str) -> list[float]:
        """When it lived there."""
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [float(line[0]) for line in lines if len(line) == 2 and line[1] == node]


def test_behind_a_cut_cable_work_ends_before_it_is_given_up_and_never_writes_beside_the_next(
    home: Home, fleet: FleetBed
) -> None:
    beats = Beats(home)
    node = str(beats.task["node"])
    other = next(name for name in NAMES if name != node)
    fleet.cut(node)
    cut_at = time.time()
    until(lambda: time.time() > beats.of(node)[-1] + 2, "it ends with its lease", 4 * LEASE_S)
    assert LEASE_S * 0.7 < beats.of(node)[-1] - cut_at < LEASE_S + 4
    assert not fleet.node_states()[node].startswith("down")
    until(lambda: beats.of(other), "it goes on elsewhere", 180)
    fleet.heal(node)
    fleet.wait_node(node, "idle")
    begun = beats.of(other)[0]
    assert beats.of(node)[-1] < begun
    until(lambda: beats.of(other)[-1] > begun + 5, "it lives")
    assert beats.of(node)[-1] < begun
    home.run("down", "train")


def test_a_head_that_is_killed_for_longer_than_the_lease_ends_nothing(home: Home, fleet: FleetBed) -> None:
    beats = Beats(home)
    node = str(beats.task["node"])
    until(lambda: beats.of(node)[-1] > beats.of(node)[0] + 6, "the head has written down that it runs")
    fleet.crash("slurmctld")
    killed_at = time.time()
    until(lambda: time.time() > killed_at + 1.5 * LEASE_S, "its time", 60)
    fleet.start("slurmctld")
    until(lambda: beats.of(node)[-1] > killed_at + 2 * LEASE_S, "it goes on", 60)
    assert max(b - a for a, b in zip(beats.of(node), beats.of(node)[1:], strict=False)) < 5
    assert beats.task["attempt"] == 1
    home.run("down", "train")


def test_a_cable_that_is_cut_for_less_than_the_lease_changes_nothing(home: Home, fleet: FleetBed) -> None:
    beats = Beats(home)
    node = str(beats.task["node"])
    fleet.cut(node)
    cut_at = time.time()
    until(lambda: time.time() > cut_at + LEASE_S / 2, "its time", 60)
    fleet.heal(node)
    until(lambda: beats.of(node)[-1] > cut_at + 2 * LEASE_S, "it goes on", 60)
    assert beats.task["attempt"] == 1
    home.run("down", "train")
