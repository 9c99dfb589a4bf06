"""Documents that name a fleet: they are planned for the Slurm that the host started."""

from __future__ import annotations

from typing import Any

from remuda.specs.places import FLEET, planned_as, traits
from remuda.specs.strict import contradiction


def is_of_fleet(backend: object) -> bool:
    """Whether what a document says as `backend` is a fleet."""
    name = backend.get("type") if isinstance(backend, dict) else backend
    return bool(traits(str(name)).planned_as)


def of_fleet(data: Any) -> Any:
    """What a document says of a fleet, in the words of Slurm: one partition, and nobody to charge.

    Raises:
        PydanticCustomError: it names another partition.
    """
    at = "type" if isinstance(data, dict) and "type" in data else "backend"
    if not isinstance(data, dict) or not traits(str(data.get(at))).planned_as:
        return data
    name, value = ("partition", FLEET) if at == "type" else ("partitions", (FLEET,))
    said = data.get(name) or FLEET
    if said != FLEET and [*said] != [FLEET]:
        raise contradiction(name, f"all nodes of a fleet are in its one partition, `{FLEET}`", "leave it out")
    kept = {key: one for key, one in data.items() if key not in ("account", "qos")}
    return {**kept, at: planned_as(str(data[at])), name: value, **({"account": "", "qos": ""} if at == "type" else {})}
