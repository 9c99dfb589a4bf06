"""From a swarm's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from remuda.base.errors import BackendUnreachable, InputError, located
from remuda.plan.compile import UID, Plan, secret_folder
from remuda.plan.derive import ENDPOINT_PORT, derive, served_name
from remuda.plan.engines import engine_of
from remuda.plan.engines.base import secret
from remuda.plan.front import CONTROL_KEY, RouterSettings, router_group
from remuda.plan.identity import CONFIG, config_of, digest
from remuda.plan.lasting import with_succession
from remuda.plan.model import (
    Command,
    Endpoint,
    Front,
    Group,
    Kind,
    Listen,
    Pool,
    Resources,
    Role,
    Secret,
    Workload,
)
from remuda.plan.notes import notes
from remuda.plan.placing.cluster import (
    engine_python,
    model_needs,
    of_nginx,
    pod_notes,
    replica_resources,
    router_resources,
    slurm_place,
)
from remuda.plan.placing.nodelist import settle
from remuda.plan.placing.spanning import nodes_of, spread_of
from remuda.plan.relay import EVERYWHERE, LOOPBACK, RELAY, relay_group
from remuda.plan.run import kubernetes_place
from remuda.plan.watch import silence_s, watched
from remuda.specs.backend import LocalBackend, PodBackend, SlurmBackend
from remuda.specs.places import fronts_here, in_images, planned_as

if TYPE_CHECKING:
    from remuda.plan.compile import Draft, PlanFacts
    from remuda.plan.context import Context
    from remuda.specs.swarm import SwarmSpec

REPLICA = "replica"
ROUTER = "router"


def compile_swarm(draft: Draft[SwarmSpec], context: Context, facts: PlanFacts) -> Plan:
    """Plan a swarm.

    Raises:
        InputError: it cannot be planned; `where` is the dotted path of the field.
        BackendUnreachable: its nodes are to be checked, and the cluster does not answer.
    """
    said = draft.spec
    derived = derive(said, context)
    spec, reasons = derived.spec, dict(derived.reasons)
    if said.cpus_per_task is None and isinstance(said.backend, SlurmBackend):
        most = _share_of_cpus(spec, said.backend.partition, facts)
        if most and most < (spec.cpus_per_task or 0):
            spec = spec.model_copy(update={"cpus_per_task": most})
            reasons["cpus_per_task"] = f"derived from the nodes of {said.backend.partition}"
    workload = plan_swarm(spec, context, name=draft.name, spec_file=draft.loaded.file)
    if said.cwd is None and spec.engine != "command":
        workload = _without_modules_here(workload)
    # What this command may use, not what the host that was started elsewhere sees.
    is_apart = in_images(workload.backend)
    found = context.place if workload.is_here else context.place_elsewhere
    place = {**found, **workload.place, "home": spec.home_directory or ""}
    if is_apart:  # router and relay are processes here
        place = {"env": dict(context.env), **workload.place}
    elif not workload.is_here:
        place = settle(place, max(group.resources.nodes for group in workload.groups), facts.cluster)
    port, model = ("backend", "endpoint", "port"), str(PurePosixPath(spec.cwd or "", spec.model))
    workload = workload.model_copy(update={
        "labels": {**workload.labels, CONFIG: config_of(workload, spec, model, facts)},
        "place": place, "digest": digest(said, cwd=context.cwd, name=draft.name, port=port),
    })  # fmt: skip
    said_of = (*notes(spec, engine_python(spec, context.python)), *pod_notes(draft.loaded))
    return Plan(workload, spec, said_of, draft, reasons)


def _share_of_cpus(spec: SwarmSpec, partition: str, facts: PlanFacts) -> int:
    """CPUs that go with the GPUs of a replica on the smallest node that has them; 0: not known."""
    gpus = replica_resources(spec).gpus
    try:
        nodes = facts.cluster().nodes
    except BackendUnreachable:
        return 0
    fitting = [node for node in nodes if partition in node.pools and node.gpus >= gpus]
    return min((node.cpus * gpus // node.gpus if gpus else node.cpus for node in fitting if node.cpus), default=0)


def _without_modules_here(workload: Workload) -> Workload:
    """An engine is started where the command was typed, for relative paths; its modules are not looked for there.

    Whoever names `cwd`, or other words to start, means what is in that directory. Ray's processes are left as they are.
    """

    def safe(group: Group) -> Group:
        if not group.command.cwd or group.spread is not None:
            return group
        env = {"PYTHONSAFEPATH": "1", **group.command.env}
        return group.model_copy(update={"command": group.command.model_copy(update={"env": env})})

    return workload.model_copy(update={"groups": tuple(safe(group) for group in workload.groups)})


def plan_swarm(spec: SwarmSpec, context: Context, *, name: str, spec_file: str = "") -> Workload:
    """The workload of a swarm.

    Args:
        spec: without gaps, see `remuda.plan.derive`.
        context: where the command was typed.
        name: of the workload.
        spec_file: where the user wrote the spec, for messages.

    Raises:
        InputError: the spec cannot be planned; `where` is the dotted path of the field.
    """
    run_dir, python = context.run_dir(name), context.python
    front = plan_front(spec, "" if spec.router.type == "none" else ROUTER)
    router = _router(spec, front, secret_folder(run_dir), python)
    if router is None and spec.replicas > 1:
        raise InputError(
            f"{spec.replicas} replicas need a router to be one endpoint",
            hint="set `router: smg`, or `replicas: 1`",
            where="router.type",
        )
    _check_pods(spec)
    is_front = router is None and not isinstance(spec.backend, PodBackend)
    groups = (replica_group(spec, python, front.listen if is_front else None, run_dir), *([router] if router else []))
    if front.relay is not None:
        groups += (relay_group(front.relay, run_dir=run_dir, python=python),)
    return Workload(
        name=name,
        kind=Kind.SWARM,
        uid=UID,
        backend=planned_as(spec.backend.type),
        place=_place(spec, context),
        groups=with_succession(spec, groups),
        lifetime_s=spec.lifetime,
        idle_timeout_s=spec.idle_timeout,
        endpoint=front.endpoint,
        run_dir=run_dir,
        spec_file=spec_file,
        front=Front(
            router=spec.router.type, engine=spec.engine, model=spec.model, is_here=fronts_here(spec.backend.type)
        ),
    )


def _router(spec: SwarmSpec, front: FrontPlan, keys: str, python: str) -> Group | None:
    """The group in front, which is listened for as the replicas are; None: the only replica is the endpoint."""
    if spec.router.type == "none":
        return None
    timeout_s, more = of_nginx(spec)
    settings = RouterSettings(
        endpoint=front.endpoint,
        # A swarm of one may be scaled up, and its router stays: it gets the policy of several.
        replicas=max(2, spec.replicas),
        policy=spec.router.policy or "",
        group=ROUTER,
        control_key=Secret(file=f"{keys}/{CONTROL_KEY}"),
        public=front.listen.public,
        request_timeout_s=timeout_s or spec.router.request_timeout,
        python=python,
        log_level=spec.log_level,
        extra_args=(*more, *spec.router.args),
    )
    with located("router.policy"):
        group = router_group(spec.router.type, settings)
    is_beside = fronts_here(spec.backend.type)
    return group.model_copy(update={
        "listen": front.listen, "resources": front.resources, "pools": front.pools,
        "silence_s": 0.0 if is_beside else silence_s(spec), "backend": "local" if is_beside else "",
    })  # fmt: skip


def _check_pods(spec: SwarmSpec) -> None:
    """See that replicas can be pods, where they are to be.

    Raises:
        InputError: there is no image that a registry has, or something stays in pods that is asked for.
    """
    if not isinstance(spec.backend, PodBackend):
        return
    if not spec.image or spec.image[0] in "./~":
        what = f"the image {spec.image!r} is a file" if spec.image else "there is none"
        raise InputError(f"a swarm on Kubernetes needs an image of a registry, and {what}", where="image",
                         hint="set `image: registry/name:tag`, with engine and Python 3.9 or newer in it")  # fmt: skip
    if spec.profile:
        raise InputError("recordings of GPUs do not come back from pods yet", hint="leave it out", where="profile")


def _place(spec: SwarmSpec, context: Context) -> dict[str, object]:
    backend = spec.backend
    if isinstance(backend, PodBackend):
        return kubernetes_place(backend, context)
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
    return Group(
        name=REPLICA,
        role=Role.REPLICA,
        count=spec.replicas,
        command=Command(
            argv=engine.argv,
            env=dict(engine.env),
            secret_env=dict(engine.secret_env),
            cwd=spec.cwd or "",
            needs={**image_needs(spec), **model_needs(spec)},
            **image_of(spec, run_dir),
        ),
        resources=replica_resources(spec),
        spread=spread_of(spec, engine.member, interpreter),
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
    if isinstance(spec.backend, PodBackend):  # nothing of this machine is seen in pods
        return {"image": spec.image}
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
    pools: tuple[Pool, ...] = ()
    """Where the router runs; empty: where the replicas do."""
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
    if not isinstance(backend, (LocalBackend, SlurmBackend, PodBackend)):
        sentence = f"backend '{backend.type}' is not available yet in this version"
        raise InputError(sentence, hint="available: local, slurm, kubernetes", where="backend.type")
    port, fixed = backend.endpoint.port or ENDPOINT_PORT, backend.endpoint.port is not None
    if isinstance(backend, LocalBackend):
        host, relay = backend.endpoint.host, ""
    elif isinstance(backend, PodBackend):
        host, relay = backend.endpoint.host, RELAY
    else:
        host = EVERYWHERE if spec.api_key else LOOPBACK[0]
        relay = "" if router and fronts_here(backend.type) else RELAY
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
    address = Listen(port=port, fixed=fixed, public=host not in LOOPBACK)
    if isinstance(backend, SlurmBackend) and relay:
        # Whoever else is on that node may have the port already, so it is where the search begins.
        name = backend.endpoint.partition
        pools = (Pool(name=name, place={"partition": name, "node_list": ""}),) if name else ()
        return FrontPlan(endpoint, Listen(port=port, public=True), router_resources(backend), pools, address)
    if isinstance(backend, PodBackend):
        return FrontPlan(endpoint, Listen(), relay=address)
    return FrontPlan(endpoint, address)
