"""How many nodes and GPUs one worker of a role has, and what nobody uses. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.specs.deployment import MockerEngine

if TYPE_CHECKING:
    from remuda.specs.deployment import DeployedRole, DeploymentSpec


@dataclass(frozen=True)
class Shape:
    """One worker.

    Args:
        gpus: of all its nodes.
        nodes: that it spans.
        idle: what the role declares and no worker uses, as a sentence; empty: nothing.
    """

    gpus: int = 0
    nodes: int = 1
    idle: str = ""

    @property
    def gpus_on_node(self) -> int:
        """GPUs on each of its nodes."""
        return self.gpus // self.nodes


def shape_of(spec: DeploymentSpec, name: str, gpus_here: int = 0) -> Shape:
    """The shape of the workers of a role.

    Args:
        spec: as loaded.
        name: of the role.
        gpus_here: GPUs of this machine, for workers that say nothing and run on it.

    Raises:
        InputError: the workers do not fit on their nodes; `where` is the field.
    """
    role = spec.by_name()[name]
    if isinstance(spec.engine_of(name), MockerEngine):
        return Shape()
    if spec.backend.is_here:
        everybody = sum(one.workers for one in spec.by_name().values())
        return Shape(role.gpus if role.gpus is not None else gpus_here // everybody)
    declared = _declared(spec, name, role)
    gpus = role.gpus if role.gpus is not None else declared // role.workers
    where = f"roles.{name}.workers"
    if not gpus and role.gpus is None:
        raise InputError(f"{role.workers} workers of {name} share {declared} GPUs: fewer than one each",
                         hint="give the role more nodes, or fewer workers", where=where)  # fmt: skip
    each = spec.gpus_per_node
    if gpus > each and (not each or gpus % each):
        raise InputError(f"a worker of {name} has {gpus} GPUs and a node has {each}: it must use all of each",
                         hint=f"make it a multiple of {each}", where=f"roles.{name}.gpus")  # fmt: skip
    nodes = max(1, gpus // each) if each else 1
    if role.nodes != "colocate":
        held = role.workers * nodes if gpus >= each else -(-role.workers // (each // gpus)) if gpus else role.nodes
        if held > role.nodes:
            raise InputError(
                f"{role.workers} workers of {name} with {gpus} GPUs each need {held} nodes, and it has {role.nodes}",
                hint="give the role more nodes, or fewer workers", where=where,
            )  # fmt: skip
    decode = spec.by_name().get("decode")
    is_shared = name == "prefill" and decode is not None and decode.nodes == "colocate"
    idle = declared - role.workers * gpus if gpus and not is_shared else 0
    return Shape(gpus, nodes, f"roles.{name}: {idle} of {declared} GPUs are unused" if idle > 0 else "")


def _declared(spec: DeploymentSpec, name: str, role: DeployedRole) -> int:
    """GPUs that a role has by its nodes; of one that shares nodes, what is left there."""
    if role.nodes != "colocate":
        return role.nodes * spec.gpus_per_node
    other = spec.by_name()["prefill"]
    shape = shape_of(spec, "prefill")
    left = (other.nodes if isinstance(other.nodes, int) else 0) * spec.gpus_per_node - other.workers * shape.gpus
    if role.gpus is not None and role.workers * role.gpus > left:
        raise InputError(
            f"{role.workers} workers of {name} with {role.gpus} GPUs each share prefill's nodes, which leaves {left}",
            hint="give decode nodes of its own", where=f"roles.{name}.nodes",
        )  # fmt: skip
    return left
