"""What becomes of gswarm's settings: every key of its example is a command, a default, or said not to be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import InputError
from remuda.cli import main
from remuda.client.upkeep.gswarm import MEANING, read

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = """\
cluster:
  host: "master.cluster.local"
  port: 8190
profiling:
  default_frequency: 1000
  enable_bandwidth: true
  enable_nvlink: false
models:
  storage_path: "/data/models"
  cache_size: "100GB"
queue:
  max_concurrent_tasks: 4
  task_timeout: 3600
  retry_count: 3
nodes:
  - name: "node1"
    address: "192.168.1.101"
    capabilities:
      gpus: ["gpu0", "gpu1"]
      storage:
        disk: 1000000000000
        dram: 64000000000
  - name: "node2"
    address: "192.168.1.102"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of gswarm, without a file."""
    made = tmp_path / ".gswarm"
    made.mkdir()
    return made


def test_every_key_of_its_example_becomes_something(folder: Path) -> None:
    (folder / "config.yaml").write_text(EXAMPLE)
    found = read(folder)
    assert found.problems == []
    assert {one.key for one in found.keys} == {*MEANING}
    here = {(one.key, one.value): one.here for one in found.keys}
    join = "remuda client connect master.cluster.local:8190 --token-file FILE --resilient"
    assert here["cluster.port", "8190"] == "on the head: remuda host start --port 8190"
    assert here["nodes.name", "node2"] == f"on that machine: {join} --node-id node2"
    assert here["profiling.default_frequency", "1000"] == "remuda profiler start --freq 1000ms"
    assert here["nodes.capabilities.gpus", "gpu0, gpu1"].startswith("not used: its driver says so")
    assert found.keys[1].where == f"{folder}/config.yaml:3"
    assert found.defaults.endswith("run:\n  max_retries: 3\n")


def test_nothing_is_left_out_silently(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "config.yaml").write_text("cluster: {port: many}\nqueue: {retry_cuont: 3}\nlogging: verbose\n")
    where = folder / "config.yaml"
    assert main(["import", "gswarm", str(folder)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"not imported: {where}:1: cluster.port must be a whole number, and is 'many'",
        f"not imported: {where}:2: queue.retry_cuont is no key of gswarm's that remuda knows",
        f"not imported: {where}:3: logging is no key of gswarm's that remuda knows",
    ]


def test_recordings_lie_beside_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError) as told:
        read(folder)
    assert str(told.value) == f"{folder}: is not a directory of gswarm"
    beside = folder.with_name(".gswarm_profiler_data")
    beside.mkdir()
    (beside / "exp1.json").write_text("{}")
    assert main(["import", "gswarm", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["recordings"], said["keys"]) == ([f"{beside}/exp1.json"], [])
    assert main(["import", "gswarm", str(folder)]) == 0
    assert f"remuda profiler analyze --data {beside}/exp1.json" in capsys.readouterr().out
