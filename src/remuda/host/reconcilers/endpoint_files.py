"""Files that say where an endpoint is to be asked: `endpoint.json` for programs, `router.json` for the relay.

Beside them `down.json` says why nobody is there any more, while nobody wants it.

They are written beside the loop, which never waits for them, whenever one of them would say something else.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.files import write_atomic
from remuda.batch.address import DOWN, ENDPOINT_FILE
from remuda.serving.membership import fronts, ready_fronts
from remuda.supervise.model import TAKEN_DOWN, Phase
from remuda.supervise.reconciler import Due, Moment, Reconciler, Turns
from remuda.views.workloads import endpoint_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import TaskKey
    from remuda.plan.model import Workload
    from remuda.supervise.model import Task
    from remuda.views.workloads import RouterView

_LOG = logging.getLogger("remuda.host.reconcilers.endpoint_files")
ROUTER_FILE: Final = "router.json"
_ANSWERING: Final = (Phase.READY, Phase.UNHEALTHY, Phase.STOPPING)
"""Phases in which a router may be answering what it was asked before."""
_Document = dict[str, Any] | None
"""None: there is to be no such file."""
_AGAIN_S: Final = 1.0
"""After a file that could not be written."""


def answering(
    workload: Workload, tasks: Mapping[TaskKey, Task], router: RouterView | None = None, before: str = ""
) -> Task | None:
    """The task that requests are to be sent to; None while there is none.

    A router that missed a probe is better than none. One that begins is asked only when it was told of a replica:
    before that it would refuse everything.

    Args:
        workload: with an endpoint.
        tasks: of it.
        router: what the ready router was told.
        before: `id` of the task that this said last; it is known to be told.
    """
    ready = ready_fronts(workload, tasks.values())
    if not ready:
        ill = (task for task in fronts(workload, tasks.values()) if task.phase is Phase.UNHEALTHY)
        return min(ill, key=lambda task: task.key.index, default=None)
    if workload.endpoint is None or not workload.endpoint.router:
        return ready[0]
    told = (task for task in ready if (router is not None and router.told(task.url)) or life(task) == before)
    return next(told, None)


def life(task: Task) -> str:
    """Another text for each start of the task's program; an address alone does not say who is there."""
    return f"{task.token}/{task.restarts}"


def router_document(workload: Workload, tasks: Mapping[TaskKey, Task], chosen: Task | None) -> dict[str, Any]:
    """What the relay reads: where new requests go (`chosen`), and which routers may still be answering old ones."""
    alive = sorted(
        (task for task in fronts(workload, tasks.values()) if task.phase in _ANSWERING), key=lambda task: task.key
    )
    return {
        "router": _named(chosen) if chosen is not None else None,
        "alive": [_named(task) for task in alive],
    }


def _named(task: Task) -> dict[str, str]:
    return {"url": task.url.rstrip("/"), "id": life(task)}


def endpoint_document(workload: Workload, tasks: Mapping[TaskKey, Task], chosen: Task | None) -> dict[str, Any]:
    """What programs read that ask the endpoint: the stable address, and the router's own on the cluster's network."""
    return {
        "url": endpoint_url(workload, tasks),
        "router": chosen.url.rstrip("/") if chosen is not None else "",
        "model": workload.endpoint.model if workload.endpoint else "",
    }


class EndpointFiles(Reconciler[Path, _Document]):
    """Keeps the files of every workload with an endpoint up to date."""

    def __init__(self, routers: Mapping[str, RouterView]) -> None:
        self._routers = routers
        self._seen: dict[str, Moment] = {}
        self._chosen: dict[str, str] = {}
        """Life of the task that was named last, by workload."""
        self._said: dict[Path, _Document] = {}
        self._pending: dict[Path, _Document] = {}
        self.turns: Turns = Turns(self._turn, "endpoint files", is_finished=True)

    def changed(self, name: str) -> None:
        """A router was told of its replicas."""
        if name in self._seen:
            self.step(self._seen[name])

    def due(self, at: Moment) -> Due[Path, _Document]:
        """The files that say something else than they shall."""
        want, workload, tasks = at.want, at.want.workload, at.tasks
        if workload.endpoint is None:
            return Due()
        name, folder = workload.name, Path(workload.run_dir)
        if name not in self._chosen:
            self._chosen[name] = _last_choice(folder / ROUTER_FILE)
        chosen = answering(workload, tasks, self._routers.get(name), self._chosen[name])
        self._chosen[name] = life(chosen) if chosen is not None else ""
        self._seen[name] = at
        documents: dict[Path, _Document] = {
            folder / ENDPOINT_FILE: endpoint_document(workload, tasks, chosen),
            folder / DOWN: None if want.running else {"reason": "" if want.note == TAKEN_DOWN else want.note},
        }
        if workload.endpoint.relay:
            documents[folder / ROUTER_FILE] = router_document(workload, tasks, chosen)
        return Due({path: said for path, said in documents.items() if self._said.get(path, {}) != said})

    def act(self, actions: Mapping[Path, _Document]) -> None:
        """Note what they shall say; the files follow at once."""
        self._said |= actions
        self._pending |= actions
        self.turns.wake()

    async def _turn(self) -> float | None:
        batch, self._pending = self._pending, {}
        failed = await asyncio.to_thread(_write_all, batch)
        if not failed:
            return None
        self._pending = {**failed, **self._pending}
        await self.turns.rest(_AGAIN_S)
        return 0.0


def _last_choice(path: Path) -> str:
    """Life of the router that the file names; empty where it names none."""
    try:
        return str(json.loads(path.read_text())["router"]["id"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _write_all(batch: Mapping[Path, _Document]) -> dict[Path, _Document]:
    """Write them; returns those that could not be written although their directory is there."""
    failed = {}
    for path, document in batch.items():
        try:
            _write(path, document)
        except OSError as error:
            _LOG.warning("%s cannot be written: %s", path, error)
            if path.parent.is_dir():
                failed[path] = document
    return failed


def _write(path: Path, document: _Document) -> None:
    if document is None:
        path.unlink(missing_ok=True)
        return
    if not path.parent.is_dir():
        return
    try:
        old = json.loads(path.read_text())
    except (OSError, ValueError):
        old = {}
    if isinstance(old, dict) and {**old, "at": 0} == {**document, "at": 0}:
        return
    write_atomic(path, json.dumps({**document, "at": time.time()}) + "\n", mode=0o600, sync=False)
