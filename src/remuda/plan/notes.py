"""What the user should know about a plan although nothing is wrong with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.secrets import looks_secret
from remuda.plan.engines import engine_of
from remuda.plan.placing.cluster import slurm_notes

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec


def notes(spec: SwarmSpec, python: str = "python") -> tuple[str, ...]:
    """One sentence for each thing that is done otherwise than the spec may suggest.

    Args:
        spec: without gaps, see `remuda.plan.derive`.
        python: interpreter that engines are started with.

    Raises:
        InputError: the engine cannot do what is asked.
    """
    said: list[str] = []
    if spec.backend.is_here and spec.image:
        said.append(f"image {spec.image!r} is not used: the local backend runs engines without containers")
    if spec.api_key is not None and not engine_of(spec).render(spec, python).key_env:
        where = "no router checks it: add one" if spec.router.type == "none" else "only the router asks for it"
        said.append(f"the {spec.engine} engine takes no API key safely, so {where}")
    open_names = [name for name in spec.env if looks_secret(name)]
    if open_names:
        names = ", ".join(open_names)
        said.append(f"env {names} looks secret and is stored as written: secret_env takes {{file: …}} or {{env: …}}")
    if not spec.watchdog.enabled:
        said.append("the watchdog is off: replicas count as ready as soon as they run, and are not restarted")
    return (*said, *slurm_notes(spec))
