"""Groups that wait for each other on a real Slurm, each task a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.ordered import life
from tests.conftest import until

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


def test_a_deployment_of_four_groups(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    life(home, "slurm", {"partition": "cpu", "workdir": str(home.root)})
    until(lambda: not slurm.run("squeue", "-h", "-o", "%j").stdout.split(), "no job is left")
