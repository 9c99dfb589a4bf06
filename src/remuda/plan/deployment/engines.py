"""What each worker of a deployment is started with, by its engine and by what stands before it. Pure.

Behind Dynamo's frontend a worker is Dynamo's own program around the engine, and its port says how it is; behind another
frontend it is the engine's server, and its port is the one that is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.plan.deployment import services
from remuda.plan.engines import ENGINES, EngineCommand, Serve
from remuda.plan.engines.base import secret
from remuda.plan.model import HOST_MARK, PORT_MARK, Command, NodeSpan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.plan.deployment.shape import Shape
    from remuda.specs.deployment import DeploymentSpec

HEALTHY_WHEN_IT_GENERATES: Final = '["generate"]'


def render(spec: DeploymentSpec, name: str, shape: Shape, python: str) -> EngineCommand:
    """How a worker of a role is started.

    Args:
        spec: of the deployment.
        name: of the role: `prefill`, `decode` or `agg`.
        shape: of the worker.
        python: interpreter that has the engine.

    Raises:
        InputError: the engine cannot do what is asked, or a flag is the launcher's; `where` is the field.
    """
    role, front, engine = spec.by_name()[name], spec.frontend.type, ENGINES[spec.engine_of(name).type]
    behind_dynamo = front == "dynamo"
    if shape.nodes > 1 and not engine.spans:
        raise InputError(f"{engine.name} cannot be started over {shape.nodes} nodes yet",
                         hint="a worker may have the GPUs of one node", where=f"roles.{name}.gpus")  # fmt: skip
    if not engine.dynamo and (behind_dynamo or name not in engine.alone):
        raise InputError(f"{engine.name} does both in one server and is not a Dynamo worker", where="engine.type",
                         hint="use the role `agg`, and the frontend smg, nginx or none")  # fmt: skip
    if not engine.alone and not behind_dynamo:
        raise InputError(f"the {engine.name} is asked by Dynamo's frontend only", hint="leave `frontend.type` out",
                         where="frontend.type")  # fmt: skip
    if not behind_dynamo and name not in engine.alone:
        raise InputError(f"disaggregated prefill/decode with {engine.name} is not supported behind {front} yet",
                         hint="use Dynamo's frontend, or the role `agg`", where="frontend.type")  # fmt: skip
    return engine.command(Serve(
        python, spec.model.path.removeprefix("hf:"), spec.model.name, name, gpus=shape.gpus, nodes=shape.nodes,
        said=role.args, words=role.extra_args, settings=spec.engine_of(name), frontend=front,
        is_older=services.is_older(spec), kv_events=_events(spec, name), gpu_type=spec.gpu_type,
        on_slurm=not spec.backend.is_here,
        key=secret(spec.api_key) if spec.api_key is not None and asks_for_key(spec, name) else None,
    ))  # fmt: skip


def asks_for_key(spec: DeploymentSpec, name: str) -> bool:
    """Whether servers of a role ask for a key: their engine takes it in secret, and no Dynamo is around it."""
    return spec.frontend.type != "dynamo" and bool(ENGINES[spec.engine_of(name).type].key_env)


def command_of(spec: DeploymentSpec, name: str, server: EngineCommand, env: Mapping[str, str]) -> Command:
    """The command of a worker: what the recipe says for all, then the engine's own, then the role's.

    Args:
        spec: of the deployment.
        name: of the role.
        server: as rendered.
        env: how the parts of Dynamo find each other; empty without Dynamo.
    """
    env = {**env, **spec.env, **server.env}
    if spec.frontend.type == "dynamo":
        env |= {
            "DYN_SYSTEM_HOST": HOST_MARK,
            "DYN_SYSTEM_PORT": PORT_MARK,
            "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": HEALTHY_WHEN_IT_GENERATES,
        }
    env |= spec.by_name()[name].env
    return Command(argv=server.argv, env=env, files=server.files, ranks=server.ranks)


def spread_of(shape: Shape, server: EngineCommand) -> NodeSpan | None:
    """How it spans nodes, by the engine's own ranks; None: it is on one, or the scheduler starts all ranks."""
    if shape.nodes == 1 or server.ranks:
        return None
    return NodeSpan(nodes=shape.nodes, member=list(server.member), head_port=server.head_port)


def _events(spec: DeploymentSpec, name: str) -> dict[str, Any] | None:
    """What is said of publishing what the caches of a role hold; None: they do not."""
    said = spec.by_name()[name].kv_events
    of_engine = getattr(spec.engine_of(name), "kv_events_config", None)
    if isinstance(of_engine, dict):
        of_engine = of_engine.get(name) or of_engine.get({"agg": "aggregated"}.get(name, name))
    return (said if isinstance(said, dict) else {}) if said or of_engine else None
