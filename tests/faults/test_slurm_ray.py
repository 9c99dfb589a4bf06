"""Replicas that span nodes by real Ray, on the real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.faults.slurm_spanning import ON_RAY, nodes_of, nothing_left, up

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


@pytest.fixture
def site(home: Home, slurm: SlurmBed) -> Home:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    return home


@pytest.mark.real
@pytest.mark.timeout(1200)
def test_ray_over_two_nodes(site: Home, slurm: SlurmBed) -> None:
    """Real Ray: the server is started when both nodes and all four GPUs are there, and nothing of it stays behind."""
    watchdog = {"ray": {"enabled": True, "expected_tp": 4, "status_grace_s": 1, "probe_interval_s": 1}}
    before = set(Path("/tmp").glob("rr????????"))
    answer = up(site, ON_RAY, spanning="ray", watchdog={**watchdog, "http_path": "/health"})
    assert answer["gpus"] == 4
    assert len(answer["where"]) == 2
    assert len(nodes_of(answer)) == (2 if slurm.layout.isolated else 1)
    log = site.run("logs", "herd").stdout
    assert "tasks ran on" in log
    site.run("down", "herd")
    nothing_left(site, slurm)
    until(lambda: set(Path("/tmp").glob("rr????????")) <= before, "Ray's files are removed")
