"""A supervisor on a real database, a backend in memory, and a clock that jumps."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import Bed

from remuda.store.engine import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated database without any row, to be copied."""
    path = tmp_path_factory.mktemp("empty") / "remuda.db"
    open_store(path).close()
    os.sync()
    return path


@pytest.fixture
def make_bed(empty_database: Path, tmp_path: Path) -> Iterator[Callable[[str], Bed]]:
    """Beds with a database each, by name."""
    beds: list[Bed] = []

    def make(name: str) -> Bed:
        path = tmp_path / f"{name}.db"
        shutil.copyfile(empty_database, path)
        beds.append(Bed(path))
        return beds[-1]

    yield make
    for one in beds:
        one.close()


@pytest.fixture
def bed(make_bed: Callable[[str], Bed]) -> Bed:
    """One bed."""
    return make_bed("bed")
