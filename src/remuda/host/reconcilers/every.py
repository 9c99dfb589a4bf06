"""What runs beside the supervisor's loop in the host. Not in `backends.registry`: commands need none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.host.reconcilers.announce import Announcer
from remuda.host.reconcilers.endpoint_files import EndpointFiles
from remuda.host.reconcilers.reaper import Reaper
from remuda.host.reconcilers.router_members import RouterMembers
from remuda.host.reconcilers.run_files import RunFiles

if TYPE_CHECKING:
    from remuda.host.reconcilers.campaigns import Campaigns
    from remuda.host.reconcilers.job_rows import JobKeeper
    from remuda.host.service import Service
    from remuda.supervise.reconciler import Reconciler


def every(service: Service, jobs: JobKeeper, campaigns: Campaigns) -> list[Reconciler[Any, Any]]:
    """In the order in which they are asked."""
    endpoints = EndpointFiles(service.routers)
    routers = RouterMembers(service.routers, endpoints.changed, service.supervisor.take_load, service.clock.now)
    service.refresh_router = routers.refresh
    files = RunFiles(service.journal)
    return [service.ports, routers, endpoints, Announcer(service), Reaper(service), files, jobs, campaigns]
