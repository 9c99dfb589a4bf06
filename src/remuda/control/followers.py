"""What runs beside the supervisor's loop in the host. Apart from `wiring`, because commands need none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.control.announce import Announcer
from remuda.control.endpoint_file import EndpointFiles
from remuda.control.follow import RouterFollower
from remuda.control.jobkeeper import JobKeeper
from remuda.control.reaper import Reaper
from remuda.control.runfiles import RunFiles

if TYPE_CHECKING:
    from remuda.control.service import Service
    from remuda.supervise.loop import After


class Followers:
    """What follows the supervisor's tasks, and ends with the host."""

    def __init__(self, service: Service) -> None:
        self.ports = service.ports
        self.endpoints = EndpointFiles(service.routers)
        tell, load = self.endpoints.changed, service.supervisor.take_load
        self.routers = RouterFollower(service.routers, tell, load, service.clock.now)
        service.refresh_router = self.routers.refresh
        self.announcer = Announcer(service)
        self.reaper = Reaper(service)
        self.files = RunFiles(service.journal)
        self.jobs = JobKeeper(service.journal, service.supervisor, service.paths, service.clock)

    def all(self) -> list[After]:
        """In the order in which they are called."""
        return [self.ports, self.routers, self.endpoints, self.announcer, self.reaper, self.files, self.jobs]

    async def close(self) -> None:
        """End them."""
        await self.routers.close()
        await self.endpoints.close()
        await self.files.close()
