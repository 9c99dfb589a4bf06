"""The router's membership follows the replicas' health."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError
from remuda.plan.compile import secret_folder
from remuda.plan.front import CONTROL_KEY
from remuda.plan.model import Front, Secret, Workload
from remuda.serving.membership import members, ready_fronts
from remuda.serving.router import Keys, Member, MemberChanges, Router, router_named
from remuda.supervise.reconciler import Due, Moment, Reconciler, Turns
from remuda.views.workloads import RouterView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Task, Want

_LOG = logging.getLogger("remuda.host.reconcilers.router_members")
_AGAIN_S = 0.3
"""After a sync that failed, or that left members pending."""
_CHECK_S = 15.0
"""Without any change: whether the router still has the members that it was given."""
_LEAVING_S = 1.0
"""The same while a router finishes what it has begun."""
MUTE = frozenset({"transformers"})
"""Engines whose list of models names what lies in a cache, not what they serve."""


@dataclass(frozen=True)
class RouterTarget:
    """What a router shall have. A restarted router is another target."""

    base_url: str
    members: frozenset[Member]
    token: str
    leaving: frozenset[Member] = frozenset()
    """Servers that yield. They stay until the others serve: better one that leaves than none."""
    is_leaving: bool = False
    """The router itself yields."""


Name = tuple[str, str]
"""Workload, and one life of one of its routers."""


class RouterMembers(Reconciler[str, tuple[Workload, dict[Name, RouterTarget]]]):
    """Keeps every router's members equal to its workload's ready replicas, beside the loop and never in its way.

    While a router is succeeded there are two. Both are kept: the new one is told before it is asked, and the old one
    finishes what it has begun.
    """

    def __init__(
        self,
        views: dict[str, RouterView],
        changed: Callable[[str], None] = lambda _: None,
        load: Callable[[str, Mapping[str, float]], None] = lambda _, __: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """What is learnt is told.

        Args:
            views: by workload; kept up to date.
            changed: called with a workload's name when the members that a router has are others than before.
            load: called with the token of a router's allocation and the requests that it has not answered.
            now: the host's clock.
        """
        self._views = views
        self._tell = changed
        self._load = load
        self._now = now
        self._seen: dict[Name, RouterView] = {}
        self._targets: dict[str, dict[Name, RouterTarget]] = {}
        self._turns: dict[Name, Turns] = {}

    def due(self, at: Moment) -> Due[str, tuple[Workload, dict[Name, RouterTarget]]]:
        """A workload whose routers are others, or shall have others than they were told."""
        workload, targets = at.want.workload, _targets(at.want, at.tasks)
        is_so = [*targets.items()] == [*self._targets.get(workload.name, {}).items()]
        return Due({} if is_so else {workload.name: (workload, targets)})

    def act(self, actions: Mapping[str, tuple[Workload, dict[Name, RouterTarget]]]) -> None:
        """Note what the routers shall have; turns of each of them bring it there."""
        for workload, targets in actions.values():
            before = self._targets.get(workload.name, {})
            self._targets[workload.name] = targets
            for name in before.keys() - targets.keys():
                self._turns.pop(name).cancel()
                self._seen.pop(name, None)
            for name, target in targets.items():
                if name not in self._turns:
                    sync = partial(self._sync, name, _router(workload), _keys(workload))
                    self._turns[name] = Turns(sync, f"router of {workload.name}")
                if before.get(name) != target:
                    self._turns[name].wake()
            if [*before] != [*targets]:
                self._show(workload.name)
                self._tell(workload.name)

    async def close(self) -> None:
        """Stop following; the routers keep the members they have."""
        await asyncio.gather(*(turns.close() for turns in self._turns.values()))

    async def _sync(self, name: Name, router: Router, keys: Keys) -> float:
        target = self._targets[name[0]][name]
        try:
            before = self._seen.get(name)
            changes = await _tell_members(router, target, keys, before.members if before is not None else ())
        except RemudaError as error:
            _LOG.warning("the router of %s could not be told its members: %s", name[0], error)
            return _AGAIN_S
        if changes.added or changes.removed:
            _LOG.info("router of %s: +%s -%s", name[0], sorted(changes.added), sorted(changes.removed))
        has = sorted({member.url for member in target.members} - changes.pending)
        empty = before or RouterView(url=target.base_url, members=[], stats={})
        self._seen[name] = empty.model_copy(update={"members": has})
        self._show(name[0])
        if before is None or before.members != has:
            self._tell(name[0])
        await self._look(name, target, router, keys)
        if changes.pending:
            return _AGAIN_S
        return _LEAVING_S if target.is_leaving else _CHECK_S

    async def _look(self, name: Name, target: RouterTarget, router: Router, keys: Keys) -> None:
        """Keep what `status` shows of the router."""
        asked_at = self._now()
        try:
            stats = await router.stats(target.base_url, keys)
        except RemudaError:
            return
        numbers = {key: float(value) for key, value in asdict(stats).items() if isinstance(value, (int, float))}
        view = self._seen.get(name)
        if view is None:
            return
        self._seen[name] = view.model_copy(update={"stats": numbers, "counted_at": asked_at})
        self._show(name[0])
        # Between two tries a request is nowhere for a moment: nothing is left only if that was so twice.
        running = max(numbers["running"], view.stats.get("running", 1.0))
        self._load(target.token, {"running": running})

    def _show(self, workload: str) -> None:
        """Make the workload's view of what is known of its routers; none before the first was told its members."""
        targets = self._targets.get(workload, {})
        known = [self._seen[name] for name in targets if name in self._seen]
        if not known:
            self._views.pop(workload, None)
            return
        first, target = next(iter(targets.items()))
        front = self._seen.get(first) or RouterView(url=target.base_url, members=[], stats={})
        beside = [view for view in known if view is not front]
        self._views[workload] = front.model_copy(update={"beside": beside})

    async def refresh(self, workload_name: str, workload: Workload) -> None:
        """Take the routers' numbers anew, for a view that is asked for now."""
        for name, target in list(self._targets.get(workload_name, {}).items()):
            await self._look(name, target, _router(workload), _keys(workload))


