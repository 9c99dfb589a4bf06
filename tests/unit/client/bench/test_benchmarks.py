"""What a benchmark is told of its swarm."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.bench.perform import SwarmWatch
from remuda.client.bench.benchmarks import watched


def view(counted_at: float, **stats: float) -> dict[str, Any]:
    return {"ready": 2, "router": {"stats": stats, "counted_at": counted_at}}


@pytest.mark.parametrize(
    ("view", "found"),
    [
        (view(100.0, retries=3), SwarmWatch(2, 3)),
        (view(99.0, retries=3), SwarmWatch(2, 3)),
        (view(90.0, retries=3), SwarmWatch(2, -1)),
        (view(100.0), SwarmWatch(2, -1)),
        ({"ready": 1, "router": None}, SwarmWatch(1, -1)),
    ],
    ids=["counted since then", "by a clock that is late", "not counted since", "a router that counts nothing", "none"],
)
def test_a_swarm_as_it_is_since(view: dict[str, Any], found: SwarmWatch) -> None:
    assert watched(view, 100.0) == found
