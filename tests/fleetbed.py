"""A fleet of several nodes on one machine: a Slurm bed whose nodes are in no file, and join as those of users do.

Each node is a namespace with a munged and a slurmd of its own, kept by this file, run as a program: `fleetbed.py
DIRECTORY NAME`. All share the state directory. Where this process may not make namespaces there is one node, on this
machine's network: a machine's address has one slurmd.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from remuda.fleet import tree
from remuda.fleet.conf import FleetConf, NodeConf
from remuda.fleet.daemons import Controller, Node
from remuda.testing.slurm import NodeShape, Partition, SlurmBed, Topology, network, registry
from remuda.testing.slurm.config import BedLayout, device
from remuda.testing.slurm.nodes import BedNode

NAMES = ("box-1", "box-2")
LEASE_S = 8.0


def topology() -> Topology:
    """As many nodes as this machine can have, with two GPUs each."""
    names = NAMES if network.can_isolate() else NAMES[:1]
    nodes = tuple(NodeShape(name, "h100", 2, cpus=16, memory_mib=64_000) for name in names)
    return Topology(nodes, (Partition("fleet", names),))


def fleet_of(layout: BedLayout) -> FleetConf:
    """What all its machines are told."""
    ports = {"port": layout.controller_port, "slurmd_port": layout.node_port(0)}
    return FleetConf("bed", layout.host, layout.head, os.getuid(), lease_s=LEASE_S, **ports)


def controller_of(layout: BedLayout) -> Controller:
    """Its head, whose files lie at the top of the bed's directory."""
    return Controller(layout.root, fleet_of(layout), tree.find(head=True))


def node_of(layout: BedLayout, name: str) -> Node:
    """One of its nodes."""
    shape = layout.topology.nodes[layout.topology.names.index(name)]
    devices = tuple(f"{device(layout, name)}/nvidia{number}" for number in range(shape.gpus))
    address = layout.address(layout.topology.names.index(name))
    conf = NodeConf(name, address, shape.cpus, shape.memory_mib, f"{shape.gpu}:{shape.gpus}", devices)
    head = controller_of(layout)
    key, text = head.munge_key, head.slurm_conf
    return Node(layout.root / "n" / name, head.conf, conf, munge_key=key, slurm_conf=text, tree=tree.find())


class FleetNode(BedNode):
    """One node: the program that keeps its daemons is what slurmd is on other beds."""

    def _words(self) -> list[str]:
        return [sys.executable, __file__, str(self._layout.root), self.name]


class FleetBed(SlurmBed):
    """The bed; see `SlurmBed`."""

    _node_kind = FleetNode

    def __init__(self, directory: Path | str) -> None:
        super().__init__(directory, topology=topology(), accounting=False, owned=True)

    def _spawn(self, name: str) -> None:
        if name == "slurmctld":
            controller_of(self.layout).start()
        else:
            super()._spawn(name)


def main() -> None:
    """Join, and stay: SIGTERM ends the daemons of the node, as it ends slurmd on other beds."""
    root, name = Path(sys.argv[1]), sys.argv[2]
    layout = registry.layout_in(root)
    assert layout is not None
    (root / "n").mkdir(exist_ok=True)
    node = node_of(layout, name)

    def end(*_: object) -> None:
        node.stop()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    node.start()
    while True:
        time.sleep(1)
        for sentence in node.tend():
            print(sentence, flush=True)


if __name__ == "__main__":
    main()
