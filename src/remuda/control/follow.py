"""The router's membership follows the replicas' health."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError
from remuda.control.views import RouterView
from remuda.plan.model import Secret, Workload
from remuda.serving.membership import front, members
from remuda.serving.router import Keys, Router, router_named

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Task, Want

_LOG = logging.getLogger("remuda.control.follow")
_AGAIN_S = 0.3
"""After a sync that failed, or that left members pending."""
_CHECK_S = 15.0
"""Without any change: whether the router still has the members that it was given."""
CONTROL_KEY = "router-control.key"
"""File in the workload's `secrets` folder: what changes the membership."""


@dataclass(frozen=True)
class Target:
    """What a router shall have. A restarted router is another target."""

    base_url: str
    urls: frozenset[str]
    life: tuple[int, int, int]


class RouterFollower:
    """Keeps every router's members equal to its workload's ready replicas, beside the loop and never in its way."""

    def __init__(self, views: dict[str, RouterView], changed: Callable[[str], None] = lambda _: None) -> None:
        """`changed` is called with a workload's name when the members that its router has are others than before."""
        self._views = views
        self._tell = changed
        self._numbers: dict[str, dict[str, float]] = {}
        self._targets: dict[str, Target] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, asyncio.Event] = {}

    async def step(self, want: Want, tasks: Mapping[TaskKey, Task]) -> float | None:
        """Note what the router shall have; a task of its own brings it there."""
        name = want.workload.name
        target = _target(want, tasks)
        if target is None:
            await self._leave(name)
            return None
        if self._targets.get(name) != target:
            self._targets[name] = target
            self._changed.setdefault(name, asyncio.Event()).set()
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._keep(name, want.workload), name=f"router of {name}")
        return None

    async def close(self) -> None:
        """Stop following; the routers keep the members they have."""
        for name in list(self._tasks):
            await self._leave(name)

    async def _leave(self, name: str) -> None:
        self._targets.pop(name, None)
        self._views.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, name: str, workload: Workload) -> None:
        router = router_named(workload.labels.get("router", "smg"))
        keys = _keys(workload)
        changed = self._changed[name]
        while True:
            changed.clear()
            pause = await self._sync(name, router, keys)
            try:
                async with asyncio.timeout(pause):
                    await changed.wait()
            except TimeoutError:
                continue

    async def _sync(self, name: str, router: Router, keys: Keys) -> float:
        target = self._targets[name]
        try:
            changes = await router.sync(target.base_url, target.urls, keys)
        except RemudaError as error:
            _LOG.warning("the router of %s could not be told its members: %s", name, error)
            return _AGAIN_S
        if changes:
            _LOG.info("router of %s: +%s -%s", name, sorted(changes.added), sorted(changes.removed))
        before, has = self._views.get(name), sorted(target.urls - changes.pending)
        self._views[name] = RouterView(url=target.base_url, members=has, stats=self._numbers.get(name, {}))
        if before is None or (before.url, before.members) != (target.base_url, has):
            self._tell(name)
        await self._look(name, target, router, keys)
        return _AGAIN_S if changes.pending else _CHECK_S

    async def _look(self, name: str, target: Target, router: Router, keys: Keys) -> None:
        """Keep what `status` shows of the router."""
        try:
            stats = await router.stats(target.base_url, keys)
        except RemudaError:
            return
        numbers = {key: float(value) for key, value in asdict(stats).items() if isinstance(value, (int, float))}
        self._numbers[name] = numbers
        view = self._views.get(name)
        if view is not None:
            self._views[name] = view.model_copy(update={"stats": numbers})

    async def refresh(self, name: str, workload: Workload) -> None:
        """Take the router's numbers anew, for a view that is asked for now."""
        target = self._targets.get(name)
        if target is not None:
            router = router_named(workload.labels.get("router", "smg"))
            await self._look(name, target, router, _keys(workload))


def _target(want: Want, tasks: Mapping[TaskKey, Task]) -> Target | None:
    endpoint = want.workload.endpoint
    if endpoint is None or not endpoint.router:
        return None
    router = front(want.workload, tasks.values())
    if router is None:
        return None
    return Target(router.url, members(want.workload, tasks.values()), (router.attempt, router.restarts, router.pid))


def _keys(workload: Workload) -> Keys:
    endpoint = workload.endpoint
    control = str(secret_folder(workload.run_dir, workload.uid) / CONTROL_KEY)
    api = _read(endpoint.api_key) if endpoint and endpoint.api_key else ""
    return Keys(api=api, control=_read(Secret(file=control)), worker=api)


def secret_folder(run_dir: str, uid: str) -> Path:
    """Where the secrets of one creation of a workload are: files of mode 0600, in a folder of mode 0700."""
    return Path(run_dir) / "secrets" / uid


def _read(secret: Secret) -> str:
    try:
        return Path(secret.file).read_text().strip()
    except OSError:
        return ""
