"""What `remuda init cluster` writes down: what Slurm and this machine say of the cluster, and what the user adds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.backends.slurm.check import listed, user
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.render import duration
from remuda.base.disk.files import write_atomic
from remuda.base.disk.private import make_missing
from remuda.base.errors import BackendUnreachable, Conflict, InputError, Unwritable
from remuda.base.text import did_you_mean
from remuda.base.units import show_counted
from remuda.look.facts import apart
from remuda.plan.placing.cluster import seconds
from remuda.specs.recipe.draft import DraftLine, render

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import Cluster, Node

TIME_S: Final = 4 * 3600.0
"""What a deployment asks for when nobody says it."""
FLAGS: Final = {
    "default_account": "--account",
    "default_partition": "--partition",
    "gpus_per_node": "--gpus-per-node",
    "default_gpu_type": "--gpu-type",
    "network_interface": "--network-interface",
    "default_time_limit": "--time-limit",
}
"""Key of the file -> flag that says it."""
_FAST: Final = ("ib", "hsn")
_UNASKED: Final = "Slurm gave no answer"


@dataclass(frozen=True)
class Known:
    """What was found out about a cluster."""

    cluster: Cluster | None = None
    """None: Slurm was not asked, or gave no answer."""
    accounts: tuple[str, ...] = ()
    account: str = ""
    """The user's default one."""
    interfaces: tuple[str, ...] = ()
    """Fast ones of this machine."""


def gathered(said: Mapping[str, str], client: SlurmClient | None = None, net: Path = Path("/sys/class/net")) -> Known:
    """Ask Slurm and this machine.

    Args:
        said: key of the file -> what the user says of it.
        client: of the cluster; of this machine's Slurm where None.
        net: folder with the network interfaces.

    Raises:
        BackendUnreachable: Slurm gives no answer, and the user says nothing.
    """
    interfaces = tuple(sorted(path.name for path in net.glob("*") if path.name.startswith(_FAST) and _is_up(path)))
    try:
        return apart(_asked(client or SlurmClient(), interfaces))
    except BackendUnreachable as error:
        if said:
            return Known(interfaces=interfaces)
        hint = "run it where Slurm's commands are, or say what you know: --partition gpu --gpus-per-node 8 …"
        raise BackendUnreachable(error.message, hint=hint) from error


async def _asked(client: SlurmClient, interfaces: tuple[str, ...]) -> Known:
    name = user()
    cluster = await client.cluster()
    accounts = await listed(("sacctmgr", "-nP", "show", "assoc", "where", f"user={name}", "format=account"), client)
    default = await listed(("sacctmgr", "-nP", "show", "user", name, "format=defaultaccount"), client)
    return Known(cluster, tuple(accounts), default[0] if default else "", interfaces)


def _is_up(interface: Path) -> bool:
    try:
        return (interface / "operstate").read_text().strip() != "down"
    except OSError:
        return True


def lines(found: Known, said: Mapping[str, str]) -> list[DraftLine]:
    """The keys of the file, each with its value. Pure.

    Args:
        found: out about the cluster.
        said: key -> the user's own value, which wins; empty: the key is left out.

    Raises:
        InputError: the user names a partition that does not exist, or a time that is none.
    """
    partition = _partition(found, said.get("default_partition"))
    nodes = [node for node in found.cluster.nodes if partition.value in node.pools] if found.cluster else []
    return [
        _or_said(line, said)
        for line in (
            _account(found),
            partition,
            *_gpus(nodes, partition.value, is_known=found.cluster is not None),
            _interface(found),
            _time_limit(found, partition.value),
        )
    ]


def _or_said(line: DraftLine, said: Mapping[str, str]) -> DraftLine:
    if line.key not in said:
        return line
    text = said[line.key]
    value: str | int | None = text or None
    if line.key == "gpus_per_node" and text:
        value = int(text)
    if line.key == "default_time_limit" and text:
        seconds(text, FLAGS[line.key])
    return DraftLine(line.key, value, "you said so" if text else "to be filled in")


