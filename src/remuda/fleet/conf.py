"""What the controller and the nodes of a fleet are, and what Slurm reads of it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.specs.places import FLEET

if TYPE_CHECKING:
    from pathlib import Path

PORT, SLURMD_PORT = 8090, 8092
LEASE_S = 180.0
MOST_NODES: Final = 1000
DIRECTORY, PLUGINS, SCONTROL = "@DIRECTORY@", "#@PLUGINS@", "@SCONTROL@"
"""Marks in what the head hands out: the reader's own directory, its line with the folder of plugins, its scontrol."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_RESERVED = frozenset({"all", "default", "localhost"})
_GPUS = re.compile(r"(?:([A-Za-z][A-Za-z0-9_.-]*):)?([1-9][0-9]{0,2})")


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
    """One node, as it joins.

    Raises:
        InputError: its name cannot be a node's, or its GPUs cannot be read.
    """

    name: str
    address: str
    """IP address, as the head and the other nodes reach it."""
    cpus: int
    memory: int
    """MiB."""
    gpus: str = ""
    """`TYPE:COUNT` or `COUNT`; empty without a GPU."""
    devices: tuple[str, ...] = ()
    """Character devices of its GPUs, in their order; `/dev/nvidia0`, … where none is said."""

    def __post_init__(self) -> None:
        if len(self.name) > 63 or not _NAME.fullmatch(self.name) or self.name.lower() in _RESERVED:
            raise InputError(
                f"{self.name!r} cannot be the name of a node",
                hint="letters, digits, `-`, `_` and `.`, at most 63, as in gpu-box-1",
            )
        _, count = gpus_of(self.gpus)
        if self.devices and len(self.devices) != count:
            raise InputError(f"{self.name} has {self.gpus or 'no GPU'}, and {len(self.devices)} devices are named")

    @property
    def files(self) -> tuple[str, ...]:
        """Devices of its GPUs."""
        return self.devices or tuple(f"/dev/nvidia{number}" for number in range(gpus_of(self.gpus)[1]))


def gpus_of(text: str) -> tuple[str, int]:
    """Type (lower case, may be empty) and number of `TYPE:COUNT` or `COUNT`; nothing is no GPU.

    Raises:
        InputError: it is neither.
    """
    if not text:
        return "", 0
    if not (found := _GPUS.fullmatch(text)):
        raise InputError(f"{text!r} says no GPUs", hint="TYPE:COUNT or COUNT, as in h100:2")
    return (found[1] or "").lower(), int(found[2])


def slurmd_timeout_s(lease_s: float) -> int:
    """After which silence Slurm gives a node up: later than the work on it ends by itself."""
    return round(1.5 * (lease_s or LEASE_S) + 30)


def slurm_conf(fleet: FleetConf) -> str:
    """What controller and nodes read as slurm.conf, once `placed` has filled in the marks."""
    settings = {
        "ClusterName": fleet.name,
        "SlurmctldHost": f"{fleet.host}({fleet.address})",
        "SlurmctldPort": str(fleet.port),
        "SlurmdPort": str(fleet.slurmd_port),
        "SlurmUser": str(fleet.user),
        "SlurmdUser": str(fleet.user),
        **places(DIRECTORY, munge_options="", spool="spool"),
        **HARDWARE,
        "JobAcctGatherType": "jobacct_gather/none",
        # Bookkeeping, so that a job that names no memory does not get all of a node's; nothing is killed for it.
        "DefMemPerCPU": "512",
        # Nodes join: any number, in no file, and with files of their own.
        "MaxNodeCount": str(MOST_NODES),
        "TreeWidth": "65533",
        "DebugFlags": "NO_CONF_HASH",
        "CommunicationParameters": "NoAddrCache",  # a laptop gets another address
        "ReturnToService": "2",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1,bf_continue",
        "SlurmdTimeout": str(slurmd_timeout_s(fleet.lease_s)),
        "MaxArraySize": "10001",
        "MaxJobCount": "20000",
        "UnkillableStepTimeout": "60",
    }
    lines = [f"{key}={value}" for key, value in settings.items()]
    if fleet.lease_s:
        lines.append(f"#RemudaLease={fleet.lease_s:g} {SCONTROL}")  # for the program beside each job, `node/lease.py`
    return "\n".join([*lines, PLUGINS, f"PartitionName={FLEET} Nodes=ALL Default=YES State=UP MaxTime=INFINITE\n"])