def _router(workload: Workload) -> Router:
    """The workload's router, told of the model where the engine does not say it."""
    front, endpoint = workload.front or Front(), workload.endpoint
    model = endpoint.model if endpoint is not None and front.engine in MUTE else ""
    return router_named(front.router, model)


async def _tell_members(router: Router, target: RouterTarget, keys: Keys, had: Sequence[str]) -> MemberChanges:
    """Bring the router its members. Those that leave go last, so that it is never without one.

    Raises:
        RemudaError: the router does not answer, or refuses.
    """
    if target.leaving and not {member.url for member in target.members} <= set(had):
        known = {worker.url.rstrip("/") for worker in (await router.stats(target.base_url, keys)).workers}
        stay = frozenset(member for member in target.leaving if member.url in known)
        changes = await router.sync(target.base_url, target.members | stay, keys)
        if changes.pending or not target.members:
            return changes
    return await router.sync(target.base_url, target.members, keys)


def _targets(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[Name, RouterTarget]:
    """The workload's routers that are ready, the one in front first."""
    workload = want.workload
    if workload.endpoint is None or not workload.endpoint.router:
        return {}
    serving = members(workload, tasks.values())
    leaving = members(workload, (replace(task, yields_at=0.0) for task in tasks.values() if task.yields_at))
    return {
        (workload.name, f"{router.token}/{router.restarts}/{router.pid}"): RouterTarget(
            router.url, serving, router.token, leaving - serving, is_leaving=router.yields_at > 0
        )
        for router in ready_fronts(workload, tasks.values())
    }


def _keys(workload: Workload) -> Keys:
    endpoint = workload.endpoint
    control = f"{secret_folder(workload.run_dir, workload.uid)}/{CONTROL_KEY}"
    api = _read(endpoint.api_key) if endpoint and endpoint.api_key else ""
    return Keys(api=api, control=_read(Secret(file=control)), worker=api)


def _read(secret: Secret) -> str:
    try:
        return Path(secret.file).read_text().strip()
    except OSError:
        return ""
