"""What runs beside the supervisor's loop in the host. Apart from `wiring`, because commands need none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.control.reconcilers.announce import Announcer
from remuda.control.reconcilers.endpoint_file import EndpointFiles
from remuda.control.reconcilers.reaper import Reaper
from remuda.control.reconcilers.routers import RouterMembers
from remuda.control.reconcilers.runfiles import RunFiles

if TYPE_CHECKING:
    from remuda.control.reconcilers.jobkeeper import JobKeeper
    from remuda.control.service import Service
    from remuda.supervise.reconciler import Reconciler


def every(service: Service, jobs: JobKeeper) -> list[Reconciler[Any, Any]]:
    """In the order in which they are asked."""
    endpoints = EndpointFiles(service.routers)
    routers = RouterMembers(service.routers, endpoints.changed, service.supervisor.take_load, service.clock.now)
    service.refresh_router = routers.refresh
    files = RunFiles(service.journal)
    return [service.ports, routers, endpoints, Announcer(service), Reaper(service), files, jobs]
