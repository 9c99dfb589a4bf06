"""From a deployment's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from remuda import enter
from remuda.base.errors import InputError
from remuda.base.units import parse_size
from remuda.plan.compile import Plan
from remuda.plan.deployment import services, terms
from remuda.plan.deployment.dynamo import environment
from remuda.plan.deployment.engines import command_of, render, spread_of
from remuda.plan.deployment.preflight import gpus_of
from remuda.plan.deployment.shape import Shape, shape_of
from remuda.plan.engines import ENGINES
from remuda.plan.engines.base import secrets_of
from remuda.plan.engines.flags import words
from remuda.plan.lasting import with_succession
from remuda.plan.model import (
    Command,
    Front,
    Group,
    Kind,
    Listen,
    Pool,
    Replace,
    Resources,
    RestartRule,
    Role,
    Workload,
)
from remuda.plan.placing.cluster import IN_IMAGE
from remuda.plan.placing.place import SlurmPlace
from remuda.plan.relay import LOOPBACK, RELAY, relay_group
from remuda.plan.watch import silence_s, watched
from remuda.specs.backend import LocalBackend
from remuda.specs.deployment import MockerEngine, SlurmDeployment
from remuda.specs.places import fronts_here, planned_as

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from remuda.plan.engines import EngineCommand
    from remuda.specs.deployment import DeployedRole, DeploymentSpec

FRONTEND: Final = "frontend"
BALANCER: Final = "balancer"
"""Group that stands before several frontends."""
GATE: Final = "gate"
ROLES: Final = {"prefill": Role.PREFILL, "decode": Role.DECODE, "agg": Role.REPLICA}
ROUTERS: Final = {"dynamo": "dynamo", "sglang-router": "smg", "smg": "smg", "vllm-router": "smg", "nginx": "nginx"}
"""Frontend -> the router that is started: sglang-router is an earlier name of smg."""
PORT: Final = 8000
SRTCTL_FOLDERS: Final = {"/model": "", "/logs": "", "/configs": ", or say `srtctl_root` in the cluster file"}
"""Folders that recipes of srtctl know in containers -> what else gives one."""
_OPTION: Final = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class DeploymentSite:
    """Where a deployment is planned.

    Args:
        name: of the deployment.
        uid: random, new for every creation.
        run_dir: absolute directory for what its tasks write; all nodes see it.
        python: remuda's own interpreter.
        gpus: of this machine.
        state: the state directory.
        spec_file: where the user wrote the spec, for messages.
    """

    name: str
    uid: str
    run_dir: str
    python: str
    gpus: tuple[str, ...] = ()
    state: str = ""
    spec_file: str = ""


def refuse_what_is_not_built(spec: DeploymentSpec) -> None:
    """What can be read and not be brought up yet.

    Raises:
        InputError: says what, and what to do instead; `where` is the field's path.
    """
    if spec.frontend.type == "trtllm_serve":
        raise InputError("TensorRT-LLM's own frontend cannot be started yet", hint="use Dynamo's",
                         where="frontend.type")  # fmt: skip
    agg = spec.by_name().get("agg")
    if spec.frontend.type == "none" and (agg is None or agg.workers > 1):
        raise InputError("without a frontend there is one worker, which does both", where="frontend.type",
                         hint="set `frontend.type`, or use one worker of the role `agg`")  # fmt: skip


def has_balancer(spec: DeploymentSpec) -> bool:
    """Whether smg stands before the frontend: Dynamo's find their workers by themselves, so there may be several.

    None of them asks for a key; smg does.
    """
    return spec.frontend.type == "dynamo" and (spec.frontend.replicas > 1 or spec.api_key is not None)


def plan_deployment(
    spec: DeploymentSpec, front: Group | None, site: DeploymentSite, balancer: Group | None = None
) -> Plan:
    """Plan a deployment: a group for each role, the frontend after them, and the gate that looks whether it serves.

    The services that they need come first.

    Args:
        spec: as loaded, with the names of models and images resolved.
        front: group of the frontend, ready-made; None without one.
        site: where it is planned.
        balancer: group of what stands before several frontends, ready-made.

    Raises:
        InputError: it cannot be brought up; `where` is the field's path.
    """
    refuse_what_is_not_built(spec)
    router = "smg" if balancer is not None else ROUTERS.get(spec.frontend.type, "none")
    terms.refuse(spec, router)
    shapes = {name: _shape(spec, name, site) for name in spec.by_name()}
    discovery = f"{site.run_dir}/discovery/{site.uid}"
    dynamo = environment(spec, discovery) if spec.frontend.type == "dynamo" else {}
    host = terms.host_of(spec)
    listen = Listen(port=spec.frontend.port or PORT, fixed=spec.frontend.port is not None, public=host not in LOOPBACK)
    workers = tuple(_workers(spec, name, shapes[name], site, dynamo) for name in spec.by_name())
    own = _front(spec, front, dynamo, site, tuple(one.name for one in workers)) if front is not None else None
    groups, last = _groups(spec, workers, own, balancer, listen, site)
    workload = Workload(
        name=site.name,
        kind=Kind.DEPLOYMENT,
        uid=site.uid,
        backend=planned_as(spec.backend.type),
        place=_place(spec),
        groups=with_succession(spec, services.addressed(spec, groups)),
        lifetime_s=spec.lifetime,
        idle_timeout_s=spec.idle_timeout,
        ends_with=services.terminal(spec),
        endpoint=terms.asked_as(spec).model_copy(update={
            "host": host, "port": listen.port, "router": last if front else "", "ready": spec.ready,
            "wait_s": _wait_s(spec), "relay": RELAY if RELAY in {one.name for one in groups} else "", "gate": GATE,
            "behind": FRONTEND if balancer is not None else "",
        }),
        run_dir=site.run_dir,
        spec_file=site.spec_file,
        front=Front(
            router=router,
            engine=spec.engine_of(next(iter(spec.by_name()))).type, model=spec.model.path, frontend=spec.frontend.type,
            discovery=discovery if dynamo else "", is_here=fronts_here(spec.backend.type),
        ),
        files={f"{discovery}/": ""} if dynamo else {},
    )  # fmt: skip
    return Plan(workload, spec, _notes(spec, shapes))


def serving(spec: DeploymentSpec, site: DeploymentSite) -> Workload:
    """The workers alone: programs, images and GPUs, which say as what it is measured; see `plan_deployment`."""
    groups = []
    for name, role in spec.by_name().items():
        shape = _shape(spec, name, site)
        command = Command(argv=_server(spec, name, shape, site).argv, image=image_of(spec, name))
        needs = _resources(spec, shape)
        groups.append(Group(name=name, role=ROLES[name], count=role.workers, command=command, resources=needs))
    return Workload(name=site.name, kind=Kind.DEPLOYMENT, uid=site.uid, backend=spec.backend.type,
                    groups=tuple(groups), run_dir=site.run_dir)  # fmt: skip


def _groups(
    spec: DeploymentSpec, workers: tuple[Group, ...], own: Group | None, balancer: Group | None, listen: Listen,
    site: DeploymentSite,
) -> tuple[tuple[Group, ...], str]:  # fmt: skip
    """Workers, what stands before them, and what runs beside them; and who of these is asked first."""
    fronts = () if own is None else (own,) if balancer is None else _several(spec, own, balancer)
    if own is None:
        alone = listen if spec.backend.is_here else Listen(port=PORT, public=True)
        workers = (workers[0].model_copy(update={"listen": alone}),)
    is_alone = own is None and spec.backend.is_here
    relay = () if is_alone else (relay_group(listen, run_dir=site.run_dir, python=site.python),)
    last = (*workers, *fronts)[-1].name
    return (*workers, *fronts, *relay, _gate(site, last), *_services(spec, site, last)), last


def frontend_python(spec: DeploymentSpec, own: str) -> str:
    """The interpreter that starts the frontend: Dynamo's is where the engine is, others are where remuda is."""
    return _python(spec, spec.frontend.container or spec.container, own) if spec.frontend.type == "dynamo" else own


