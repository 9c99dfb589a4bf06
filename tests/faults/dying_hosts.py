"""Hosts that are killed where they are told, here or on the real cluster of the tests: the side of the test."""

from __future__ import annotations

import select
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import Home, until
from tests.faults.slurm_runs import Runs
from tests.warm import forked

from remuda.base.errors import RemudaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.testing.slurm import SlurmBed

LIMIT_S = 240


class DyingHosts:
    """Hosts of one home that die at the step they are told."""

    def __init__(self, home: Home, backend: str = "slurm") -> None:
        self.home = home
        self.log = (home.root / "crash.log").open("w")
        self.program = forked.program(
            "tests.faults.crashing_host", [backend], env={**home.env, "REMUDA_SLURM_POLL_S": "0.3"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )  # fmt: skip

    def run(self, step: int | str) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(f"{step}\n")
        self.program.stdin.flush()
        until(lambda: self.is_dead() or self.home.client.is_up(), "a host", LIMIT_S)

    def is_dead(self) -> bool:
        """Whether it has said where it died, and nobody has read it yet."""
        assert self.program.stdout is not None
        told = select.poll()  # a busy worker has descriptors that `select` cannot name
        told.register(self.program.stdout.fileno(), select.POLLIN)
        return bool(told.poll(0))

    def death(self) -> str:
        """Where it died; it is stopped first if it lives."""
        assert self.program.stdout is not None
        until(self._has_ended, "the host has ended", LIMIT_S)
        return self.program.stdout.readline().strip()

    def _has_ended(self) -> bool:
        if not self.is_dead():
            with suppress(RemudaError):  # of one that is ending, or that answers too late: it is asked again
                self.home.client.post("/host/stop")
        return self.is_dead()

    def close(self) -> None:
        with suppress(RemudaError, ProcessLookupError):  # it may end meanwhile
            self.home.kill_host()
        self.program.kill()
        self.program.communicate()
        self.log.close()
        print((self.home.root / "crash.log").read_text()[-3000:])  # shown when the test fails


@contextmanager
def several(slurm: SlurmBed, count: int) -> Iterator[list[tuple[Runs, DyingHosts]]]:
    """Several state directories on one cluster: their hosts know nothing of each other."""
    homes = [Home(Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))) for _ in range(count)]
    made = [(Runs(home, slurm), DyingHosts(home)) for home in homes]
    try:
        yield made
    finally:
        for (_, hosts), home in zip(made, homes, strict=True):
            hosts.close()
            home.close()
