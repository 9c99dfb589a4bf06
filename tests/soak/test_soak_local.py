"""A tenth of `make soak`, on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.soak.places import ThisMachine
from tests.soak.soak import Soak, table

if TYPE_CHECKING:
    from tests.conftest import Home

SECONDS = 120
KILLS = 12


def test_random_kills_lose_and_double_nothing(home: Home) -> None:
    figures = Soak(home, ThisMachine(), 1).go(SECONDS, kills=KILLS)
    # Kills that all fall into the start-up prove nothing.
    assert figures.kills["host"] >= 1, table(figures)
    assert figures.allocations >= 3, table(figures)
    assert min(figures.runs, figures.jobs) >= 2, table(figures)
