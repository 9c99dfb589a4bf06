"""Nodes and GPUs as users meet them: what there is, what is free, what speaks against a node, and bans."""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from remuda.backends.registry import environment
from remuda.base.errors import BackendUnreachable, InputError, NotFound
from remuda.base.hostlist import expand
from remuda.base.text import did_you_mean
from remuda.look.allocate import devices_by_task
from remuda.specs.places import is_here, planned_as
from remuda.store.rows import Evidence
from remuda.supervise.failures.ledger import BAN
from remuda.supervise.model import LIVE
from remuda.views.nodes import (
    BY,
    BanView,
    EvidenceView,
    GpuView,
    NodeView,
    SmokeRecorded,
    SmokeResult,
    ban_view,
    evidence_view,
    gpu_views,
    node_views,
    unknown_node,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.backends.base import Backend, Cluster
    from remuda.base.clock import Clock
    from remuda.host.service import Service
    from remuda.supervise.loop import Supervisor
    from remuda.supervise.records import StoreJournal

UNBAN = "unban"
"""Kind of the line that ends a ban; it weighs nothing."""
SMOKE_TEST = "smoke-test"
"""Kind of the evidence of a node's own test that failed."""
SMOKE_TEST_PASSED = "smoke-test-passed"
"""Kind of the line that ends earlier evidence of that kind; it weighs nothing."""
BAN_TTL_S: Final = 12 * 3600.0
DEFAULT_REASON: Final = "no reason given"
_LONGEST_TTL_S: Final = 10 * 365 * 86400.0


def check_ttl(ttl_s: float) -> float:
    """A time to live that can be one.

    Raises:
        InputError: it is not above 0, is no number, or longer than ten years.
    """
    if not math.isfinite(ttl_s) or ttl_s <= 0:
        raise InputError(f"a ban lasts longer than 0 s, not {ttl_s:g} s", hint="write 90s, 1h, 7d", where="ttl")
    if ttl_s > _LONGEST_TTL_S:
        raise InputError("a ban lasts ten years at most", hint="write 90s, 1h, 7d", where="ttl")
    return ttl_s


@dataclass
class Nodes:
    """Use cases over the ledger and the backends' clusters; the host calls them from its event loop.

    Each that changes something is one transaction: what raises has changed nothing.
    """

    journal: StoreJournal
    backends: Mapping[str, Backend]
    clock: Clock
    changed: Callable[[], None] = lambda: None
    """Called when the evidence changed."""
    gpus_taken: Callable[[], int] = lambda: 0
    """How many GPUs of this machine the local backend's tasks have."""
    environ: Callable[[], Mapping[str, str]] = lambda: os.environ
    """What Slurm's commands are run with."""
    heard: Callable[[], Mapping[str, tuple[float, tuple[str, ...]]]] = dict
    """Of the nodes of the host's fleet, for how long nothing was heard, and what is the matter."""

    def __post_init__(self) -> None:
        self.store, self.fence = self.journal.store, self.journal.fence

    @classmethod
    def of(cls, service: Service, heard: Callable[[], Mapping[str, tuple[float, tuple[str, ...]]]] = dict) -> Nodes:
        """Those of a host's service."""
        supervisor = service.supervisor
        return cls(
            service.journal, supervisor.backends, service.clock,
            changed=supervisor.wake, gpus_taken=lambda: local_gpus_taken(supervisor),
            environ=partial(environment, service.paths), heard=heard,
        )  # fmt: skip

    # What there is

    async def nodes(self, backend: str = "", pool: str = "") -> list[NodeView]:
        """All nodes, or those of one pool.

        Raises:
            BackendUnreachable: the scheduler does not answer.
            InputError: there is no such backend.
            NotFound: there is no such pool.
        """
        name = self.backend_name(backend)
        cluster = await self._cluster(name)
        _check_pool(pool, cluster)
        now = self.clock.now()
        views = node_views(cluster, self.store.evidence(now), now, name=name, pool=pool)
        heard = {} if is_here(name) else self.heard()
        return [
            view.model_copy(update=dict(zip(("heard_s", "problems"), heard[view.name], strict=True)))
            if view.name in heard
            else view
            for view in views
        ]

    async def gpus(self, backend: str = "") -> list[GpuView]:
        """GPUs by pool and type.

        Raises:
            BackendUnreachable: the scheduler does not answer.
            InputError: there is no such backend.
        """
        return gpu_views(await self._cluster(self.backend_name(backend)))

    async def _cluster(self, name: str) -> Cluster:
        try:
            cluster = await self.backends[name].cluster()
        except BackendUnreachable as error:
            if not is_here(name) and not error.hint:
                error.hint = "this machine alone: --backend local"
            raise
        if not is_here(name):
            return cluster
        # The machine does not count what it gave out; the supervisor does.
        taken = self.gpus_taken()
        nodes = tuple(replace(node, gpus_free=max(0, node.gpus_free - taken)) for node in cluster.nodes)
        return replace(cluster, nodes=nodes)

    def backend_name(self, name: str) -> str:
        """The backend that is meant: by default the cluster where there is one, else this machine.

        Raises:
            InputError: this host has no such backend.
        """
        if not name:
            return (
                "slurm"
                if "slurm" in self.backends and shutil.which("sbatch", path=self.environ().get("PATH"))
                else "local"
            )
        name = planned_as(name)
        if name not in self.backends:
            known = ", ".join(sorted(self.backends))
            raise InputError(f"this host has no backend {name!r}", hint=f"known: {known}", where="backend")
        return name

    # What speaks against nodes

    def ban(self, node: str, ttl_s: float, reason: str = "", cluster: str = "slurm", *, by: str = "") -> BanView:
        """Keep tasks of all workloads away from a node; a ban that there is already is replaced.

        Nobody is asked whether the node exists: `ban_many` does that.

        Args:
            node: one name.
            ttl_s: how long, seconds.
            reason: for people.
            cluster: name of the backend whose node it is.
            by: login name of whoever wants it.

        Raises:
            InputError: `ttl_s` is not above 0.
        """
        check_ttl(ttl_s)
        row = self._evidence(node, BAN, reason.strip() or DEFAULT_REASON, cluster, by, ttl_s=ttl_s)
        with self.journal.transaction():
            self._end([node], BAN, cluster)
            self.store.add_evidence(self.fence, [row])
            self.journal.then(self.changed)
        return ban_view(row)

    async def ban_many(
        self, nodes: str, ttl_s: float, reason: str = "", backend: str = "", *, by: str = "", force: bool = False
    ) -> list[BanView]:
        """Ban every node of a host list, all or none; arguments else as `ban`.

        Raises:
            InputError: it is not a host list, or `ttl_s` is not above 0.
            NotFound: the cluster does not have one of them, and not `force`.
            BackendUnreachable: the scheduler does not answer, and not `force`.
        """
        cluster, names = self.backend_name(backend), expand(nodes)
        check_ttl(ttl_s)
        if not force:
            await self._check_known(names, cluster)
        with self.journal.transaction():
            return [self.ban(name, ttl_s, reason, cluster, by=by) for name in names]

    async def _check_known(self, names: Sequence[str], backend: str) -> None:
        try:
            known = await self._names(backend)
        except BackendUnreachable as error:
            hint = "--force bans without asking the scheduler whether it has such a node"
            raise BackendUnreachable(error.message, hint=hint) from error
        for name in names:
            if name not in known:
                missing = unknown_node(name, known, backend)
                raise NotFound(missing.message, hint=f"{missing.hint} (--force bans it all the same)")

    def unban(self, nodes: str, backend: str = "", *, by: str = "") -> list[str]:
        """End the bans of the nodes of a host list; returns the names of those that were banned.

        Raises:
            InputError: it is not a host list.
            NotFound: none of them is banned.
        """
        cluster, names = self.backend_name(backend), expand(nodes)
        with self.journal.transaction():
            ended = self._end(names, BAN, cluster)
            if not ended:
                what = f"{names[0]!r} is not" if len(names) == 1 else f"none of {nodes!r} is"
                raise NotFound(f"{what} banned", hint="`remuda nodes list` shows bans")
            self._note(ended, UNBAN, "unbanned", cluster, by)
        return ended

    def forget(self, nodes: str, backend: str = "") -> int:
        """Delete what was ever held against the nodes of a host list: they are no more. Returns how much that was.

        Raises:
            InputError: it is not a host list.
        """
        cluster, names = self.backend_name(backend), expand(nodes)
        with self.journal.transaction():
            count = self.store.forget_evidence(self.fence, names, cluster=cluster)
            self.journal.then(self.changed)
        return count

    async def _names(self, backend: str) -> set[str]:
        return {node.name for node in (await self.backends[backend].cluster()).nodes}

    def _evidence(
        self, node: str, kind: str, detail: str, cluster: str, by: str, *, ttl_s: float = 0.0, device: str = ""
    ) -> Evidence:
        """What speaks against a node for so long; without a time a line of its history that weighs nothing."""
        now, token = self.clock.now(), f"{BY}{by}" if by else ""
        return Evidence(
            node, now, kind, 1.0 if ttl_s else 0.0, cluster, device, token=token, detail=detail, expires_at=now + ttl_s
        )

    def _end(self, names: Sequence[str], kind: str, cluster: str) -> list[str]:
        """Let what is held against nodes count no more; names of those against which there was some."""
        end, now = self.store.end_evidence, self.clock.now()
        return [name for name in names if end(self.fence, name, cluster=cluster, kind=kind, now=now)]

    def _note(self, names: Sequence[str], kind: str, detail: str, cluster: str, by: str) -> None:
        self.store.add_evidence(self.fence, [self._evidence(name, kind, detail, cluster, by) for name in names])
        self.journal.then(self.changed)

    async def history(self, node: str, backend: str = "", *, limit: int = 1000) -> list[EvidenceView]:
        """Everything that was ever held against a node, and bans and their ends; oldest first.

        Raises:
            NotFound: nothing was, and the cluster does not have such a node.
        """
        cluster, now = self.backend_name(backend), self.clock.now()
        rows = self.store.node_history(node, cluster=cluster, limit=limit)
        if not rows:
            try:
                known = await self._names(cluster)
            except BackendUnreachable:
                return []
            if node not in known:
                raise unknown_node(node, known, cluster)
        return [evidence_view(row, now) for row in rows]

    def record_tests(self, results: Sequence[SmokeResult], backend: str = "", *, by: str = "") -> SmokeRecorded:
        """Hold failed tests against their nodes; a passed one ends what earlier tests left, and never a ban."""
        cluster = self.backend_name(backend)
        rows = [
            self._evidence(one.node, SMOKE_TEST, one.detail, cluster, by, ttl_s=BAN_TTL_S, device=one.device)
            for one in results
            if one.outcome == "failed"
        ]
        passed = [result.node for result in results if result.outcome == "ok"]
        with self.journal.transaction():
            self._end([row.node for row in rows], SMOKE_TEST, cluster)
            self.store.add_evidence(self.fence, rows)
            cleared = self._end(passed, SMOKE_TEST, cluster)
            if cleared:
                self._note(cleared, SMOKE_TEST_PASSED, "a later test passed", cluster, by)
            self.journal.then(self.changed)
        return SmokeRecorded(failed=[row.node for row in rows], cleared=cleared)


def _check_pool(pool: str, cluster: Cluster) -> None:
    known = [item.name for item in cluster.pools]
    if pool and pool not in known:
        hint = did_you_mean(pool, known, f"known: {', '.join(known)}")
        raise NotFound(f"there is no partition {pool!r}", hint=hint)


def local_gpus_taken(supervisor: Supervisor) -> int:
    """How many GPUs of this machine tasks have that live."""
    return sum(
        len(devices)
        for name, want in supervisor.wants.items()
        if want.workload.is_here
        for key, devices in devices_by_task(want.workload).items()
        if (task := supervisor.tasks(name).get(key)) is not None and task.phase in LIVE
    )