def frontend_args(spec: DeploymentSpec) -> tuple[str, ...]:
    """More words for the frontend, as the recipe says them."""
    return words(spec.frontend.args)


def image_of(spec: DeploymentSpec, name: str) -> str:
    """The image that workers of a role run in; empty: none."""
    return (spec.by_name()[name].container or spec.container or "") if not spec.backend.is_here else ""


def _shape(spec: DeploymentSpec, name: str, site: DeploymentSite) -> Shape:
    """Of a worker; on this machine it has the GPUs that its flags are for, else its share of those that may be used."""
    if not isinstance(spec.backend, LocalBackend):
        return shape_of(spec, name)
    here = len(site.gpus if spec.backend.gpus is None else spec.backend.gpus)
    told = gpus_of(spec, name) if here else None
    return shape_of(spec, name, here) if told is None else Shape(told)


def _python(spec: DeploymentSpec, image: str | None, own: str) -> str:
    if image and not spec.backend.is_here:
        return IN_IMAGE
    return spec.python or own


def _server(spec: DeploymentSpec, name: str, shape: Shape, site: DeploymentSite) -> EngineCommand:
    return render(spec, name, shape, _python(spec, image_of(spec, name), site.python))


def _workers(spec: DeploymentSpec, name: str, shape: Shape, site: DeploymentSite, dynamo: Mapping[str, str]) -> Group:
    role, image, server = spec.by_name()[name], image_of(spec, name), _server(spec, name, shape, site)
    command = command_of(spec, name, server, {**dynamo, **_network(spec)})
    command = command.model_copy(update={"secret_env": {**secrets_of(spec), **server.secret_env}})
    on_slurm = not spec.backend.is_here
    return Group(
        name=name,
        role=ROLES[name],
        count=role.workers,
        command=_inside(spec, command, image, site, role),
        resources=_resources(spec, shape),
        after=services.gates(spec),
        spread=spread_of(shape, server) if on_slurm else None,
        listen=Listen(public=on_slurm),
        ports=server.ports,
        metrics_path=server.metrics_path,
        fatal_lines=_fatal_lines(spec, spec.engine_of(name).type),
        **watched(spec, shape.nodes, server.probe_path, server.key_env, start_s=_wait_s(spec)),
    )


