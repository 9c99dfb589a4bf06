"""A job that Slurm does not list is gone only when somebody has looked for it all the while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.fakes.clock import FakeClock

from remuda.backends.base import Handle, Life
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.render import SlurmSite

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.backends.slurm.client import SlurmClient

HANDLE = Handle("w.script.0.1.abcdefgh", "17")
DAY = 86400.0


class NothingKnown:
    """A Slurm that answers, and knows no job."""

    async def queue(self) -> list[Any]:
        return []

    async def accounts(self, *_: object, **__: object) -> dict[str, Any]:
        return {}

    async def details(self, *_: object) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("change", ["nothing", "stopped", "set on", "set back"])
async def test_gone_after_so_long_of_looking(tmp_path: Path, change: str) -> None:
    clock = FakeClock()
    site = SlurmSite(workloads=tmp_path, node_program=tmp_path / "node", host_file=tmp_path / "host.json")
    backend = SlurmBackend(site, cast("SlurmClient", NothingKnown()), gone_after_s=30.0, clock=clock)

    async def life() -> Life:
        return (await backend.observe([HANDLE]))[HANDLE.token].life

    assert await life() is Life.PENDING
    clock.advance(20)
    assert await life() is Life.PENDING
    if change == "stopped":
        clock.stop(DAY)
    elif change != "nothing":
        clock.follow(DAY if change == "set on" else -DAY)
    assert await life() is Life.PENDING
    clock.advance(11)
    assert await life() is Life.GONE
