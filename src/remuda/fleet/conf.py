"""What the controller and the nodes of a fleet are, and what Slurm reads of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PORT, SLURMD_PORT = 8090, 8092
LEASE_S = 180.0


@dataclass(frozen=True)
class FleetConf:
    """One fleet, as its head says it to all nodes."""

    name: str
    """Slurm's ClusterName."""
    host: str
    """Short host name of the head; it need not resolve."""
    address: str
    """IP address of the head, as nodes reach it."""
    user: int
    """Number of the user that all daemons run as, on all machines."""
    port: int = PORT
    """Of slurmctld."""
    slurmd_port: int = SLURMD_PORT
    """Of slurmd, on all nodes."""
    lease_s: float = LEASE_S
    """How long work goes on that hears nothing of the head; 0: for ever."""


@dataclass(frozen=True)
class NodeConf:
    """One node, as it joins."""

    name: str
    address: str
    """IP address, as the head and the other nodes reach it."""
    cpus: int
    memory: int
    """MiB."""
    gpus: str = ""
    """`TYPE:COUNT` or `COUNT`; empty without a GPU."""
    devices: tuple[str, ...] = ()
    """Character devices of its GPUs; `/dev/nvidia0`, … where none is said."""


def slurm_conf(fleet: FleetConf) -> str:
    """What the head hands to nodes as their slurm.conf; the marks in it are filled in by `Node`."""
    raise NotImplementedError