def _front(
    spec: DeploymentSpec, front: Group, dynamo: Mapping[str, str], site: DeploymentSite, workers: tuple[str, ...]
) -> Group:
    """The frontend, as its router renders it, with what the recipe says of it."""
    env = {**front.command.env, **dynamo, **spec.env, **spec.frontend.env}
    secret_env = {**secrets_of(spec), **front.command.secret_env}
    command = front.command.model_copy(update={"env": env, "secret_env": secret_env})
    if spec.frontend.type == "dynamo" and not spec.backend.is_here:
        command = _inside(spec, command, spec.frontend.container or spec.container or "", site)
    where: dict[str, Any] = {"listen": Listen(), "resources": Resources()}
    if fronts_here(spec.backend.type):
        where["backend"] = "local"
    elif not spec.backend.is_here:
        memory = parse_size(spec.frontend.mem)
        where = {
            "listen": Listen(port=PORT, public=True), "pools": _beside(spec), "silence_s": silence_s(spec),
            "resources": Resources(cpus=spec.frontend.cpus, mem_bytes=memory, time_limit_s=terms.limit_s(spec)),
        }  # fmt: skip
    return front.model_copy(update={"command": command, "after": workers, **where})


def _several(spec: DeploymentSpec, own: Group, balancer: Group) -> tuple[Group, Group]:
    """Frontends, and what stands before them."""
    alike = {name: getattr(own, name) for name in ("listen", "resources", "pools", "silence_s", "backend")}
    first = balancer.model_copy(update={**alike, "after": (own.name,)})
    listen = Listen(public=not (spec.backend.is_here or own.backend))
    changes = {"role": Role.FRONTEND, "count": spec.frontend.replicas, "listen": listen}
    return own.model_copy(update=changes), first


