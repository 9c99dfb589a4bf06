"""Where a soak runs: this machine, or the cluster of the tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tests.conftest import until
from tests.faults.slurm_jobs import BACKEND
from tests.soak.victims import Part

if TYPE_CHECKING:
    import random

    from tests.conftest import Home

    from remuda.testing.slurm import SlurmBed


class Place(Protocol):
    """What differs between places."""

    name: str
    drill_every_s: float
    """0: nothing but processes is broken here."""

    def swarm(self) -> dict[str, Any]:
        """Fields of the swarm's document."""
        ...

    def run(self) -> tuple[str, ...]:
        """Flags of `remuda run`."""
        ...

    def job(self) -> tuple[str, ...]:
        """Flags of `remuda job submit`."""
        ...

    def drill(self, chance: random.Random) -> tuple[str, list[Part]]:
        """Crash a node; its name, and the allocations that were seen on it."""
        ...

    def mend(self) -> None:
        """Undo all drills."""
        ...

    def left(self) -> list[str]:
        """What the scheduler still has."""
        ...


@dataclass
class ThisMachine:
    """Processes of this machine."""

    name: str = "this machine"
    drill_every_s: float = 0.0

    def swarm(self) -> dict[str, Any]:
        return {}

    def run(self) -> tuple[str, ...]:
        return ("--backend", "local")

    def job(self) -> tuple[str, ...]:
        return ()

    def drill(self, chance: random.Random) -> tuple[str, list[Part]]:
        raise NotImplementedError

    def mend(self) -> None:
        pass

    def left(self) -> list[str]:
        return []


@dataclass
class Cluster:
    """Jobs of the real cluster of the tests; now and then a node crashes and comes back."""

    home: Home
    bed: SlurmBed
    name: str = "Slurm"
    drill_every_s: float = 40.0
    _broken: list[str] = field(default_factory=list)

    def swarm(self) -> dict[str, Any]:
        return {"backend": BACKEND, "gpus_per_replica": 1, "cpus_per_task": 1}

    def run(self) -> tuple[str, ...]:
        return ("--backend", "slurm", "--partition", "cpu", "--mem", "50MB")

    def job(self) -> tuple[str, ...]:
        return ("--cpus", "1", "--mem", "200MB")

    def drill(self, chance: random.Random) -> tuple[str, list[Part]]:
        self.mend()
        node = chance.choice(self.bed.node_names)
        hit = [
            Part(view["name"], task["task"], task["attempt"])
            for view in self.home.client.get("/workloads")
            for task in view["tasks"]
            if task["node"] == node and task["phase"] not in ("done", "failed", "stopped")
        ]
        self.bed.crash(node)
        self._broken.append(node)
        return node, hit

    def mend(self) -> None:
        while self._broken:
            self.bed.start(self._broken.pop())

    def left(self) -> list[str]:
        until(lambda: not self._queue(), "the queue is empty")
        return self._queue()

    def _queue(self) -> list[str]:
        return self.bed.run("squeue", "-h", "-r", "-t", "PD,R,CG", "-o", "%j").stdout.split()
