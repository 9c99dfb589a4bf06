"""`remuda doctor` on a real Slurm: jobs that a deleted home left are found by their names, and removed."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from tests.component.slurm.test_swarms import BACKEND, queue
from tests.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


def own(site: Home) -> dict[str, str]:
    """Name -> verdict of the jobs of this home."""
    seen: dict[str, Any] = json.loads(site.run("doctor", "--json", check=False).stdout)
    mine = [one for one in seen["allocations"] if one["home"] == str(site.paths.root) and one["backend"] == "slurm"]
    return {".".join(one["token"].split(".")[:3]): one["verdict"] for one in mine}


def is_deleted(root: Path) -> bool:
    shutil.rmtree(root, ignore_errors=True)
    return not root.exists()


def test_jobs_of_a_deleted_home(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    values: dict[str, Any] = {"backend": BACKEND, "gpus_per_replica": 1, "cpus_per_task": 1}
    home.run("up", "-c", str(home.swarm(**values)))
    assert own(home) == {"herd.replica.0": "wanted", "herd.replica.1": "wanted", "herd.router.0": "wanted"}
    slurm.run("sbatch", "-p", "cpu", "--job-name", "somebody", "--output", "/dev/null", "--wrap", "sleep 600")

    home.kill_host()
    until(lambda: is_deleted(home.paths.root), "it is deleted, although the node programs write there")
    home.paths.prepare()
    assert own(home) == {"herd.replica.0": "orphan", "herd.replica.1": "orphan", "herd.router.0": "orphan"}
    home.run("doctor", "--clean", "--yes", check=False)
    assert own(home) == {}
    assert queue(slurm) == ["somebody"]

    slurm.stop("slurmctld")
    silent = home.run("doctor", check=False)
    assert "slurm: what it runs is unknown: " in silent.stdout