def _services(spec: DeploymentSpec, site: DeploymentSite, front: str) -> tuple[Group, ...]:
    """What must run beside workers and frontend; on Slurm each is a job without GPUs."""
    groups = services.service_groups(spec, site.run_dir, site.uid, frontend=front)
    if not isinstance(spec.backend, SlurmDeployment):
        return groups
    resources = Resources(time_limit_s=terms.limit_s(spec))
    return tuple(
        group.model_copy(update={
            "command": _inside(spec, group.command, services.image_of(spec, group.name), site),
            "resources": resources, "pools": _beside(spec), "silence_s": silence_s(spec),
        })
        for group in groups
    )  # fmt: skip


def _beside(spec: DeploymentSpec) -> tuple[Pool, ...]:
    """Where on Slurm what needs no GPU runs: empty is where the workers do."""
    name = spec.backend.frontend_partition if isinstance(spec.backend, SlurmDeployment) else None
    return (Pool(name=name, place={"partition": name}),) if name else ()


def _gate(site: DeploymentSite, after: str) -> Group:
    """What asks once, as a client does, on the machine of the host; it ends well when it was answered."""
    return Group(
        name=GATE,
        role=Role.GATE,
        count=1,
        command=Command(argv=(site.python, *enter.words("gate"), site.name), env={"REMUDA_HOME": site.state}),
        restart=RestartRule(policy="never"),
        replace=Replace(policy="on-failure", max_failures=3, backoff_initial_s=1.0),
        backend="local",
        after=(after,),
    )


def _inside(
    spec: DeploymentSpec, command: Command, image: str, site: DeploymentSite, role: DeployedRole | None = None
) -> Command:
    """The command in its image, with the folders that it sees there."""
    if not image:
        return command
    backend = spec.backend
    steps = _options(backend.srun_options if isinstance(backend, SlurmDeployment) else {}, "backend.srun_options")
    steps += _options(role.srun_options if role else {}, "roles")
    return command.model_copy(update={
        "image": image, "mounts": tuple(mounts_of(spec, site.run_dir).values()), "step_args": steps,
        "needs": {image: "image"} if image.startswith("/") else {},
    })  # fmt: skip


def mounts_of(spec: DeploymentSpec, run_dir: str) -> dict[str, str]:
    """Folders that containers see: path inside -> mount. Model and logs are also where srtctl's recipes know them."""
    own, model = {run_dir: run_dir, "/logs": f"{run_dir}:/logs"}, spec.model.path
    if model.startswith("/"):
        own = {model: model, "/model": f"{model}:/model", **own}
    said = {inside.partition(":")[0].rstrip("/"): f"{outside}:{inside}" for outside, inside in spec.mounts.items()}
    return {**own, **said}


def _options(said: Mapping[str, Any], where: str, quoted: Callable[[str], str] = str) -> tuple[str, ...]:
    """Options of Slurm's commands as they write them: `--name=value`, or `--name` alone.

    Raises:
        InputError: one has a name that no option has.
    """
    for key in said:
        if not _OPTION.fullmatch(key):
            raise InputError(f"{key!r} is not an option of Slurm", where=where)
    names = {key: value for key, value in said.items() if value is not None and value is not False}
    return tuple(
        f"--{key.lstrip('-').replace('_', '-')}" + ("" if value is True or value == "" else f"={quoted(str(value))}")
        for key, value in names.items()
    )


def _resources(spec: DeploymentSpec, shape: Shape) -> Resources:
    if not isinstance(spec.backend, SlurmDeployment):
        return Resources(gpus=shape.gpus)
    whole = bool(shape.gpus) and shape.gpus_on_node == spec.gpus_per_node
    return Resources(gpus=shape.gpus_on_node, nodes=shape.nodes, whole_nodes=whole, time_limit_s=terms.limit_s(spec))


