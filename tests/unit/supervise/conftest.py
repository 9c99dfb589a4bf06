"""A supervisor on a real database, a backend in memory, and a clock that jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import Bed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def make_bed(tmp_path: Path) -> Iterator[Callable[[str], Bed]]:
    """Beds with a database each, by name."""
    beds: list[Bed] = []

    def make(name: str) -> Bed:
        beds.append(Bed(tmp_path / f"{name}.db"))
        return beds[-1]

    yield make
    for one in beds:
        one.close()


@pytest.fixture
def bed(make_bed: Callable[[str], Bed]) -> Bed:
    """One bed."""
    return make_bed("bed")
