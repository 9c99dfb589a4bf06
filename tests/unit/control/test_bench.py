"""What a benchmark is told of its swarm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from remuda.bench.perform import Watched
from remuda.control.bench import watched

if TYPE_CHECKING:
    from collections.abc import Iterator


def view(counted_at: float, **stats: float) -> dict[str, Any]:
    return {"ready": 2, "router": {"stats": stats, "counted_at": counted_at}}


@pytest.mark.parametrize(
    ("views", "found"),
    [
        ([view(100.0, retries=3), view(99.0, retries=9)], Watched(2, 3)),
        ([view(98.0, retries=3), view(99.9, retries=3), view(100.0, retries=5)], Watched(2, 5)),
        ([view(1.0)], Watched(2, -1)),
        ([{"ready": 1, "router": None}], Watched(1, -1)),
    ],
    ids=["counted since then", "old counts are waited out", "a router that counts nothing", "no router"],
)
def test_a_swarm_as_it_is_since(views: list[dict[str, Any]], found: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.control.bench.time.sleep", lambda _: None)
    left: Iterator[dict[str, Any]] = iter(views)
    assert watched(lambda: next(left), 100.0) == found


def test_counters_that_never_come_are_not_waited_for_for_ever() -> None:
    assert watched(lambda: view(1.0, retries=7), 100.0, wait_s=0.0) == Watched(2, 7)
