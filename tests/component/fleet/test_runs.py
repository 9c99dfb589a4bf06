"""A run on a fleet whose machines share the state directory: planned as on any Slurm, bound to its GPUs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.component.fleet.conftest import Alone

SCRIPT = "#!/bin/bash\necho gpus=$CUDA_VISIBLE_DEVICES\n"


@pytest.fixture
def home(alone: Alone) -> Iterator[Home]:
    """The state directory of the head."""
    home = Home(alone.root)
    (home.root / "train.sh").write_text(SCRIPT)
    yield home
    alone.end()
    home.close()


def test_a_run_goes_to_a_node_of_the_fleet(alone: Alone, home: Home) -> None:
    alone.head().start()
    alone.node().start()
    alone.wait()
    said = home.run("run", "train.sh", "--backend", "fleet", "--gpus", "2", "--follow")
    assert "gpus=0,1" in said.stdout
    view = home.view("train")
    assert (view["backend"], view["phase"], view["tasks"][0]["node"]) == ("slurm", "DONE", "n1")
    nodes = json.loads(home.run("nodes", "--json").stdout)
    assert [(node["name"], node["state"], node["gpus"], node["pools"]) for node in nodes] == [
        ("n1", "idle", 2, ["fleet"])
    ]
    (gpus,) = json.loads(home.run("gpus", "--backend", "fleet", "--json").stdout)
    assert (gpus["pool"], gpus["gpu"], gpus["total"]) == ("fleet", "h100", 2)


def test_without_a_fleet_a_run_there_is_refused_before_anything_is_recorded(home: Home) -> None:
    said = home.run("run", "train.sh", "--backend", "fleet", check=False)
    assert said.returncode == 2
    assert said.stderr.endswith(
        "error: --backend: this host has no fleet\n  start one: remuda host start --port 8090\n"
    )
    assert json.loads(home.run("status", "--all", "--json").stdout) == []
