"""Puts the parts together. The only place that knows all of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from remuda.backends.local.backend import LocalBackend
from remuda.backends.local.render import LocalSite
from remuda.base.settings import setting
from remuda.control.follow import RouterFollower
from remuda.control.runfiles import RunFiles
from remuda.node.zipapp import build_zipapp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import Backend
    from remuda.base.paths import StatePaths
    from remuda.control.service import Service
    from remuda.supervise.loop import After


def database_url(paths: StatePaths) -> str:
    """Where the state is: `REMUDA_DATABASE_URL`, else a SQLite file in the state directory."""
    return setting("DATABASE_URL") or str(paths.database)


def local_site(paths: StatePaths) -> LocalSite:
    """What allocations on this machine have in common; builds the node program where it is missing."""
    return LocalSite(
        workloads=paths.workloads,
        node_program=build_zipapp(paths.root / "node"),
        python=sys.executable,
        host_file=paths.host_file,
        port_locks=paths.ports,
    )


def backends(paths: StatePaths) -> Mapping[str, Backend]:
    """Every backend that this version has, by type."""
    return {"local": LocalBackend(local_site(paths))}


class Followers:
    """What follows the supervisor's tasks, and ends with the host."""

    def __init__(self, service: Service) -> None:
        self.routers = RouterFollower(service.routers)
        service.refresh_router = self.routers.refresh
        self.files = RunFiles(service.journal)

    def all(self) -> list[After]:
        """In the order in which they are called."""
        return [self.routers, self.files]

    async def close(self) -> None:
        """End them."""
        await self.routers.close()
        await self.files.close()
