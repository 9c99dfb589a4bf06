"""Which replicas the router may send requests to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.plan.model import Role
from remuda.supervise.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.plan.model import Workload
    from remuda.supervise.model import Task


def members(workload: Workload, tasks: Iterable[Task]) -> frozenset[str]:
    """Addresses of the replicas that answered their last probe.

    A task that is stopping, starting again or silent is no member: the router hears of it in the same step of the loop
    in which the supervisor does. A task of another workload or role never is one.
    """
    replicas = {group.name for group in workload.groups if group.role is Role.REPLICA}
    return frozenset(
        task.url.rstrip("/")
        for task in tasks
        if task.phase is Phase.READY and task.url and task.key.group in replicas and task.key.workload == workload.name
    )


def base_url(workload: Workload, tasks: Iterable[Task]) -> str:
    """Address at which the workload's router is asked; empty when it has none or does not run."""
    endpoint = workload.endpoint
    if endpoint is None or not endpoint.router:
        return ""
    return next(
        (
            task.url.rstrip("/")
            for task in tasks
            if task.key.group == endpoint.router and task.key.workload == workload.name and task.phase is Phase.READY
        ),
        "",
    )
