"""The two sides of a fleet: `Controller` on its head, `Node` on a machine that joined.

Daemons are detached: they outlive whoever started them, are found again by their pid files, and `tend`, called every
few seconds, starts again what was killed. Nothing here sleeps but `start` and `stop`, which wait for what they did:
call them in a thread. One directory has one side of one fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.fleet.conf import FleetConf, NodeConf
    from remuda.fleet.tree import Tree


class Controller:
    """munged and slurmctld."""

    def __init__(self, directory: Path, conf: FleetConf, tree: Tree) -> None: ...

    def start(self) -> None:
        """Start what does not run, and wait until slurmctld answers; fine when all runs.

        Raises:
            Unavailable: its port is in use; says by whom.
            RemudaError: a daemon ended; the message has the end of its log.
        """
        raise NotImplementedError

    def alive(self) -> bool:
        """Whether both daemons live; asks nobody."""
        raise NotImplementedError

    def tend(self) -> list[str]:
        """Start again what was killed, resume nodes that Slurm drained for it; what was done, a sentence each."""
        raise NotImplementedError

    def stop(self, *, drain: bool = False) -> None:
        """End both daemons; jobs go on. With `drain` nodes get no more work first."""
        raise NotImplementedError

    @property
    def munge_key(self) -> bytes:
        """Made once."""
        raise NotImplementedError

    @property
    def slurm_conf(self) -> str:
        """What nodes are given."""
        raise NotImplementedError


class Node:
    """munged and `slurmd -Z`. `slurm_conf` and `munge_key` are the head's."""

    def __init__(
        self, directory: Path, conf: FleetConf, node: NodeConf, *, munge_key: bytes, slurm_conf: str, tree: Tree
    ) -> None: ...

    def start(self) -> None:
        """Start what does not run; fine when all runs. With another address or other GPUs slurmd begins anew.

        Raises:
            RemudaError: a daemon ended; the message has the end of its log.
        """
        raise NotImplementedError

    def alive(self) -> bool:
        """Whether both daemons live; asks nobody."""
        raise NotImplementedError

    def tend(self) -> list[str]:
        """Start again what was killed; what was done, a sentence each."""
        raise NotImplementedError

    def stop(self) -> None:
        """End both daemons; what runs here goes on."""
        raise NotImplementedError
