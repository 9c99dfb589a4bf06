"""A tenth of `make soak`, on the real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.places import Cluster
from tests.soak.soak import Soak, table

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

SECONDS = 120
KILLS = 12


def test_random_kills_lose_and_double_nothing(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    figures = Soak(home, Cluster(home, slurm), 1).go(SECONDS, kills=KILLS)
    # Kills that all fall into the start-up prove nothing.
    assert figures.kills["host"] >= 1, table(figures)
    assert figures.drills >= 1, table(figures)
    assert figures.allocations >= 3, table(figures)
    assert min(figures.runs, figures.jobs) >= 2, table(figures)
