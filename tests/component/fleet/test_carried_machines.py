"""Machines with networks and homes of their own, from which the head's directory is hidden: cables and leases."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.component.fleet.machines import Machines
from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAIN = """#!/bin/sh
echo "begun on $SLURMD_NODENAME"
while :; do date +%s.%N; sleep 0.2; done
"""


@pytest.fixture
def machines() -> Iterator[Machines]:
    one = Machines({"near": 0, "far": 0})
    for machine in one.by_name.values():
        machine.run("mount", "-t", "tmpfs", "tmpfs", str(one.head.paths.root))
    yield one
    one.close()


def written(machines: Machines, attempt: int) -> list[float]:
    """When an attempt wrote, as the head has it."""
    files = machines.head.paths.workloads.glob(f"train/*/attempt-{attempt}-*/child.log")
    return [float(line) for one in files for line in one.read_text().splitlines() if re.fullmatch(r"[\d.]+", line)]


def test_what_is_cut_off_ends_with_its_lease_and_starts_elsewhere(machines: Machines) -> None:
    token = machines.begin("--lease", "8s")
    for name in machines.by_name:
        machines.connect(name, token)
    until(lambda: {one["state"] for one in machines.nodes().values()} == {"idle"}, "both are idle", 60)
    project = machines.head.root / "project"
    project.mkdir()
    (machines.head.root / "train.sh").write_text(TRAIN)
    said = ("--workdir", str(project), "--set", "backoff_base=1")
    machines.head.run("run", "train.sh", "--backend", "fleet", *said)
    until(lambda: len(written(machines, 1)) > 5, "its output is here", 60)
    name = machines.head.view("train")["tasks"][0]["node"]
    where = machines.by_name[name]

    where.cut()
    until(lambda: "silent" in "".join(machines.health()[name]), "it is silent", 60)
    assert machines.head.task("train", "script/0")["attempt"] == 1
    until(lambda: not where.run("pgrep", "-f", "train.sh", check=False).stdout, "its lease has ended it", 60)
    machines.head.run("nodes", "lost", name, "--force")
    until(lambda: machines.head.task("train", "script/0")["attempt"] == 2, "it starts elsewhere", 30)
    until(lambda: len(written(machines, 2)) > 5, "it runs elsewhere", 60)
    assert machines.head.view("train")["tasks"][0]["node"] != name

    where.heal()
    (folder,) = machines.head.paths.workloads.glob("train/*/attempt-1-*")
    until((folder / "exit.json").exists, "what was cut off says how it ended", 90)
    assert "the lease is 8 s" in json.loads((folder / "exit.json").read_text())["reason"]
    assert max(written(machines, 1)) < min(written(machines, 2)), "two attempts wrote at once"
    assert not where.run("pgrep", "-f", "train.sh", check=False).stdout
    machines.head.run("down", "train")
