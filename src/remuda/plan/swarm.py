"""From a swarm's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError
from remuda.plan.cluster import engine_python, model_needs, replica_resources, router_resources, slurm_place
from remuda.plan.derive import ENDPOINT_PORT, derive, served_name
from remuda.plan.engines import engine_of
from remuda.plan.engines.base import secret
from remuda.plan.lasting import with_succession
from remuda.plan.model import (
    Command,
    Endpoint,
    Front,
    Group,
    Kind,
    Listen,
    Resources,
    Role,
    Workload,
)
from remuda.plan.relay import EVERYWHERE, LOOPBACK, RELAY, relay_group
from remuda.plan.spanning import nodes_of, server_args, spread_of
from remuda.plan.watch import silence_s, watched
from remuda.specs.backend import LocalBackend, SlurmBackend

if TYPE_CHECKING:
    from remuda.plan.placement import MachineFacts
    from remuda.specs.swarm import SwarmSpec

REPLICA = "replica"
ROUTER = "router"


def plan_swarm(
    spec: SwarmSpec,
    *,
    name: str,
    uid: str,
    run_dir: str,
    python: str,
    facts: MachineFacts,
    router: Group | None = None,
    spec_file: str = "",
) -> Workload:
    """Plan a swarm.

    Args:
        spec: as loaded, with all overrides; what it leaves open is derived here.
        name: of the workload.
        uid: random, new for every creation.
        run_dir: absolute directory for what its tasks write.
        python: interpreter that engines are started with.
        facts: what this machine has.
        router: the group that gives the swarm its address, ready-made; None: the only replica is the endpoint.
        spec_file: where the user wrote the spec, for messages.

    Raises:
        InputError: the spec cannot be planned; `where` is the dotted path of the field.
    """
    front = plan_front(spec, router.name if router else "")
    full = derive(spec, facts).spec
    if router is None and full.replicas > 1:
        raise InputError(
            f"{full.replicas} replicas need a router to be one endpoint",
            hint="set `router: smg`, or `replicas: 1`",
            where="router.type",
        )
    groups = (replica_group(full, python, None if router else front.listen, run_dir), *_heard(router, full))
    if front.relay is not None:
        groups += (relay_group(front.relay, run_dir=run_dir, python=python),)
    return Workload(
        name=name,
        kind=Kind.SWARM,
        uid=uid,
        backend=full.backend.type,
        place=_place(full),
        groups=with_succession(full, groups),
        lifetime_s=full.lifetime,
        idle_timeout_s=full.idle_timeout,
        endpoint=front.endpoint,
        run_dir=run_dir,
        spec_file=spec_file,
        front=Front(router=full.router.type, engine=full.engine, model=full.model),
    )


def _heard(router: Group | None, spec: SwarmSpec) -> tuple[Group, ...]:
    """The router is listened for as the replicas are."""
    return () if router is None else (router.model_copy(update={"silence_s": silence_s(spec)}),)


def _place(spec: SwarmSpec) -> dict[str, object]:
    backend = spec.backend
    if isinstance(backend, SlurmBackend):
        return slurm_place(backend, in_image=bool(spec.image))
    return {"gpus": list(backend.gpus)} if isinstance(backend, LocalBackend) and backend.gpus is not None else {}


def replica_group(spec: SwarmSpec, python: str, listen: Listen | None = None, run_dir: str = "") -> Group:
    """The servers.

    Args:
        spec: without gaps, see `remuda.plan.derive`.
        python: interpreter that the engine is started with.
        listen: address of the endpoint, when the only replica is it.
        run_dir: of the workload, which is seen in an image, too.

    Raises:
        InputError: the engine cannot do what is asked.
    """
    interpreter = engine_python(spec, python)
    engine = engine_of(spec).render(spec, interpreter)
    server = (*engine.argv, *server_args(spec))
    return Group(
        name=REPLICA,
        role=Role.REPLICA,
        count=spec.replicas,
        command=Command(
            argv=server,
            env=dict(engine.env),
            secret_env=dict(engine.secret_env),
            cwd=spec.cwd or "",
            needs={**image_needs(spec), **model_needs(spec)},
            **image_of(spec, run_dir),
        ),
        resources=replica_resources(spec),
        spread=spread_of(spec, server, interpreter),
        listen=listen or Listen(port=spec.port, public=not spec.backend.is_here),
        metrics_path=engine.metrics_path,
        **watched(spec, nodes_of(spec), engine.probe_path, engine.key_env),
    )


def image_of(spec: SwarmSpec, run_dir: str) -> dict[str, Any]:
    """The image of the engine and what is seen in it, as fields of its command; empty where it runs in none.

    Raises:
        InputError: nothing in an image starts this engine.
    """
    if not _has_image(spec):
        return {}
    if spec.engine == "llamacpp" and not spec.engine_path:
        raise InputError("llamacpp in an image needs the path of its server there",
                         hint="set `engine_path: /app/llama-server`, or what it is called in the image",
                         where="engine_path")  # fmt: skip
    paths = [path for path in (spec.cwd, spec.model, run_dir) if path and path.startswith("/")]
    return {"image": spec.image, "mounts": tuple(dict.fromkeys(paths)), "workdir": spec.cwd or ""}


def image_needs(spec: SwarmSpec) -> dict[str, str]:
    """The image's file, where it is one that must be there on the node."""
    return {spec.image: "image"} if spec.image and spec.image.startswith("/") and _has_image(spec) else {}


def _has_image(spec: SwarmSpec) -> bool:
    return bool(spec.image) and not spec.backend.is_here


@dataclass(frozen=True)
class FrontPlan:
    """The address of a swarm, for whoever takes it: the router, or the only replica."""

    endpoint: Endpoint
    listen: Listen
    """Of the router or the replica. Wished: the port is fixed only when the user named it."""
    resources: Resources = field(default_factory=Resources)
    """Of the router."""
    relay: Listen | None = None
    """Of the relay, where one keeps the address."""


def plan_front(spec: SwarmSpec, router: str = ROUTER) -> FrontPlan:
    """The address of a swarm; the port that is free is chosen when the workload is accepted.

    Args:
        spec: as loaded.
        router: name of the group in front; empty: the only replica.

    Raises:
        InputError: the backend is not available, or the router cannot be asked for as it is.
    """
    backend = spec.backend
    if not isinstance(backend, (LocalBackend, SlurmBackend)):
        sentence = f"backend '{backend.type}' is not available yet in this version"
        raise InputError(sentence, hint="available: local, slurm", where="backend.type")
    port, fixed = backend.endpoint.port or ENDPOINT_PORT, backend.endpoint.port is not None
    if isinstance(backend, LocalBackend):
        host, relay = backend.endpoint.host, ""
    else:
        host, relay = (EVERYWHERE if spec.api_key else LOOPBACK[0]), RELAY
    endpoint = Endpoint(
        host=host,
        port=port,
        router=router,
        model=served_name(spec),
        ready=spec.ready,
        wait_s=spec.wait_endpoint_s,
        api_key=secret(spec.api_key) if spec.api_key else None,
        relay=relay,
    )
    if isinstance(backend, SlurmBackend):
        # Whoever else is on that node may have the port already, so it is where the search begins.
        address = Listen(port=port, fixed=fixed, public=host not in LOOPBACK)
        return FrontPlan(endpoint, Listen(port=port, public=True), router_resources(backend), address)
    return FrontPlan(endpoint, Listen(port=port, fixed=fixed, public=host not in LOOPBACK))
