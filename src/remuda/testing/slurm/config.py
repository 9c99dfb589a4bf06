"""Every file that Slurm, munge and MariaDB read, rendered from a layout. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from remuda.fleet.conf import HARDWARE, cgroup_conf, places
from remuda.testing.slurm import pyxis
from remuda.testing.slurm.topology import NodeShape, Topology

if TYPE_CHECKING:
    from pathlib import Path

FIRST_PORT = 20_200
PORTS_EACH = 120
SLOTS = 40
CLUSTER = "bed"
Preempt = Literal["partition", "qos"]


class File(NamedTuple):
    """A file to write."""

    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class BedLayout:
    """What is chosen once for a bed, and kept in its `bed.json`."""

    root: Path
    slot: int
    """0 to `SLOTS - 1`; no two beds of a machine have the same. Ports, addresses and interface names follow from it."""
    host: str
    """Short host name of this machine, the head."""
    user: str
    topology: Topology
    accounting: bool = True
    isolated: bool = False
    preempt: Preempt = "partition"
    extra: tuple[str, ...] = ()
    """Lines `Key=Value` of slurm.conf that are added, or replace ours."""
    owner: str = ""
    """`pid start-time` of the process that it ends with; empty for a bed that stays until it is taken down."""

    @property
    def controller_port(self) -> int:
        """Of slurmctld."""
        return FIRST_PORT + self.slot * PORTS_EACH

    @property
    def database_port(self) -> int:
        """Of slurmdbd."""
        return self.controller_port + 1

    def node_port(self, index: int) -> int:
        """Of the slurmd of one node."""
        return self.controller_port + 10 + index

    @property
    def ports(self) -> list[int]:
        """All that must be free on this machine."""
        return [self.controller_port, self.database_port, *map(self.node_port, range(len(self.topology.nodes)))]

    @property
    def subnet(self) -> str:
        """First three numbers of the addresses of an isolated bed."""
        return f"10.214.{self.slot}"

    @property
    def head(self) -> str:
        """Address of the head, as nodes reach it."""
        return f"{self.subnet}.1" if self.isolated else "127.0.0.1"

    def address(self, index: int) -> str:
        """Address of one node, as the head reaches it."""
        return f"{self.subnet}.{11 + index}" if self.isolated else f"127.0.{1 + self.slot}.{11 + index}"

    @property
    def bridge(self) -> str:
        """Name of the bridge that an isolated bed's nodes hang on."""
        return f"rmsl{self.slot}"

    def cable(self, index: int) -> str:
        """Name of the head's end of one node's cable."""
        return f"rmsl{self.slot}n{index}"

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it; the directory is where it lies."""
        data = {**vars(self), "topology": asdict(self.topology), "extra": list(self.extra)}
        return {name: value for name, value in data.items() if name != "root"}

    @classmethod
    def from_json(cls, root: Path, data: dict[str, Any]) -> BedLayout:
        """Read it back."""
        return cls(
            root=root,
            **{**data, "topology": Topology.from_json(data["topology"]), "extra": tuple(data["extra"])},
        )


def files(layout: BedLayout) -> dict[str, File]:
    """All configuration files, by their names in the bed's directory."""
    rendered = {
        "slurm.conf": File(slurm_conf(layout)),
        "gres.conf": File(gres_conf(layout)),
        "cgroup.conf": File(cgroup_conf((22, 5))),
        "plugstack.conf": File(pyxis.plugstack(layout.root)),
        "hosts": File(hosts(layout)),
        "resolv.conf": File("# The hosts file knows every name that there is.\n"),
        "env": File(env_script(layout)),
    }
    if layout.accounting:
        rendered["slurmdbd.conf"] = File(slurmdbd_conf(layout), 0o600)
        rendered["my.cnf"] = File(my_cnf(layout))
    return rendered


def slurm_conf(layout: BedLayout) -> str:
    """`slurm.conf`; `layout.extra` wins over what stands here."""
    settings = {**_names(layout), **_hardware(), **_speed(), **_policy(layout), **_accounting(layout)}
    for line in layout.extra:
        key, _, value = line.partition("=")
        settings[key.strip()] = value.strip()
    lines = [f"{key}={value}" for key, value in settings.items()]
    lines += [_node(layout, index, node) for index, node in enumerate(layout.topology.nodes)]
    for partition in layout.topology.partitions:
        state = "" if "State=" in partition.options else " State=UP"
        lines.append(f"PartitionName={partition.name} Nodes={','.join(partition.nodes)}{state} {partition.options}")
    return "\n".join(lines) + "\n"


def _names(layout: BedLayout) -> dict[str, str]:
    root = layout.root
    return {
        "ClusterName": CLUSTER,
        "SlurmctldHost": f"{layout.host}({layout.head})",
        "SlurmctldPort": str(layout.controller_port),
        "SlurmUser": layout.user,
        "SlurmdUser": layout.user,
        # A requeued job waits until its credential has expired: two minutes by default.
        **places(root, munge_options=",cred_expire=5", spool="spool/%n"),
        "PlugStackConfig": f"{root}/plugstack.conf",
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{root}/log/jobcomp.txt",
    }


def _hardware() -> dict[str, str]:
    return {
        **HARDWARE,
        "SwitchType": "switch/none",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "JobAcctGatherParams": "OverMemoryKill",
        "DefMemPerCPU": "100",
    }


