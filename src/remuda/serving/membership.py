"""Which replicas the router may send requests to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.plan.model import BOOTSTRAP, Role
from remuda.serving.router import Member
from remuda.supervise.model import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.plan.model import Workload
    from remuda.supervise.model import Task


def members(workload: Workload, tasks: Iterable[Task]) -> frozenset[Member]:
    """The servers that answered their last probe.

    One that yields to its successor is none any more: it only finishes what it has begun. A task that is stopping,
    starting again or silent is none: the router hears of it in the same step of the loop in which the supervisor does.
    A task of another workload or role never is one.
    """
    roles = {group.name: group.role for group in workload.groups if group.role.serves}
    if workload.endpoint is not None and workload.endpoint.behind:
        roles = {workload.endpoint.behind: Role.REPLICA}  # each of them answers a whole request
    return frozenset(
        Member(task.url.rstrip("/"), roles[task.key.group], task.ports.get(BOOTSTRAP, 0))
        for task in tasks
        if task.phase is Phase.READY
        and task.url
        and not task.yields_at
        and task.key.group in roles
        and task.key.workload == workload.name
    )


def front(workload: Workload, tasks: Iterable[Task]) -> Task | None:
    """The task that answers for the endpoint now: a router, or without one the only replica. None while none is ready.

    New requests go there. Everything that needs «the router» asks this, as there may be two for a while.
    """
    return next(iter(ready_fronts(workload, tasks)), None)


def ready_fronts(workload: Workload, tasks: Iterable[Task]) -> list[Task]:
    """All that are ready, the one in front first; then successors that settle in, then those that yield."""
    ready = [task for task in fronts(workload, tasks) if task.phase is Phase.READY]
    return sorted(ready, key=lambda task: (task.yields_at > 0, task.submitted_at, task.key.index))


def fronts(workload: Workload, tasks: Iterable[Task]) -> tuple[Task, ...]:
    """All tasks, ready or not, that may answer for the endpoint and have an address."""
    endpoint = workload.endpoint
    if endpoint is None:
        return ()
    groups = {group.name for group in workload.groups if group.role.answers}
    if endpoint.router:
        groups = {endpoint.router}
    return tuple(task for task in tasks if task.url and task.key.group in groups and task.key.workload == workload.name)