def places(root: Path | str, *, munge_options: str, spool: str) -> dict[str, str]:
    """Where the daemons of one directory find each other and put what they keep."""
    return {
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        "AuthInfo": f"socket={root}/munge.sock{munge_options}",
        "StateSaveLocation": f"{root}/state",
        # The environment of jobs with --export=NONE comes from a file there; a login shell for each is slow.
        "GetEnvTimeout": "0",
        "SlurmdSpoolDir": f"{root}/{spool}",
        "TmpFS": f"{root}/{spool}",  # of PMIx, whose directories have the same name on each node
        "SlurmctldPidFile": f"{root}/run/slurmctld.own",
        "SlurmdPidFile": f"{root}/run/slurmd.%n.own",
        "SlurmctldLogFile": f"{root}/log/slurmctld.log",
        "SlurmdLogFile": f"{root}/log/slurmd.%n.log",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "MailProg": "/bin/true",
    }


HARDWARE: Final = {
    "MpiDefault": "none",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "PropagateResourceLimits": "NONE",
    # What a node says of itself counts: memory that a kernel update takes away drains nothing.
    "SlurmdParameters": "config_overrides",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "GresTypes": "gpu",
}
"""How nodes run jobs and share what they have; needs no root."""


def placed(text: str, directory: Path, plugins: str, scontrol: str) -> str:
    """A slurm.conf of the head as it is read in this directory, with what this machine has of Slurm."""
    own = f"PluginDir={plugins}" if plugins else ""
    return text.replace(DIRECTORY, str(directory)).replace(PLUGINS, own).replace(SCONTROL, scontrol)


def gres_conf(node: NodeConf | None = None) -> str:
    """`gres.conf` of a node, or of the controller: a GPU without a file would be dropped, and nothing bound to it."""
    lines = ["AutoDetect=off"]
    if node is not None:
        kind, _ = gpus_of(node.gpus)
        lines += [f"Name=gpu {f'Type={kind} ' if kind else ''}File={file}" for file in node.files]
    return "\n".join(lines) + "\n"


def node_words(node: NodeConf) -> str:
    """What `slurmd -Z --conf` is told of a node."""
    kind, count = gpus_of(node.gpus)
    words = [f"NodeAddr={node.address}", f"CPUs={node.cpus}", f"RealMemory={node.memory}"]
    if count:
        words.append(f"Gres=gpu:{kind}:{count}" if kind else f"Gres=gpu:{count}")
    return " ".join([*words, f"Feature={kind}"] if kind else words)


def cgroup_conf(version: tuple[int, ...]) -> str:
    """`cgroup.conf`: slurmd loads a plugin even where nothing uses one; that of v1 does nothing until it is asked."""
    return "CgroupPlugin=disabled\n" if version >= (23, 11) else "CgroupPlugin=cgroup/v1\n"


def differs(record: str, node: NodeConf) -> str:
    """What Slurm's record (`scontrol show node -o`) has otherwise: `gpus`, `size`, `address`, `silent`, or nothing."""
    said = dict(word.partition("=")[::2] for word in record.split())
    kind, count = gpus_of(node.gpus)
    gres = f"gpu:{kind}:{count}" if kind else f"gpu:{count}"
    if (said.get("Gres", "(null)").partition("(")[0] or "") != (gres if count else ""):
        return "gpus"
    if (said.get("CPUTot"), said.get("RealMemory")) != (str(node.cpus), str(node.memory)):
        return "size"
    if said.get("NodeAddr") != node.address:
        return "address"
    state = said.get("State", "")
    return "silent" if state.startswith("DOWN") and ("*" in state or "NOT_RESPONDING" in state) else ""
