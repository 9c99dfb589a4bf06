"""The Slurm backend on a real Slurm, with what its tests need around it."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.fakes.nvml import Driver
from tests.nodeprogram import node_program

from remuda.backends.base import Handle, Life, Observed, Request, TaskKey, make_token
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import Commands
from remuda.backends.slurm.render import SlurmSite
from remuda.base.errors import BackendUnreachable
from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, Resources, RestartRule, Role, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


class Bench:
    """One host's backend on one cluster, and shorthands for what tests do with it."""

    def __init__(self, root: Path, cluster: SlurmBed) -> None:
        self.root = root
        self.cluster = cluster
        self.uid = new_suffix(8)
        self.bin = root / "bin"
        self.bin.mkdir()
        self.site = SlurmSite(root / "workloads", node_program(root / "node"), root / "host.json", sys.executable)
        self.backend = self.fresh()

    def fresh(self, *, gone_after_s: float = 1.0, timeout_s: float = 30.0) -> SlurmBackend:
        """A backend as another host would make it; `bin` comes first in its PATH."""
        env = dict(self.cluster.env())
        env["PATH"] = f"{self.bin}:{env['PATH']}"
        client = SlurmClient(Commands(environ=env, timeout_s=timeout_s), gap_s=0.05)
        return SlurmBackend(self.site, client, gone_after_s=gone_after_s)

    def instead(self, command: str, script: str) -> None:
        """Put a shell script in the place of one of Slurm's commands; `$REAL` in it is the real one."""
        import shutil

        real = shutil.which(command) or command
        path = self.bin / command
        path.write_text(f"#!/bin/sh\nREAL={real}\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def again(self, command: str) -> None:
        """The real command is back."""
        (self.bin / command).unlink()

    def request(
        self,
        *argv: str,
        index: int = 0,
        count: int = 1,
        attempt: int = 1,
        place: dict[str, object] | None = None,
        resources: Resources | None = None,
        name: str = "w",
    ) -> Request:
        """Ask for a task that runs `argv` on the nodes without GPUs, if `place` says nothing else."""
        group = Group(
            name="script", role=Role.SCRIPT, count=count, command=Command(argv=argv or ("sleep", "3600")),
            restart=RestartRule(policy="never"), resources=resources or Resources(), kill_grace_s=60.0,
        )  # fmt: skip
        workload = Workload(
            name=name, kind=Kind.RUN, uid=self.uid, backend="slurm", groups=(group,),
            run_dir=str(self.site.workloads / name), place={"partition": "cpu"} | (place or {}),
        )  # fmt: skip
        key = TaskKey(name, "script", index)
        return Request(key, attempt, make_token(key, attempt, self.uid), workload, group)

    async def submit(self, *requests: Request, release: bool = True) -> list[Handle]:
        """Submit, and release what was accepted; a controller that gives no answer is asked again, as a host does."""
        deadline = time.monotonic() + 180
        while True:
            outcomes = await self.backend.submit([self.backend.render(request) for request in requests])
            if time.monotonic() > deadline or not any(isinstance(one, BackendUnreachable) for one in outcomes):
                break
        handles = []
        for outcome in outcomes:
            assert isinstance(outcome, Handle), outcome
            handles.append(outcome)
        if release:
            await self.backend.release(handles)
        return handles

    async def start(self, request: Request) -> Handle:
        """Submit one, and wait until it runs."""
        (handle,) = await self.submit(request)
        await self.until(handle, lambda seen: seen.life is Life.RUNNING)
        return handle

    async def look(self, handle: Handle) -> Observed:
        """What the backend says now."""
        return (await self.backend.observe([handle]))[handle.token]

    async def until(self, handle: Handle, wanted: Callable[[Observed], bool], limit_s: float = 180) -> Observed:
        """Wait for an answer."""
        deadline = time.monotonic() + limit_s
        seen: Observed | None = None
        while True:
            # A controller that stands still for a moment lets one look fail, as any other.
            with suppress(BackendUnreachable):
                seen = await self.look(handle)
                if wanted(seen):
                    return seen
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.1)

    async def lines(self, handle: Handle) -> list[str]:
        """What the task has printed so far."""
        return [line async for line in self.backend.logs(handle)]

    async def until_line(self, handle: Handle, text: str, limit_s: float = 180) -> None:
        """Wait until the task has printed that line: its node program reports sooner."""
        deadline = time.monotonic() + limit_s
        while text not in (lines := await self.lines(handle)):
            assert time.monotonic() < deadline, (text, lines)
            await asyncio.sleep(0.1)

    async def end(self, handle: Handle, limit_s: float = 180) -> Observed:
        """Wait until it has ended or is gone."""
        return await self.until(handle, lambda seen: seen.life in (Life.ENDED, Life.GONE), limit_s)

    def ids(self, name: str) -> list[str]:
        """Jobs of that name, asked without the backend."""
        return self.cluster.run("squeue", "-h", "-r", "-t", "all", f"--name={name}", "-o", "%i").stdout.split()


@pytest.fixture
def site(home: Home, slurm: SlurmBed) -> Home:
    """A home whose host talks to the cluster."""
    home.env |= {**slurm.env(), "REMUDA_SLURM_POLL_S": "0.5"}
    return home


@pytest.fixture
def bench(slurm: SlurmBed, tmp_path: Path) -> Bench:
    """On the cluster with accounting."""
    return Bench(tmp_path, slurm)


@pytest.fixture
def bare(slurm_bare: SlurmBed, tmp_path: Path) -> Bench:
    """On the cluster without accounting."""
    return Bench(tmp_path, slurm_bare)


@pytest.fixture(params=["accounting", "bare"])
def either(request: pytest.FixtureRequest) -> Bench:
    """On each of the two."""
    made: Bench = request.getfixturevalue("bench" if request.param == "accounting" else "bare")
    return made


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """Of four GPUs that every node has: they are this machine's. What records needs its environment, and nobody else.

    Tests that use it give `driver.environment` to the one command, so that hosts are forked as ever.
    """
    with Driver(tmp_path, 4) as driver:
        for number, gpu in enumerate(driver.gpus, 1):
            gpu.seed = number
        yield driver
