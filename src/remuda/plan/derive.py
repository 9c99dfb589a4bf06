"""Fills in what the user left to be derived. Pure; called after all overrides, never when a file is read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from remuda.base.ids import slug
from remuda.plan.context import Context
from remuda.plan.engines import engine_of
from remuda.plan.placing.placement import PlacementOptions, ReplicaLayout, place_cluster, place_local
from remuda.plan.watch import replacing
from remuda.specs.backend import LocalBackend, PodBackend, SlurmBackend
from remuda.specs.places import fronts_here
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from remuda.specs.swarm import SwarmSpec

ENDPOINT_PORT = 9000
EACH = 1
"""GPUs of a replica where machines are unlike each other, as on Kubernetes and in a fleet, when nothing is said."""


@dataclass(frozen=True)
class Derived:
    """A spec without gaps, and why each filled value is what it is."""

    spec: SwarmSpec
    reasons: dict[str, str]
    """Dotted path -> `derived from …`."""


def derive(spec: SwarmSpec, facts: Context) -> Derived:
    """Fill the gaps of `spec`.

    Raises:
        InputError: what was said does not fit together, or not on this machine; `where` is the field's path.
    """
    reasons: dict[str, str] = {}
    placed = layout(spec, facts)
    where = "this machine" if spec.backend.is_here else "gpus_per_node"
    fill: dict[str, tuple[Any, str]] = {
        "served_model_name": (served_name(spec), "model"),
        "gpus_per_replica": (placed.gpus_per_replica, where),
        "replicas_per_node": (placed.replicas_per_node, "gpus_per_replica and gpus_per_node"),
        "nodes": (placed.nodes, "replicas and replicas_per_node"),
        "cpus_per_task": (placed.cpus_per_task, where if where == "this machine" else "replicas_per_node"),
        "spanning": ((*engine_of(spec).spans, "engine")[0], "engine"),
        "cwd": (facts.cwd or None, "where the command was typed"),
        "router": (_filled(spec.router, "router", _router(spec), reasons), ""),
        "watchdog": (_filled(spec.watchdog, "watchdog", _watchdog(spec), reasons), ""),
        "backend": (_backend(spec, reasons), ""),
    }
    if spec.backend.is_here:
        fill["replicas_per_node"] = (placed.replicas_per_node, "replicas: the local backend is one machine")
        fill["nodes"] = (1, "the local backend, which is one machine")
    if isinstance(spec.backend, PodBackend):  # the cluster places pods, and nothing of this machine is in them
        for name in ("replicas_per_node", "nodes", "cpus_per_task", "cwd"):
            fill.pop(name)
    if fronts_here(spec.backend.type):
        fill["gpus_per_replica"] = (placed.gpus_per_replica, "backend.type")
    whole = {name: fill.pop(name)[0] for name in ("router", "watchdog", "backend")}
    return Derived(_filled(spec, "", fill, reasons).model_copy(update=whole), reasons)


def layout(spec: SwarmSpec, facts: Context) -> ReplicaLayout:
    """Where the replicas of `spec` go.

    Raises:
        InputError: what was said does not fit together.
    """
    asked = PlacementOptions(**alike(PlacementOptions, spec))
    if fronts_here(spec.backend.type) and asked.gpus_per_replica is None:
        asked = replace(asked, gpus_per_replica=EACH)
    if isinstance(spec.backend, PodBackend):
        return ReplicaLayout(asked.gpus_per_replica or 0, 1, None, 0)
    if not isinstance(spec.backend, LocalBackend):
        return place_cluster(asked)
    allowed = spec.backend.gpus
    gpus = facts.gpus if allowed is None else tuple(gpu for gpu in facts.gpus if gpu in allowed)
    return place_local(asked, Context(gpus=gpus, cpus=facts.cpus))


def name_base(spec: SwarmSpec) -> str:
    """What a name for the swarm is made of: the last part of the model's name, without a GGUF file's ending."""
    return slug(PurePosixPath(spec.model).name.removesuffix(".gguf"))


def served_name(spec: SwarmSpec) -> str:
    """Model name that requests carry."""
    if spec.served_model_name:
        return spec.served_model_name
    if spec.model.endswith(".gguf"):
        return PurePosixPath(spec.model).name.removesuffix(".gguf")
    return spec.model


def _router(spec: SwarmSpec) -> dict[str, tuple[Any, str]]:
    is_aware = spec.router.type == "smg" and spec.replicas > 1
    return {"policy": ("cache_aware" if is_aware else None, "replicas")}


def _watchdog(spec: SwarmSpec) -> dict[str, tuple[Any, str]]:
    watchdog = spec.watchdog
    reason = "watchdog.restart_policy" if watchdog.enabled else "watchdog.enabled"
    return {
        "http_path": (engine_of(spec).probe_path, "engine"),
        "log_level": (spec.log_level, "log_level"),
        "replace": (replacing(watchdog), reason),
    }


def _backend(spec: SwarmSpec, reasons: dict[str, str]) -> Any:
    backend = spec.backend
    if isinstance(backend, (LocalBackend, SlurmBackend, PodBackend)) and backend.endpoint.port is None:
        # Left open: a port in the spec is a demand, and which one is free is found when the swarm is accepted.
        reasons["backend.endpoint.port"] = f"derived when it starts: {ENDPOINT_PORT}, or the next free port"
    if isinstance(backend, SlurmBackend) and spec.home_directory:
        logs = {"log_directory": (f"{spec.home_directory.rstrip('/')}/logs", "home_directory")}
        return _filled(backend, "backend", logs, reasons)
    return backend


def _filled(model: Any, prefix: str, fill: dict[str, tuple[Any, str]], reasons: dict[str, str]) -> Any:
    """A copy of `model` with the values of `fill` where it has None, and the reasons noted."""
    update: dict[str, Any] = {}
    for name, (value, reason) in fill.items():
        if getattr(model, name) is None and value is not None:
            update[name] = value
            reasons[f"{prefix}.{name}".lstrip(".")] = f"derived from {reason}"
    return model.model_copy(update=update)