def _account(found: Known) -> DraftLine:
    key = "default_account"
    if found.account:
        return DraftLine(key, found.account, "sacctmgr: your default account")
    if len(found.accounts) == 1:
        return DraftLine(key, found.accounts[0], "sacctmgr: your only account")
    several = f"sacctmgr: you have {', '.join(found.accounts)}, and none is the default"
    none = "sacctmgr names none" if found.cluster else _UNASKED
    return DraftLine(key, None, several if found.accounts else none, is_open=True)


def _partition(found: Known, said: str | None) -> DraftLine:
    key = "default_partition"
    if found.cluster is None:
        return DraftLine(key, None, _UNASKED, is_open=True)
    names = [pool.name for pool in found.cluster.pools]
    if said and said not in names:
        hint = did_you_mean(said, names, f"there are {', '.join(sorted(names))}")
        raise InputError(f"there is no partition {said!r}", hint=hint, where="--partition")
    if said:
        return DraftLine(key, said, "")
    sizes = Counter({pool.name: _size(found.cluster, pool.name) for pool in found.cluster.pools if pool.is_up})
    default = next((pool.name for pool in found.cluster.pools if pool.is_default), None)
    with_gpus = [name for name, size in sizes.most_common() if size]
    if default and (sizes[default] or not with_gpus):
        return DraftLine(key, default, f"scontrol: {default} is the default" + ("" if with_gpus else "; none has GPUs"))
    if len(with_gpus) > 1:
        return DraftLine(
            key, with_gpus[0], f"scontrol: it has most GPUs of {', '.join(sorted(with_gpus))}", is_open=True
        )
    if with_gpus:
        return DraftLine(key, with_gpus[0], f"scontrol: only {with_gpus[0]} has GPUs")
    return DraftLine(
        key, None, f"scontrol: there are {', '.join(sorted(names))}, and none is the default", is_open=True
    )


def _size(cluster: Cluster, pool: str) -> int:
    return sum(node.gpus for node in cluster.nodes if pool in node.pools)


def _gpus(nodes: list[Node], partition: str | int | None, *, is_known: bool) -> tuple[DraftLine, DraftLine]:
    kinds = Counter((node.gpus, node.gpu_type) for node in nodes if node.gpus).most_common()
    if not kinds:
        none = f"scontrol: no node of {partition} has GPUs" if is_known else _UNASKED
        return DraftLine("gpus_per_node", 0 if is_known else None, none, is_open=not is_known), DraftLine(
            "default_gpu_type", None, none, is_open=not is_known
        )
    ((count, kind), often), *others = kinds
    others_too = "".join(f", {n} {t}".rstrip() + f" on {show_counted(many, 'other')}" for (n, t), many in others)
    why = f"scontrol: on {show_counted(often, 'node')} of {partition}{others_too}"
    return DraftLine("gpus_per_node", count, why), DraftLine(
        "default_gpu_type", kind or None, why if kind else f"scontrol: GPUs of {partition} have no type"
    )


def _interface(found: Known) -> DraftLine:
    key = "network_interface"
    if not found.interfaces:
        return DraftLine(key, None, "this machine has no ib* or hsn*", is_open=True)
    return DraftLine(key, found.interfaces[0], f"this machine has {', '.join(found.interfaces)}")


def _time_limit(found: Known, partition: str | int | None) -> DraftLine:
    key = "default_time_limit"
    pools = found.cluster.pools if found.cluster else ()
    limit_s = next((pool.max_time_s for pool in pools if pool.name == partition), 0.0)
    if not limit_s:
        return DraftLine(
            key, duration(TIME_S), f"{f'scontrol: {partition} has no limit; ' if pools else ''}remuda's own"
        )
    return DraftLine(key, duration(min(limit_s, TIME_S)), f"scontrol: {partition} allows {duration(limit_s)}")


def refuse_existing(path: Path, *, force: bool) -> None:
    """Leave a file alone that is there.

    Raises:
        Conflict: it is there.
    """
    if path.exists() and not force:
        raise Conflict(f"{path} exists", hint="--force overwrites it")


def write(path: Path, chosen: list[DraftLine]) -> None:
    """Write the file.

    Raises:
        Unwritable: it cannot be written.
    """
    try:
        make_missing(path.parent)
        write_atomic(path, render(chosen))
    except OSError as error:
        raise Unwritable(
            f"{path} cannot be written: {error.strerror or error}", hint="-o names another file"
        ) from error
