"""Replicas that span nodes by real Ray, on the real cluster."""

from __future__ import annotations

import re
from contextlib import suppress
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
    answer = up(site, ON_RAY, spanning="ray", watchdog={**watchdog, "http_path": "/health"})
    assert answer["gpus"] == 4
    assert len(answer["where"]) == 2
    assert len(nodes_of(answer)) == (2 if slurm.layout.isolated else 1)
    log = site.run("logs", "herd").stdout
    assert "tasks ran on" in log
    scratch = scratch_of(site)
    assert scratch
    site.run("down", "herd")
    nothing_left(site, slurm)
    until(lambda: not any(map(Path.exists, scratch)), "Ray's files are removed")


def scratch_of(site: Home) -> set[Path]:
    """Folders of engines' sockets that this home's processes know of."""
    found: set[Path] = set()
    for pid in site.tokens():
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            found |= {Path(word.decode()) for word in re.findall(rb"/tmp/rr[0-9a-f]{8}", words)}
    return found
