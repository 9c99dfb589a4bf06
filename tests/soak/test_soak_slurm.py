"""A few kills of `make soak`, on the real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.places import Cluster
from tests.soak.soak import Soak, table

if TYPE_CHECKING:
    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed

KILLS, PAUSE_S = 8, (0.5, 2.0)


def test_random_kills_lose_and_double_nothing(home: Home, slurm: SlurmBed) -> None:
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    figures = Soak(home, Cluster(home, slurm, drill_every_s=8), 1, pause_s=PAUSE_S).go_until(KILLS)
    assert figures.allocations >= 3, f"kills that all fall into the start-up prove nothing: {table(figures)}"
    assert min(figures.runs - 1, figures.jobs) >= 1, table(figures)