def _network(spec: DeploymentSpec) -> dict[str, str]:
    """The interface that collectives use, where the cluster names one."""
    name = spec.backend.network_interface if isinstance(spec.backend, SlurmDeployment) else None
    return dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), name) if name else {}


def _place(spec: DeploymentSpec) -> dict[str, object]:
    """What only the backend understands; what is empty is left out."""
    backend = spec.backend
    if not isinstance(backend, SlurmDeployment):
        return {"gpus": list(backend.gpus)} if backend.gpus is not None else {}
    place = SlurmPlace(
        partition=backend.partition or "",
        account=backend.account or "",
        qos=backend.qos or "",
        exclude_nodes=backend.exclude_nodes or "",
        directives=_options(backend.sbatch_directives, "backend.sbatch_directives", shlex.quote),
    )
    return dict(place.model_dump(mode="json", exclude_defaults=True))


def _notes(spec: DeploymentSpec, shapes: Mapping[str, Shape]) -> tuple[str, ...]:
    """What is done otherwise than the recipe may suggest, a sentence each."""
    notes = [shape.idle for shape in shapes.values() if shape.idle]
    if spec.frontend.replicas > 1 and not has_balancer(spec):
        notes.append(f"frontend.replicas is {spec.frontend.replicas}: one is started, and restarted where it dies")
    if spec.frontend.type in ("sglang-router", "vllm-router"):
        notes.append(f"frontend.type is {spec.frontend.type}: smg is started, which speaks to the same workers")
    notes += terms.notes(spec)
    if any(getattr(spec.engine_of(name), "dp_launch_mode", "per_node") != "per_node" for name in spec.by_name()):
        notes.append("engine.dp_launch_mode: a worker is one process a node, which starts a rank for each of its GPUs")
    if not spec.backend.is_here:
        theirs = dict.fromkeys(image_of(spec, name) for name in spec.by_name())
        if spec.frontend.type == "dynamo" and spec.dynamo.install:
            notes += [f"dynamo.install: nothing is installed when workers start, and {image} must have Dynamo"
                      for image in theirs if image and "dynamo" not in image.lower()]  # fmt: skip
        if spec.allocation != "one-job" and any(role.nodes == "colocate" for role in spec.by_name().values()):
            notes.append("roles.decode.nodes: each worker is a job of its own, and Slurm chooses its nodes")
        if any(isinstance(spec.engine_of(name), MockerEngine) for name in spec.by_name()):
            notes.append("engine mocker: workers ask for no GPUs")
    else:
        if spec.allocation == "one-job":
            notes.append("allocation is one-job: on this machine workers are processes, each for itself")
        images = [spec.container, *(role.container for role in spec.by_name().values()),
                  *(service.container for service in spec.services if service.enabled)]  # fmt: skip
        found = dict.fromkeys(image for image in images if image)
        notes += [f"container {image} is not used: workers on this machine run by `python`" for image in found]
    return tuple(notes)


def _fatal_lines(spec: DeploymentSpec, engine: str) -> tuple[str, ...]:
    """Lines that end the wait for a worker: the engine's, and the recipe's.

    Raises:
        InputError: the recipe's is not a regular expression.
    """
    check = spec.health_check
    for pattern in check.extra_fatal_log_patterns:
        try:
            re.compile(pattern.encode())  # As the node program does, which looks at bytes.
        except re.error as error:
            raise InputError(f"{pattern!r} is not a regular expression: {error}",
                             where="health_check.extra_fatal_log_patterns") from error  # fmt: skip
    return (*(ENGINES[engine].fatal if check.fatal_log_markers else ()), *check.extra_fatal_log_patterns)


def _wait_s(spec: DeploymentSpec) -> float:
    return max(1.0, spec.health_check.max_attempts * spec.health_check.interval_seconds)
