"""From a deployment's spec to the workload that backends and the supervisor see. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.plan.deployment.dynamo import environment, worker_command
from remuda.plan.deployment.services import addressed, gates, service_groups, terminal
from remuda.plan.engines.base import secret
from remuda.plan.model import Endpoint, Group, Kind, Listen, Probe, Replace, Resources, Role, Workload
from remuda.specs.deployment import MockerEngine

if TYPE_CHECKING:
    from remuda.specs.deployment import DeployedRole, DeploymentSpec

FRONTEND: Final = "frontend"
ROLES: Final = {"prefill": Role.PREFILL, "decode": Role.DECODE, "agg": Role.REPLICA}
PORT: Final = 8000
WAIT_S: Final = 600.0


def refuse_what_is_not_built(spec: DeploymentSpec) -> None:
    """What can be read and not be brought up yet.

    Raises:
        InputError: says what, and what to do instead; `where` is the field's path.
    """
    if spec.backend.type != "local":
        raise InputError(
            "a deployment can be brought up on this machine only yet", hint="try it here: --backend local",
            where="backend.type",
        )  # fmt: skip
    for name in spec.by_name():
        engine = spec.engine_of(name)
        if not isinstance(engine, MockerEngine):
            raise InputError(
                f"the engine of {name} is {engine.type}, and only Dynamo's mocker can be brought up yet",
                hint="check the recipe with remuda resolve", where="engine.type",
            )  # fmt: skip
    if spec.frontend.type != "dynamo" or spec.frontend.replicas > 1:
        raise InputError("one frontend of type dynamo can be brought up yet", where="frontend.type")


def plan_deployment(
    spec: DeploymentSpec, front: Group, *, name: str, uid: str, run_dir: str, python: str, spec_file: str = ""
) -> Workload:
    """Plan a deployment: a group for each role, the frontend after them, and the services that they need.

    Args:
        spec: as loaded, with the names of models and images resolved.
        front: group of the frontend, ready-made.
        name: of the deployment.
        uid: random, new for every creation.
        run_dir: absolute directory for what its tasks write.
        python: interpreter that has the engine.
        spec_file: where the user wrote the spec, for messages.

    Raises:
        InputError: it cannot be brought up; `where` is the field's path.
    """
    refuse_what_is_not_built(spec)
    discovery = f"{run_dir}/discovery/{uid}"
    workers = tuple(_workers(spec, name, role, python, discovery) for name, role in spec.by_name().items())
    listen = Listen(port=spec.frontend.port or PORT, fixed=spec.frontend.port is not None,
                    public=spec.frontend.host != "127.0.0.1")  # fmt: skip
    command = front.command.model_copy(
        update={"env": {**environment(spec, discovery), **spec.env, **spec.frontend.env}, "secret_env": _secrets(spec)}
    )
    front = front.model_copy(update={"command": command, "listen": listen, "after": tuple(one.name for one in workers)})
    services = service_groups(spec, run_dir, uid, frontend=front.name)
    workers = tuple(one.model_copy(update={"after": gates(spec)}) for one in workers)
    return Workload(
        name=name,
        kind=Kind.DEPLOYMENT,
        uid=uid,
        backend=spec.backend.type,
        groups=addressed(spec, (*workers, front, *services)),
        ends_with=terminal(spec),
        endpoint=Endpoint(
            host=spec.frontend.host, port=listen.port, router=front.name, model=spec.model.name or "", ready="all",
            wait_s=_wait_s(spec),
        ),
        run_dir=run_dir,
        spec_file=spec_file,
        labels={"engine": "mocker", "model": spec.model.path, "router": "dynamo", "discovery": discovery},
    )  # fmt: skip


def _workers(spec: DeploymentSpec, name: str, role: DeployedRole, python: str, discovery: str) -> Group:
    command = worker_command(spec, name, role, python, discovery)
    return Group(
        name=name,
        role=ROLES[name],
        count=role.workers,
        command=command.model_copy(update={"secret_env": _secrets(spec)}),
        resources=Resources(),
        listen=Listen(),
        probe=Probe(path="/health", interval_s=5.0, timeout_s=5.0, startup_timeout_s=_wait_s(spec)),
        replace=Replace(),
        metrics_path="/metrics",
        scan_log=True,
    )


def _secrets(spec: DeploymentSpec) -> dict[str, object]:
    return {name: secret(source) for name, source in spec.secret_env.items()}


def _wait_s(spec: DeploymentSpec) -> float:
    return max(1.0, spec.health_check.max_attempts * spec.health_check.interval_seconds)
