"""This machine as a place where tasks run: processes in sessions of their own, found again after a crash."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING

from remuda.backends.base import Cluster, Feature, Handle, Life, Log, Node, Observed, PoolInfo, Rendered, Request, Stray
from remuda.backends.local import strays
from remuda.backends.local.client import LocalClient
from remuda.backends.local.devices import gpu_type, present_gpus
from remuda.backends.local.processes import tokens_by_pid
from remuda.backends.local.render import LocalSite, render
from remuda.backends.logs import Logs, until_dead
from remuda.base.errors import BackendUnreachable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.wire.place import Place


class LocalBackend:
    """Runs allocations as processes of this machine."""

    name = "local"
    features: frozenset[Feature] = frozenset()
    poll_s = 1.0
    hurry_s = 0.05

    def __init__(self, site: LocalSite) -> None:
        self.site = site
        self.client = LocalClient(site.workloads)
        self._logs = Logs()

    def render(self, request: Request) -> Rendered:
        """Say what `submit` would start. Pure.

        Raises:
            InputError: more GPUs than the workload was given.
        """
        return render(request, self.site)

    def as_sent(self, rendered: Sequence[Rendered]) -> Sequence[Rendered]:
        """Each is started alone."""
        return rendered

    async def check(self, calls: Sequence[Rendered]) -> None:
        """Nothing: this machine refuses nobody before the start."""

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        """Start the node programs; a token that is claimed already is left alone."""
        outcomes: list[Handle | Exception] = []
        for item in rendered:
            try:
                await asyncio.to_thread(self.client.start, item)
            except BackendUnreachable as error:
                outcomes.append(error)
            else:
                outcomes.append(Handle(item.token, str(self.client.folder(item.token))))
        return outcomes

    async def release(self, handles: Sequence[Handle]) -> None:
        """Nothing: what is started here is never held."""

    async def cluster(self) -> Cluster:
        """This machine."""
        gpus = await asyncio.to_thread(present_gpus)
        kind = await asyncio.to_thread(gpu_type) if gpus else ""
        cpus = os.cpu_count() or 1
        name = os.uname().nodename
        node = Node(name=name, state="up", usable=True, pools=("local",), cpus=cpus, cpus_free=cpus,
                    gpus=len(gpus), gpus_free=len(gpus), gpu_type=kind)  # fmt: skip
        return Cluster(nodes=(node,), pools=(PoolInfo("local", is_default=True),))

    async def find(self, tokens: Sequence[str]) -> Mapping[str, Handle]:
        """Allocations that are claimed, or whose node program is on its way."""
        on_their_way = set(tokens_by_pid().values())
        return {
            token: Handle(token, str(self.client.folder(token)))
            for token in tokens
            if token in on_their_way or self.client.claim(token) is not None
        }

    async def observe(self, handles: Sequence[Handle]) -> Mapping[str, Observed]:
        """State of all handles; the machine's processes are scanned only when one has ended."""
        seen: dict[str, Observed] = {}
        unclear: list[str] = []
        for handle in handles:
            answer = self.client.look(handle.token, None)
            if answer is None:
                unclear.append(handle.token)
            else:
                seen[handle.token] = answer
        if unclear:
            found = await asyncio.to_thread(tokens_by_pid)
            for token in unclear:
                seen[token] = self.client.look(token, found) or Observed(Life.PENDING)
        self.client.forget({handle.token for handle in handles})
        return seen

    async def cancel(self, handle: Handle, *, force: bool = False) -> None:
        """Ask the allocation to end, or kill all of its processes. Absent is fine."""
        await asyncio.to_thread(self.client.end, handle.token, force=force)

    async def list_all(self) -> Sequence[Stray]:
        """What any host of this user has started on this machine and has not ended."""
        return await asyncio.to_thread(strays.list_all)

    async def remove(self, stray: Stray, *, force: bool = False) -> None:
        """Ask its node program to end it, or kill all of its processes."""
        await asyncio.to_thread(strays.remove, stray, force=force)

    def logs(self, handle: Handle, *, follow: bool = False, tail: int = 0, after: Place | None = None) -> Log:
        """The task's output; with `follow`, what comes for as long as the allocation lives."""

        def lives() -> bool:
            answer = self.client.look(handle.token, None)
            return answer is not None and answer.life in (Life.PENDING, Life.RUNNING)

        path = self.client.folder(handle.token) / "child.log"
        return self._logs.read(path, tail, partial(until_dead, lives) if follow else None, after)
