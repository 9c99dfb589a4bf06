"""Output of all tasks of one role, each line with the task that wrote it."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from remuda.base.errors import NotFound, RemudaError
from remuda.base.ids import api_path
from remuda.client import reconnect
from remuda.client.http import HostClient

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_Told = tuple[str, str] | RemudaError | None


def lines_of_role(
    client: HostClient, name: str, role: str, *, follow: bool, **query: object
) -> Iterator[tuple[str, str]]:
    """Task and line: one task after the other, or with `follow` as they come, until all of them have ended.

    Raises:
        NotFound: there is no such workload, or no task of that role has run.
        HostUnreachable: the host went away, and no other came.
    """
    path = api_path(name, "logs")
    tasks = tasks_of_role(client.get(api_path(name)), role)
    if follow:
        yield from _together(client, path, tasks, query)
        return
    for task in tasks:
        for line in client.lines(path, task=task, **query):
            yield task, line


def tasks_of_role(view: Mapping[str, Any], role: str) -> list[str]:
    """Those that have run, as `group/index`. Pure.

    Raises:
        NotFound: there are none.
    """
    ran = [task for task in view["tasks"] if task["attempt"]]
    found = [task["task"] for task in ran if task["role"] == role]
    if not found:
        roles = ", ".join(dict.fromkeys(task["role"] for task in ran)) or "none yet"
        raise NotFound(f"{view['name']!r} has no {role!r} that ever ran", hint=f"roles that ran: {roles}")
    return found


def _together(
    client: HostClient, path: str, tasks: Sequence[str], query: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    told: queue.SimpleQueue[_Told] = queue.SimpleQueue()

    def follow(task: str) -> None:
        try:
            for line in reconnect.follow(HostClient(client.paths), path, task=task, **query):
                told.put((task, line))
            told.put(None)
        except RemudaError as error:
            told.put(error)

    for task in tasks:
        threading.Thread(target=follow, args=(task,), daemon=True).start()
    left = len(tasks)
    while left:
        one = told.get()
        if isinstance(one, RemudaError):
            raise one
        if one is None:
            left -= 1
        else:
            yield one
