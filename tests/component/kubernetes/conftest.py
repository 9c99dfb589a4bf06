"""A cluster, and a client of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.fakes.clock import FakeClock

from remuda.backends.kubernetes.client import KubernetesClient
from remuda.backends.kubernetes.config import load
from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[KubeBed]:
    with KubeBed(tmp_path / "bed") as bed:
        yield bed
    port = f":{int(bed.url.rpartition(':')[2]):04X}"
    async with asyncio.timeout(60):
        while any(port in line and line.split()[3] in ("01", "08") for line in lines_of_sockets()):
            await asyncio.sleep(0.02)  # TLS is closed by both sides, the one after the other


def lines_of_sockets() -> list[str]:
    return Path("/proc/net/tcp").read_text().splitlines()[1:]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def client(bed: KubeBed, clock: FakeClock, tmp_path: Path) -> AsyncIterator[KubernetesClient]:
    made = KubernetesClient(load(kubeconfig=str(bed.kubeconfig()), environ={}, home=tmp_path), clock)
    yield made
    await made.close()
