"""What a bed looks like from outside: nodes, partitions, qualities of service, accounts. Pure data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_NODES = 100


@dataclass(frozen=True)
class NodeShape:
    """One node, as it claims to be; Slurm is told to believe it."""

    name: str
    gpu: str = ""
    """Type of its fake GPUs, such as `a100`."""
    gpus: int = 0
    cpus: int = 16
    memory_mib: int = 64_000
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Partition:
    """One partition; `options` are words of slurm.conf's partition line."""

    name: str
    nodes: tuple[str, ...]
    options: str = ""


@dataclass(frozen=True)
class Qos:
    """One quality of service (with accounting only); `options` are words of `sacctmgr add qos`."""

    name: str
    options: str = ""


@dataclass(frozen=True)
class Topology:
    """A whole cluster."""

    nodes: tuple[NodeShape, ...]
    partitions: tuple[Partition, ...]
    qos: tuple[Qos, ...] = ()
    accounts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= len(self.nodes) <= MOST_NODES:
            raise InputError(f"a bed has 1 to {MOST_NODES} nodes, not {len(self.nodes)}")
        names = Counter(node.name for node in self.nodes)
        if double := [name for name, count in names.items() if count > 1]:
            raise InputError(f"two nodes are called {double[0]!r}")
        for partition in self.partitions:
            if unknown := sorted(set(partition.nodes) - names.keys()):
                raise InputError(
                    f"partition {partition.name!r} names a node {unknown[0]!r} that does not exist",
                    hint=f"known: {', '.join(names)}",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in order; a node's place here gives its address and port."""
        return tuple(node.name for node in self.nodes)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Topology:
        """Read what `dataclasses.asdict` makes of one.

        Raises:
            InputError: a word that no node, partition or quality of service has, or a name that does not exist.
        """
        try:
            return cls(
                nodes=tuple(
                    NodeShape(**{**node, "features": tuple(node.get("features", ()))}) for node in data["nodes"]
                ),
                partitions=tuple(Partition(**{**part, "nodes": tuple(part["nodes"])}) for part in data["partitions"]),
                qos=tuple(Qos(**qos) for qos in data.get("qos", ())),
                accounts=tuple(data.get("accounts", ())),
            )
        except (KeyError, TypeError) as error:
            raise InputError(f"the topology cannot be read: {error}") from error


_A100, _L40S, _CPU = ("a100-1", "a100-2"), ("l40s-1", "l40s-2"), ("cpu-1", "cpu-2")
GRACE_S = 8
"""How long a preempted job has between SIGTERM and SIGKILL."""

DEFAULT = Topology(
    nodes=(
        *(NodeShape(name, "a100", 4, features=("a100", "nvlink")) for name in _A100),
        *(NodeShape(name, "l40s", 2, features=("l40s",)) for name in _L40S),
        *(NodeShape(name, features=("cpu",)) for name in _CPU),
    ),
    partitions=(
        Partition("gpu-a100", _A100, "Default=YES PriorityTier=10 PreemptMode=OFF"),
        Partition("gpu-l40s", _L40S, "PriorityTier=10 PreemptMode=OFF"),
        Partition("cpu", _CPU, "PriorityTier=10 PreemptMode=OFF"),
        Partition("spot", _A100 + _L40S, f"PriorityTier=1 PreemptMode=REQUEUE GraceTime={GRACE_S}"),
        Partition("spotc", _A100 + _L40S, f"PriorityTier=1 PreemptMode=CANCEL GraceTime={GRACE_S}"),
        Partition("short", _A100 + _L40S + _CPU, "PriorityTier=10 PreemptMode=OFF MaxTime=1"),
        Partition("drained", _CPU, "State=DRAIN"),
        Partition("down", _CPU, "State=DOWN"),
    ),
    qos=(
        Qos("high", "Priority=100 Preempt=normal"),
        Qos("limited", "Priority=10 MaxJobsPerUser=2 MaxSubmitJobsPerUser=4 Flags=DenyOnLimit"),
    ),
    accounts=("inference", "research"),
)
"""Two nodes of four a100, two of two l40s, two without GPUs.

Partitions: `gpu-a100` (the default one), `gpu-l40s`, `cpu`; `spot` and `spotc` lie below the GPU partitions and give
way (requeued, cancelled); `short` ends jobs after a minute; `drained` refuses jobs; `down` takes them and starts none.
"""


def cpu_farm(nodes: int, cpus: int = 16) -> Topology:
    """`nodes` equal nodes `n001`, `n002`, … without GPUs, in one partition `cpu`."""
    names = tuple(f"n{number:03}" for number in range(1, nodes + 1))
    return Topology(
        tuple(NodeShape(name, cpus=cpus, features=("cpu",)) for name in names),
        (Partition("cpu", names, "Default=YES"),),
        accounts=("inference",),
    )
