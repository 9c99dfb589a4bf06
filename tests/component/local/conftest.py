"""The local backend with real processes; whatever a test leaves is killed by its token."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.nodeprogram import node_program

from remuda.backends.base import Handle, Life, Observed, Request, TaskKey, make_token
from remuda.backends.local.backend import LocalBackend
from remuda.backends.local.processes import tokens_by_pid
from remuda.backends.local.render import LocalSite
from remuda.base.ids import new_suffix
from remuda.plan.model import Command, Group, Kind, RestartRule, Role, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class LocalBed:
    """One machine's backend and its run directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uid = new_suffix(8)
        self.workloads = root / "workloads"
        self.workloads.mkdir()
        self.site = LocalSite(
            self.workloads, node_program(root / "node"), sys.executable, root / "host.json", root / "ports"
        )
        self.backend = LocalBackend(self.site)

    def again(self) -> LocalBackend:
        """The backend as a fresh host would make it."""
        self.backend = LocalBackend(self.site)
        return self.backend

    def request(self, *argv: str, index: int = 0, env: dict[str, str] | None = None) -> Request:
        group = Group(
            name="script", role=Role.SCRIPT, count=1, command=Command(argv=argv, env=env or {}),
            restart=RestartRule(policy="never"), kill_grace_s=2.0,
        )  # fmt: skip
        plan = Workload(
            name="w", kind=Kind.RUN, uid=self.uid, backend="local", groups=(group,), run_dir=str(self.workloads / "w")
        )
        key = TaskKey("w", "script", index)
        return Request(key, 1, make_token(key, 1, self.uid), plan, group)

    def folder(self, token: str) -> Path:
        return self.backend.client.folder(token)

    async def start(self, *argv: str, index: int = 0, env: dict[str, str] | None = None) -> Handle:
        """Submit, and wait until it runs."""
        request = self.request(*argv, index=index, env=env)
        (outcome,) = await self.backend.submit([self.backend.render(request)])
        assert isinstance(outcome, Handle), outcome
        return outcome

    async def look(self, handle: Handle) -> Observed:
        return (await self.backend.observe([handle]))[handle.token]

    async def until(self, handle: Handle, wanted: Callable[[Observed], object], limit_s: float = 180) -> Observed:
        import asyncio

        deadline = time.monotonic() + limit_s
        while True:
            seen = await self.look(handle)
            if wanted(seen):
                return seen
            assert time.monotonic() < deadline, seen
            await asyncio.sleep(0.01)

    async def until_text(self, handle: Handle, text: str) -> str:
        """Wait until the task has printed `text`; all that it printed."""
        path = self.folder(handle.token) / "child.log"
        await self.until(handle, lambda _: path.exists() and text in path.read_text())
        return path.read_text()

    def pids(self, token: str) -> set[int]:
        return {pid for pid, carried in tokens_by_pid().items() if carried == token}

    def close(self) -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            mine = [pid for pid, token in tokens_by_pid().items() if token.endswith(f".{self.uid}")]
            if not mine:
                return
            for pid in mine:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def is_running(seen: Observed) -> bool:
    return seen.life is Life.RUNNING


def is_over(seen: Observed) -> bool:
    return seen.life in (Life.ENDED, Life.GONE)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[LocalBed]:
    one = LocalBed(tmp_path)
    yield one
    one.close()