def _speed() -> dict[str, str]:
    scheduler = (
        "batch_sched_delay=0,sched_interval=2,sched_min_interval=0,bf_interval=1,bf_continue,bf_max_job_test=2000,"
        "default_queue_depth=2000,partition_job_depth=0,max_rpc_cnt=0"
    )
    return {
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": scheduler,
        "SlurmctldTimeout": "10",
        # Long enough for a daemon that gets no processor for a while; `crash` does not wait for it.
        "SlurmdTimeout": "30",
        "MessageTimeout": "10",
        "TCPTimeout": "5",
        "BatchStartTimeout": "30",
        "KillWait": "2",
        "CompleteWait": "0",
        "UnkillableStepTimeout": "60",
        "InactiveLimit": "0",
        "OverTimeLimit": "0",
        "WaitTime": "0",
    }


def _policy(layout: BedLayout) -> dict[str, str]:
    return {
        "PreemptType": "preempt/qos" if layout.preempt == "qos" else "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "JobRequeue": "1",
        "ReturnToService": "2",  # a node that a drill set down comes back as one that did not answer
        "MinJobAge": "300",
        "MaxArraySize": "10001",
        "MaxJobCount": "20000",
    }


def _accounting(layout: BedLayout) -> dict[str, str]:
    if not layout.accounting:
        return {"AccountingStorageType": "accounting_storage/none"}
    types = sorted({node.gpu for node in layout.topology.nodes if node.gpu})
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(layout.database_port),
        # Where to find munge when slurmdbd is asked: AuthInfo does not count there.
        "AccountingStoragePass": f"{layout.root}/munge.sock",
        "AccountingStorageTRES": ",".join(["gres/gpu", *(f"gres/gpu:{name}" for name in types)]),
        "AccountingStorageEnforce": "associations,limits,qos",
        "AccountingStoreFlags": "job_comment,job_env,job_script",
        "PriorityType": "priority/multifactor",
        "PriorityWeightQOS": "1000",
        "PriorityCalcPeriod": "1",
    }


def _node(layout: BedLayout, index: int, node: NodeShape) -> str:
    words = [
        f"NodeName={node.name}",
        f"NodeHostname={node.name if layout.isolated else layout.host}",
        f"NodeAddr={layout.address(index)}",
        f"Port={layout.node_port(index)}",
        f"CPUs={node.cpus} RealMemory={node.memory_mib} TmpDisk=0",
    ]
    if node.gpus:
        words.append(f"Gres=gpu:{node.gpu}:{node.gpus}")
    if node.features:
        words.append(f"Feature={','.join(node.features)}")
    return " ".join(words)


def device(layout: BedLayout, node: str) -> Path:
    """Folder of the fake GPU devices `nvidia0`, `nvidia1`, … of one node."""
    return layout.root / "dev" / node


def gres_conf(layout: BedLayout) -> str:
    """`gres.conf`: a GPU without a file would be dropped, and CUDA_VISIBLE_DEVICES not set."""
    lines = ["AutoDetect=off"]
    for node in layout.topology.nodes:
        if node.gpus:
            last = f"[0-{node.gpus - 1}]" if node.gpus > 1 else "0"
            file = f"{device(layout, node.name)}/nvidia{last}"
            lines.append(f"NodeName={node.name} Name=gpu Type={node.gpu} File={file}")
    return "\n".join(lines) + "\n"


def hosts(layout: BedLayout) -> str:
    """The hosts file of isolated nodes: they find the head and each other by name."""
    lines = ["127.0.0.1 localhost", f"{layout.head} {layout.host}"]
    lines += [f"{layout.address(index)} {name}" for index, name in enumerate(layout.topology.names)]
    return "\n".join(lines) + "\n"


def env_script(layout: BedLayout) -> str:
    """What a shell sources to talk to this bed."""
    return (
        f"export SLURM_CONF={layout.root}/slurm.conf\n"
        'case ":$PATH:" in *:/usr/sbin:*) ;; *) export PATH="$PATH:/usr/sbin" ;; esac\n'
    )


def slurmdbd_conf(layout: BedLayout) -> str:
    """`slurmdbd.conf`; it lies beside slurm.conf, where slurmdbd looks."""
    settings = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={layout.root}/munge.sock",
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(layout.database_port),
        "SlurmUser": layout.user,
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": layout.user,
        "StorageLoc": "slurm_acct",
        "LogFile": f"{layout.root}/log/slurmdbd.log",
        "PidFile": f"{layout.root}/run/slurmdbd.own",
        "DebugLevel": "info",
    }
    return "\n".join(f"{key}={value}" for key, value in settings.items()) + "\n"


def my_cnf(layout: BedLayout) -> str:
    """A small MariaDB on a unix socket that does not mind losing its data with the machine."""
    root = layout.root
    settings = {
        "datadir": f"{root}/db",
        "socket": f"{root}/mysql.sock",
        "pid-file": f"{root}/run/mariadbd.own",
        "log-error": f"{root}/log/mariadbd.log",
        # A server that starts removes the temporary tables of all others in the same directory.
        "tmpdir": f"{root}/run",
        "performance_schema": "0",
        "max_connections": "30",
        "key_buffer_size": "1M",
        "aria_pagecache_buffer_size": "8M",
        "aria_log_file_size": "8M",
        "innodb_buffer_pool_size": "64M",
        "innodb_log_file_size": "8M",
        "innodb_data_file_path": "ibdata1:4M:autoextend",
        "innodb_temp_data_file_path": "ibtmp1:1M:autoextend",
        "innodb_flush_method": "nosync",
        "innodb_flush_log_at_trx_commit": "0",
        "innodb_doublewrite": "0",
        "innodb_lock_wait_timeout": "900",
        "sync_frm": "0",
    }
    flags = ["skip-networking", "skip-name-resolve", "skip-log-bin"]
    return "\n".join(["[mysqld]", *flags, *(f"{key}={value}" for key, value in settings.items())]) + "\n"
