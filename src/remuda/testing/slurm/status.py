"""What a bed is doing now, as data."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.testing.slurm import procs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.testing.slurm.bed import SlurmBed


def look(bed: SlurmBed) -> dict[str, Any]:
    """Services, nodes and memory of a bed.

    Returns:
        `directory`, `slurm_conf`, `accounting`, `isolated`, `memory_bytes`; `services`, name to `up`, `down` or
        `frozen`; `nodes`, name to `daemon` (`up`, `down`, `frozen`, `cut`), `state` (Slurm's, empty when the
        controller is silent), `address` and `gpus`.
    """
    layout = bed.layout
    services = {name: _service(bed, name) for name in bed.services}
    states = bed.node_states() if services["slurmctld"] == "up" else {}
    nodes = {
        shape.name: {
            "daemon": _daemon(bed, shape.name),
            "state": states.get(shape.name, ""),
            "address": bed.node_addresses[shape.name],
            "gpus": f"{shape.gpus} {shape.gpu}" if shape.gpus else "",
        }
        for shape in layout.topology.nodes
    }
    return {
        "directory": str(bed.root),
        "slurm_conf": f"{bed.root}/slurm.conf",
        "accounting": layout.accounting,
        "isolated": layout.isolated,
        "services": services,
        "nodes": nodes,
        "memory_bytes": memory(bed),
    }


def _service(bed: SlurmBed, name: str) -> str:
    pid = bed.daemons.pid(name)
    if not pid:
        return "down"
    return "frozen" if procs.state(pid) == "T" else "up"


def _daemon(bed: SlurmBed, name: str) -> str:
    node = bed.nodes[name]
    if not node.is_up():
        return "down"
    if node.is_frozen():
        return "frozen"
    return "cut" if node.is_cut() else "up"


def memory(bed: SlurmBed) -> int:
    """Bytes of memory of all processes of a bed, shared pages divided among those that share them."""
    roots = [pid for name in bed.services if (pid := bed.daemons.pid(name))]
    return _proportional([*procs.tree(roots), *(pid for name in bed.nodes for pid in bed.processes(name))])


def _proportional(pids: Iterable[int]) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total
