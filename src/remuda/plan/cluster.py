"""What a swarm's document says of Slurm, as groups and places. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.units import parse_size
from remuda.plan.model import Resources
from remuda.plan.place import SlurmPlace
from remuda.specs.backend import SlurmBackend
from remuda.specs.sbatch import slurm_seconds

if TYPE_CHECKING:
    from remuda.plan.engines.base import EngineCommand
    from remuda.specs.swarm import SwarmSpec

IN_IMAGE: Final = "python3"
"""Interpreter of an image, where nothing else is said."""
_UNUSED: Final = ("ray_port", "ray_dashboard_port", "template_path", "nginx_template_path")
_UNUSED_OF_ENDPOINT: Final = ("threads_per_core", "nginx_image", "nginx_timeout", "poll_interval")


def slurm_place(backend: SlurmBackend) -> dict[str, object]:
    """The settings that only Slurm understands; what is empty is left out.

    Raises:
        InputError: it cannot be done with jobs of one node each.
    """
    nodes = backend.node_list or ""
    if "," in nodes or "[" in nodes:
        raise InputError(
            f"`node_list` is {nodes!r}, and a job of a swarm has one node: Slurm would give each of them all of these",
            hint="name one node, or keep the others away with exclude_nodes",
            where="backend.node_list",
        )
    place = SlurmPlace(
        partition=backend.partition,
        account=backend.account,
        qos=backend.qos,
        node_list=nodes,
        exclude_nodes=backend.exclude_nodes or "",
        modules=backend.modules,
        preamble=backend.preamble,
        mail_user=backend.mail_user or "",
    )
    return dict(place.model_dump(mode="json", exclude_defaults=True))


def replica_resources(spec: SwarmSpec) -> Resources:
    """What one replica needs.

    Raises:
        InputError: it spans nodes, or the time limit is none.
    """
    gpus, cpus = spec.gpus_per_replica or 0, spec.cpus_per_task or 0
    backend = spec.backend
    if not isinstance(backend, SlurmBackend):
        return Resources(gpus=gpus, cpus=cpus)
    if gpus > spec.gpus_per_node:
        raise InputError(
            f"`gpus_per_replica` is {gpus} and a node has {spec.gpus_per_node}: replicas that span nodes are not "
            "available yet in this version",
            hint="set `gpus_per_node` to what a node has, or use fewer GPUs for each replica",
            where="gpus_per_replica",
        )
    return Resources(gpus=gpus, cpus=cpus, time_limit_s=_seconds(backend.time_limit, "backend.time_limit"))


def router_resources(backend: SlurmBackend) -> Resources:
    """What the router's job needs.

    Raises:
        InputError: the time limit is none.
    """
    endpoint = backend.endpoint
    return Resources(
        cpus=endpoint.cpus_per_task,
        mem_bytes=parse_size(endpoint.mem),
        time_limit_s=_seconds(endpoint.wall_time, "backend.endpoint.wall_time"),
    )


def _seconds(text: str, where: str) -> float:
    try:
        return slurm_seconds(text)
    except InputError as error:
        raise InputError(error.message, hint=error.hint, where=where) from error


def engine_python(spec: SwarmSpec, python: str) -> str:
    """The interpreter that the engine is started with; `python` is remuda's own."""
    backend = spec.backend
    if not isinstance(backend, SlurmBackend):
        return python
    if spec.image:
        return IN_IMAGE
    return f"{backend.venv_path.rstrip('/')}/bin/python" if backend.venv_path else python


def in_image(spec: SwarmSpec, engine: EngineCommand) -> tuple[tuple[str, ...], dict[str, str]]:
    """Command and environment of a replica, in the image of the spec where there is one.

    Variables reach the container as they are; those that point to programs of the machine outside do not help there.

    Raises:
        InputError: nothing in an image starts this engine.
    """
    if not spec.image or not isinstance(spec.backend, SlurmBackend):
        return engine.argv, engine.env
    if spec.engine == "llamacpp" and not spec.engine_path:
        raise InputError("llamacpp in an image needs the path of its server there",
                         hint="set `engine_path: /app/llama-server`, or what it is called in the image",
                         where="engine_path")  # fmt: skip
    binds = [path for path in (spec.cwd, spec.model) if path and path.startswith("/")]
    words = ["singularity", "exec", *(["--nv"] if spec.gpus_per_replica else [])]
    words += [word for path in dict.fromkeys(binds) for word in ("--bind", path)]
    return (*words, spec.image, *engine.argv), {"PYTHONPATH": "", "VIRTUAL_ENV": "", **engine.env}


def slurm_notes(spec: SwarmSpec) -> tuple[str, ...]:
    """One sentence for each thing that is done otherwise than the spec may suggest."""
    backend = spec.backend
    if not isinstance(backend, SlurmBackend):
        return ()
    fields, plain = SlurmBackend.model_fields, type(backend.endpoint)()
    unused = [f"backend.{name}" for name in _UNUSED if getattr(backend, name) != fields[name].default]
    unused += [
        f"backend.endpoint.{name}"
        for name in _UNUSED_OF_ENDPOINT
        if getattr(backend.endpoint, name) != getattr(plain, name)
    ]
    derived = f"{spec.home_directory.rstrip('/')}/logs" if spec.home_directory else None
    if backend.log_directory not in (None, derived):
        unused.append("backend.log_directory (remuda logs NAME shows the output)")
    if spec.watchdog.ray.enabled:
        unused.append("watchdog.ray")
    said = [f"not used yet on Slurm: {', '.join(unused)}"] if unused else []
    fits = max(1, spec.gpus_per_node // spec.gpus_per_replica) if spec.gpus_per_replica else spec.replicas_per_node
    if spec.replicas_per_node != fits or spec.nodes != -(-spec.replicas // (spec.replicas_per_node or 1)):
        said.append("Slurm packs replicas by GPUs and CPUs; `nodes` and `replicas_per_node` only divide the CPUs")
    return tuple(said)
