"""What a swarm's document says of Slurm, as groups and places. Pure."""

from __future__ import annotations

import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from remuda.base.errors import located
from remuda.base.units import parse_size
from remuda.plan.model import Resources
from remuda.plan.placing.place import SlurmPlace
from remuda.plan.placing.spanning import nodes_of
from remuda.specs.backend import PodBackend, SlurmBackend
from remuda.specs.places import fronts_here
from remuda.specs.reading.sbatch import slurm_seconds

if TYPE_CHECKING:
    from remuda.specs.reading.load import Loaded
    from remuda.specs.swarm import SwarmSpec

IN_IMAGE: Final = "python3"
"""Interpreter of an image, where nothing else is said."""
_UNUSED: Final = ("template_path", "nginx_template_path")
_UNUSED_OF_ENDPOINT: Final = ("poll_interval",)
_UNUSED_IN_PODS: Final = ("nodes", "replicas_per_node", "gpus_per_node", "home_directory", "spanning")
_OF_NGINX: Final = ("nginx_image", "nginx_timeout")
_OF_JOB: Final = ("partition", "cpus_per_task", "mem", "threads_per_core", "wall_time")
"""What is said of the router's job."""


def slurm_place(backend: SlurmBackend, *, in_image: bool = False) -> dict[str, object]:
    """The settings that only Slurm understands; what is empty is left out.

    Args:
        backend: what the document says.
        in_image: whether the engine is in an image; `venv_path` then says nothing.
    """
    venv = "" if in_image else (backend.venv_path or "").rstrip("/")
    activate = (f"export VIRTUAL_ENV={shlex.quote(venv)}", f'export PATH={shlex.quote(f"{venv}/bin")}:"$PATH"')
    place = SlurmPlace(
        partition=backend.partition,
        account=backend.account,
        qos=backend.qos,
        node_list=backend.node_list or "",
        exclude_nodes=backend.exclude_nodes or "",
        modules=backend.modules,
        preamble=(*backend.preamble, *(activate if venv else ())),
        mail_user=backend.mail_user or "",
        log_directory=(backend.log_directory or "").rstrip("/"),
        container=(backend.container or "") if in_image else "",
    )
    return dict(place.model_dump(mode="json", exclude_defaults=True))


def replica_resources(spec: SwarmSpec) -> Resources:
    """What one replica needs.

    Raises:
        InputError: the time limit is none.
    """
    gpus, cpus = spec.gpus_per_replica or 0, spec.cpus_per_task or 0
    backend = spec.backend
    if isinstance(backend, PodBackend):
        memory = parse_size(backend.mem) if backend.mem else 0
        return Resources(
            gpus=gpus, cpus=cpus, mem_bytes=memory, mem_field="backend.mem", time_limit_s=backend.time_limit
        )
    if not isinstance(backend, SlurmBackend):
        return Resources(gpus=gpus, cpus=cpus)
    most, nodes = most_on_a_node(spec), 1
    if gpus > spec.gpus_per_node:
        gpus, nodes = spec.gpus_per_node, nodes_of(spec)
    elif most and gpus:
        gpus = spec.gpus_per_node // most
    return Resources(
        gpus=gpus,
        cpus=cpus,
        mem_bytes=parse_size(backend.mem) if backend.mem else 0,
        mem_field="backend.mem",
        nodes=nodes,
        time_limit_s=seconds(backend.time_limit, "backend.time_limit"),
    )


def router_resources(backend: SlurmBackend) -> Resources:
    """What the router's job needs.

    Raises:
        InputError: the time limit is none.
    """
    endpoint = backend.endpoint
    return Resources(
        cpus=endpoint.cpus_per_task,
        mem_bytes=parse_size(endpoint.mem),
        mem_field="backend.endpoint.mem",
        threads_per_core=endpoint.threads_per_core if "threads_per_core" in endpoint.model_fields_set else 0,
        time_limit_s=seconds(endpoint.wall_time, "backend.endpoint.wall_time"),
    )


