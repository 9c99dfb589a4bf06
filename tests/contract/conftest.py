"""The backends that the contract suite runs on. To add one, add a class with `make` and `sabotage`."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import pytest
from tests.nodeprogram import node_program

from remuda.backends.base import Backend, Handle, Rendered, Request, TaskKey, make_token
from remuda.backends.kubernetes.backend import KubernetesBackend
from remuda.backends.kubernetes.render import KubernetesSite
from remuda.backends.local.backend import LocalBackend
from remuda.backends.local.processes import tokens_by_pid
from remuda.backends.local.render import LocalSite
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import Commands
from remuda.backends.slurm.render import SlurmSite
from remuda.base.ids import new_suffix
from remuda.node.zipapp import deflated
from remuda.plan.model import Command, Group, Kind, Resources, RestartRule, Role, Workload
from remuda.testing.kube import KubeBed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from remuda.testing.slurm import SlurmBed


class Bed(Protocol):
    """One backend with what the suite needs around it."""

    root: Path
    """State directory."""

    def make(self) -> Backend:
        """A backend as a fresh host would make it: it knows nothing of what another instance did."""
        ...

    def request(self, *argv: str, attempt: int = 1, name: str = "w", uid: str = "", index: int = 0) -> Request:
        """Ask for one allocation that runs `argv`."""
        ...

    def living(self) -> set[str]:
        """Tokens of which any process lives, found without the backend."""
        ...

    async def has_gone(self, token: str) -> bool:
        """Whether nothing of an allocation lives that its backend calls over."""
        ...


class LocalBed:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.uid = new_suffix(8)
        self.made: list[LocalBackend] = []
        (root / "workloads").mkdir()
        self.program = node_program(root / "node")

    def make(self) -> Backend:
        site = LocalSite(
            workloads=self.root / "workloads",
            node_program=self.program,
            python=sys.executable,
            host_file=self.root / "host.json",
            port_locks=self.root / "ports",
        )
        made = LocalBackend(site)
        self.made.append(made)
        return made

    def request(self, *argv: str, attempt: int = 1, name: str = "w", uid: str = "", index: int = 0) -> Request:
        uid = uid or self.uid
        group = Group(
            name="script",
            role=Role.SCRIPT,
            count=1,
            command=Command(argv=argv, env={"GREETING": "$(touch /tmp/x) `id` \"quoted\" 'it'"}),
            restart=RestartRule(policy="never"),
            resources=Resources(),
            kill_grace_s=60.0,
        )
        run_dir = str(self.root / "workloads" / name)
        workload = Workload(name=name, kind=Kind.RUN, uid=uid, backend="local", groups=(group,), run_dir=run_dir)
        key = TaskKey(name, "script", index)
        return Request(key, attempt, make_token(key, attempt, uid), workload, group)

    def living(self) -> set[str]:
        return {token for token in tokens_by_pid().values() if token.endswith(self.uid)}

    async def has_gone(self, token: str) -> bool:
        return token not in self.living()


class ReleasingBackend(SlurmBackend):
    """Releases what it submitted, as a host does when it has recorded it."""

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        outcomes = await super().submit(rendered)
        await self.release([outcome for outcome in outcomes if isinstance(outcome, Handle)])
        return outcomes


class SlurmContractBed:
    """A real Slurm."""

    def __init__(self, root: Path, cluster: SlurmBed, partition: str) -> None:
        self.root = root
        self.cluster = cluster
        self.partition = partition
        self.uid = new_suffix(8)
        (root / "workloads").mkdir()
        self.program = node_program(root / "node")

    def make(self) -> Backend:
        site = SlurmSite(
            workloads=self.root / "workloads",
            node_program=self.program,
            host_file=self.root / "host.json",
            python=sys.executable,
        )
        client = SlurmClient(Commands(environ=self.cluster.env()), gap_s=0.05)
        return ReleasingBackend(site, client, gone_after_s=1.0)

    def request(self, *argv: str, attempt: int = 1, name: str = "w", uid: str = "", index: int = 0) -> Request:
        uid = uid or self.uid
        group = Group(
            name="script",
            role=Role.SCRIPT,
            count=1,
            command=Command(argv=argv, env={"GREETING": "$(touch /tmp/x) `id` \"quoted\" 'it'"}),
            restart=RestartRule(policy="never"),
            resources=Resources(),
            kill_grace_s=60.0,
        )
        run_dir = str(self.root / "workloads" / name)
        place: dict[str, object] = {"partition": self.partition}
        workload = Workload(
            name=name, kind=Kind.RUN, uid=uid, backend="slurm", groups=(group,), run_dir=run_dir, place=place
        )
        key = TaskKey(name, "script", index)
        return Request(key, attempt, make_token(key, attempt, uid), workload, group)

    def living(self) -> set[str]:
        return {token for token in tokens_by_pid().values() if token.endswith(self.uid)}

    async def has_gone(self, token: str) -> bool:
        # Slurm waits for what is below its own process: what lost its parent to the same kill may still be ending.
        return await has_gone_soon(self, token)


class ReleasingJobs(KubernetesBackend):
    """Releases what it made, likewise."""

    async def submit(self, rendered: Sequence[Rendered]) -> Sequence[Handle | Exception]:
        outcomes = await super().submit(rendered)
        await self.release([outcome for outcome in outcomes if isinstance(outcome, Handle)])
        return outcomes


class KubernetesBed:
    """A stand-in of a cluster."""

    def __init__(self, root: Path, cluster: KubeBed) -> None:
        self.root = root
        self.cluster = cluster
        self.uid = new_suffix(8)
        self.made: list[KubernetesBackend] = []
        (root / "workloads").mkdir()

    def make(self) -> Backend:
        site = KubernetesSite(self.root / "workloads", self.root / "host.json", deflated, "user@here")
        made = ReleasingJobs(site, poll_s=0.2, hurry_s=0.1, environ=self.cluster.env())
        self.made.append(made)
        return made

    def request(self, *argv: str, attempt: int = 1, name: str = "w", uid: str = "", index: int = 0) -> Request:
        uid = uid or self.uid
        group = Group(
            name="script",
            role=Role.SCRIPT,
            count=1,
            command=Command(argv=argv, env={"GREETING": "$(touch /tmp/x) `id` \"quoted\" 'it'"}, image="reg/t:1"),
            restart=RestartRule(policy="never"),
            resources=Resources(),
            kill_grace_s=60.0,
        )
        run_dir = str(self.root / "workloads" / name)
        workload = Workload(name=name, kind=Kind.RUN, uid=uid, backend="kubernetes", groups=(group,), run_dir=run_dir)
        key = TaskKey(name, "script", index)
        return Request(key, attempt, make_token(key, attempt, uid), workload, group)

    def living(self) -> set[str]:
        return {token for token in tokens_by_pid().values() if token.endswith(self.uid)}

    async def has_gone(self, token: str) -> bool:
        # A container that is killed closes its output, by which its end is seen; only then the kernel kills the rest.
        return await has_gone_soon(self, token)


async def has_gone_soon(bed: Bed, token: str) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while token in bed.living():
                await asyncio.sleep(0.05)
    return token not in bed.living()


@pytest.fixture(params=["local", "slurm", "slurm-bare", "fleet", "kubernetes"])
async def bed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bed]:
    if request.param == "kubernetes":
        with KubeBed(tmp_path / "kube") as jobs:
            here = KubernetesBed(tmp_path, jobs)
            yield here
            for made in here.made:
                await made.close()
        return
    if request.param != "local":
        cluster = request.getfixturevalue(request.param.replace("-", "_"))
        yield SlurmContractBed(tmp_path, cluster, "fleet" if request.param == "fleet" else "cpu")
        return
    one = LocalBed(tmp_path)
    yield one
    backend = one.make()
    for token in one.living():
        await backend.cancel(Handle(token), force=True)
    for pid in [pid for backend_ in one.made for pid in backend_.client.spawned.values()]:
        # A host reaps what it started; here the test's process is all hosts at once.
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
