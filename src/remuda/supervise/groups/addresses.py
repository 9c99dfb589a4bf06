"""Addresses of services: others are told one when they are submitted, so a service keeps its own. Pure.

One that comes back elsewhere all the same, on another node, has others begun again that were told the old one.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.base.errors import RemudaError
from remuda.plan.model import ADDRESS, Group
from remuda.supervise.model import LIVE, Cause, Phase, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.backends.base import TaskKey
    from remuda.plan.model import Workload

_HERE: Final = "http://127.0.0.1:"
_TRIES: Final = 3
"""Attempts that ask for the port that a service had, one after the other, while somebody else has it."""
_ANSWER: Final = frozenset({Phase.READY, Phase.UNHEALTHY})


class NotYet(RemudaError):
    """Something that an allocation must be told is not known now."""


def named(group: Group) -> frozenset[str]:
    """Services whose address a group is told."""
    return frozenset(ADDRESS.findall(group.model_dump_json()))


def told(group: Group, tasks: Mapping[TaskKey, Task]) -> Group:
    """A group with addresses where it has marks for them.

    Raises:
        NotYet: a service of these has no address now.
    """
    known = {
        name: next((_address(task) for key, task in sorted(tasks.items()) if key.group == name and _answers(task)), "")
        for name in named(group)
    }
    if missing := sorted(name for name, address in known.items() if not address):
        raise NotYet(f"waits for the address of {', '.join(missing)}")
    if not known:
        return group
    text = ADDRESS.sub(lambda mark: json.dumps(known[mark[1]])[1:-1], group.model_dump_json())
    return Group.model_validate_json(text)


def kept(group: Group, task: Task) -> Group:
    """A service of this machine at the port that it had, so that what was told its address finds it again."""
    if group.listen is None or not task.url.startswith(_HERE) or task.pool_failures >= _TRIES:
        return group
    listen = group.listen.model_copy(update={"port": int(task.url.rsplit(":", 1)[1]), "fixed": True})
    return group.model_copy(update={"listen": listen})


def misled(workload: Workload, before: Task, after: Task, tasks: Iterable[Task]) -> list[Task]:
    """Tasks that were told an address that a service has no more: they are to be begun again.

    Args:
        workload: whose tasks they are.
        before: the service, before a fact was taken in.
        after: the same, after it.
        tasks: all tasks of the workload.
    """
    if not before.url or not after.url or before.url == after.url:
        return []
    name = after.key.group
    if not workload.group(name).role.stays:
        return []
    groups = {group.name for group in workload.groups if name in named(group)}
    why = f"{name} has another address: it was {_address(before)}, and is {_address(after)}"
    return [
        replace(task, ending=Cause.USER, reason=why)
        for task in tasks
        if task.key.group in groups and task.phase in LIVE - {Phase.STOPPING}
    ]


def _answers(task: Task) -> bool:
    return task.phase in _ANSWER and bool(task.url)


def _address(task: Task) -> str:
    return task.url.removeprefix("http://").rstrip("/")