def of_nginx(spec: SwarmSpec) -> tuple[float, tuple[str, ...]]:
    """What a document for Slurm says of nginx: its timeout in seconds (0: nothing), and words for its launcher."""
    backend = spec.backend
    if not isinstance(backend, SlurmBackend) or spec.router.type != "nginx":
        return 0.0, ()
    endpoint = backend.endpoint
    timeout_s = endpoint.nginx_timeout if "nginx_timeout" in endpoint.model_fields_set else 0.0
    return timeout_s, ("--image", endpoint.nginx_image) if endpoint.nginx_image else ()


def seconds(text: str, where: str) -> float:
    """A time limit as Slurm writes it.

    Raises:
        InputError: it is none.
    """
    with located(where):
        return slurm_seconds(text)


def engine_python(spec: SwarmSpec, python: str) -> str:
    """The interpreter that the engine is started with; `python` is remuda's own."""
    backend = spec.backend
    if isinstance(backend, PodBackend):
        return backend.python or IN_IMAGE
    if not isinstance(backend, SlurmBackend):
        return python
    if spec.image:
        return IN_IMAGE
    return f"{backend.venv_path.rstrip('/')}/bin/python" if backend.venv_path else python


def model_needs(spec: SwarmSpec) -> dict[str, str]:
    """The model's path, where it is one that must be there on the node."""
    is_file = spec.model.startswith("/") or (spec.engine == "llamacpp" and not spec.image)
    if not isinstance(spec.backend, SlurmBackend) or spec.engine == "command" or not is_file:
        return {}
    path = PurePosixPath(spec.cwd or "/") / spec.model
    return {str(path): "model"}


def pod_notes(loaded: Loaded[SwarmSpec]) -> tuple[str, ...]:
    """One sentence for each thing that is otherwise in pods than the user's words suggest."""
    spec = loaded.spec
    if not isinstance(spec.backend, PodBackend):
        return ()
    unused = loaded.words(_UNUSED_IN_PODS)
    is_path = spec.model.startswith(("/", "./", "../", "~")) or spec.engine == "llamacpp"
    path = f"the model {spec.model} is looked for in the image and its mounts: no file of this machine is in pods"
    return (*((f"not used on Kubernetes: {', '.join(unused)}",) if unused else ()), *((path,) if is_path else ()))


def slurm_notes(spec: SwarmSpec) -> tuple[str, ...]:
    """One sentence for each thing that is done otherwise than the spec may suggest."""
    backend = spec.backend
    if not isinstance(backend, SlurmBackend):
        return ()
    fields, plain = SlurmBackend.model_fields, type(backend.endpoint)()
    unused = [f"backend.{name}" for name in _UNUSED if getattr(backend, name) != fields[name].default]
    is_fleet = fronts_here(backend.type)
    names = (*_UNUSED_OF_ENDPOINT, *(() if spec.router.type == "nginx" else _OF_NGINX), *(_OF_JOB if is_fleet else ()))
    unused += [f"backend.endpoint.{name}" for name in names if getattr(backend.endpoint, name) != getattr(plain, name)]
    unused += ["backend.job"] if is_fleet and backend.job != fields["job"].default else []
    said = [f"not used on {'a fleet' if is_fleet else 'Slurm'}: {', '.join(unused)}"] if unused else []
    most = most_on_a_node(spec)
    if most and spec.gpus_per_replica:
        held = spec.gpus_per_node // most
        said.append(f"each replica's job holds {held} GPUs, so that no node has more than {most} replicas")
    elif most:
        said.append("replicas without GPUs are packed by their CPUs; `nodes` and `replicas_per_node` only divide these")
    return tuple(said)


def most_on_a_node(spec: SwarmSpec) -> int:
    """Most replicas that shall share a node, where that is fewer than fit; 0: as many as fit."""
    each = spec.replicas_per_node
    if each is None:
        return 0
    fits = max(1, spec.gpus_per_node // spec.gpus_per_replica) if spec.gpus_per_replica else each
    if spec.nodes and spec.nodes > -(-spec.replicas // each):
        each = -(-spec.replicas // spec.nodes)
    asked = each < fits or (not spec.gpus_per_replica and each != 1)
    return each if asked else 0
