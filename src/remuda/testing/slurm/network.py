"""Isolated nodes: a bridge for the head, a cable for each node. Needs CAP_SYS_ADMIN and CAP_NET_ADMIN."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import RemudaError
from remuda.fleet.processes import wait_until

if TYPE_CHECKING:
    from remuda.testing.slurm.config import BedLayout

NAMESPACES = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_NET_ADMIN, _SYS_ADMIN = 12, 21


@cache
def can_isolate() -> bool:
    """Whether this process may make namespaces and cables: asked by making them once."""
    if not _has(_NET_ADMIN) or not _has(_SYS_ADMIN) or not shutil.which("unshare") or not shutil.which("ip"):
        return False
    cable = f"rmsp{os.getpid()}"
    made = subprocess.run(["ip", "link", "add", cable, "type", "veth"], capture_output=True, check=False).returncode
    subprocess.run(["ip", "link", "del", cable], capture_output=True, check=False)
    return made == 0 and subprocess.run([*NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


def _has(capability: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return bool(effective >> capability & 1)


def _ip(*orders: str) -> None:
    done = subprocess.run(
        ["ip", "-batch", "-"], input="\n".join(orders) + "\n", capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RemudaError(f"ip {'; '.join(orders)}: {done.stderr.strip()}")


def _exists(name: str) -> bool:
    return Path(f"/sys/class/net/{name}").exists()


def make_bridge(layout: BedLayout) -> None:
    """Give the head an address in the bed's network."""
    if not _exists(layout.bridge):
        _ip(
            f"link add {layout.bridge} type bridge",
            f"addr add {layout.head}/24 dev {layout.bridge}",
            f"link set {layout.bridge} up",
        )


def connect(layout: BedLayout, index: int, pid: int) -> None:
    """Plug a node in: `pid` is a process that is about to enter, or is in, the node's namespaces."""
    ours = str(Path("/proc/self/ns/net").readlink())
    wait_until(lambda: _netns(pid) not in {"", ours}, f"node {index} has a network of its own", 20, step_s=0.005)
    disconnect(layout, index)
    # The same hardware address in every life of the node, so that nobody has to ask for it again.
    hardware = f"02:52:4d:53:{layout.slot:02x}:{index:02x}"
    cable = layout.cable(index)
    _ip(
        f"link add {cable} type veth peer name eth0 address {hardware} netns {pid}",
        f"link set {cable} master {layout.bridge} up",
    )


def _netns(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return ""


def disconnect(layout: BedLayout, index: int) -> None:
    """Take a node's cable away for good: nothing that its processes send while they die gets out."""
    if _exists(layout.cable(index)):
        subprocess.run(["ip", "link", "del", layout.cable(index)], capture_output=True, check=False)


def cut(layout: BedLayout, index: int) -> None:
    """Pull a node's cable."""
    _ip(f"link set {layout.cable(index)} down")


def heal(layout: BedLayout, index: int) -> None:
    """Put a node's cable back in."""
    _ip(f"link set {layout.cable(index)} up")


def is_cut(layout: BedLayout, index: int) -> bool:
    """Whether a node's cable is pulled; a node without one is not cut but gone."""
    try:
        flags = int(Path(f"/sys/class/net/{layout.cable(index)}/flags").read_text(), 16)
    except OSError:
        return False
    return not flags & 1


def remove(slot: int) -> None:
    """Take all cables and the bridge of a slot away; absent is fine."""
    ours = re.compile(rf"rmsl{slot}(n\d+)?")
    for entry in Path("/sys/class/net").iterdir():
        if ours.fullmatch(entry.name):
            subprocess.run(["ip", "link", "del", entry.name], capture_output=True, check=False)
