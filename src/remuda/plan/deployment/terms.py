"""What a deployment's document says of its service: who may ask, for how long, and what of it cannot be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.base.units import show_duration
from remuda.plan.deployment.engines import asks_for_key
from remuda.plan.deployment.preflight import said
from remuda.plan.deployment.services import services
from remuda.plan.engines.base import secret
from remuda.plan.engines.flags import dashed
from remuda.plan.lasting import COUNTING
from remuda.plan.model import Endpoint
from remuda.plan.placing.cluster import seconds
from remuda.plan.relay import EVERYWHERE, LOOPBACK
from remuda.specs.deployment import SlurmDeployment
from remuda.specs.reading.fields import dotted
from remuda.specs.service import RayWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.specs.deployment import DeploymentSpec


def host_of(spec: DeploymentSpec) -> str:
    """Address that the endpoint listens on: everybody's on a cluster where a key is asked for, as that of a swarm."""
    is_open = spec.api_key is not None and not spec.backend.is_here
    return spec.frontend.host or (EVERYWHERE if is_open else LOOPBACK[0])


def limit_s(spec: DeploymentSpec) -> float:
    """Time limit of its jobs; 0 on this machine."""
    backend = spec.backend
    return seconds(backend.time_limit, "backend.time_limit") if isinstance(backend, SlurmDeployment) else 0.0


def asked_as(spec: DeploymentSpec) -> Endpoint:
    """The endpoint as whoever stands in front of the workers is told of it: the model's name, and the key."""
    return Endpoint(model=spec.model.name or "", api_key=secret(spec.api_key) if spec.api_key is not None else None)


def refuse(spec: DeploymentSpec, router: str) -> None:
    """Let pass what can be kept of what is said; `router` stands in front, as `serving` names it (`none`: nobody does).

    Raises:
        InputError: says what cannot, and what to do instead; `where` is the field's path.
    """
    frontend, roles, limit = spec.frontend, spec.by_name(), limit_s(spec)
    engine = spec.engine_of(first := next(iter(roles))).type
    is_measured, own = spec.benchmark.type != "manual", [one.name for one in services(spec) if one.external is None]
    outlives, ends = bool(limit) and spec.lifetime > limit, f"jobs end after {show_duration(limit)}, and"
    counts = {"none": "without a frontend no requests are counted", "dynamo": "Dynamo's frontend does not count"}
    flags = [dotted(one.path) for name in roles if (one := said(spec, name, ("api-key",)))]
    flags += [f"frontend.args.{flag}" for flag in frontend.args if dashed(flag) == "--api-key"]
    manual = "leave it out, or set benchmark.type=manual"
    for is_so, where, sentence, hint in (
        (spec.api_key and router == "none" and not asks_for_key(spec, first), "api_key",
         f"{engine} cannot be given a key in secret, and no router checks it",
         "put smg or nginx before it: `frontend: {type: smg}`"),
        (spec.api_key and flags, "".join(flags[:1]), "a key on a command line is visible to all users",
         "leave it out: `api_key` is enough"),
        (not spec.watchdog.enabled, "watchdog.enabled",
         "a deployment is asked once its workers are ready, and without probes that is unknown",
         "to have nothing restarted in place: `restart_policy: never`"),
        (spec.watchdog.ray != RayWatch(), "watchdog.ray", "workers span nodes without Ray", "leave it out"),
        (spec.lifetime and is_measured, "lifetime", "a deployment with a benchmark ends with it", manual),
        (spec.ready == "first" and is_measured, "ready", "a benchmark is for all workers", manual),
        (spec.idle_timeout and router not in COUNTING, "idle_timeout",
         f"{counts.get(router, f'{router} does not count')} what clients ask", "use the frontend smg"),
        (spec.handover is not None and not (spec.lifetime and limit), "handover",
         "successors are submitted for jobs of a cluster, and with a `lifetime` only", "leave it out"),
        (outlives and spec.allocation == "one-job", "lifetime",
         f"{ends} all parts are one job, which has no successor", "leave it out: the job is replaced after its end"),
        (outlives and frontend.type == "dynamo", "lifetime",
         f"{ends} Dynamo's workers list themselves: none can be taken out before its successor takes over",
         "leave it out: each job is replaced after its end"),
        (outlives and own, "lifetime", f"{ends} the service {''.join(own[:1])} cannot have a successor",
         "use one that runs already (`external`), or leave `lifetime` out"),
    ):  # fmt: skip
        if is_so:
            raise InputError(sentence, hint=hint, where=where)


def notes(spec: DeploymentSpec) -> Iterator[str]:
    """Who can ask without a key, a sentence each."""
    host, keyless = host_of(spec), [name for name in spec.by_name() if not asks_for_key(spec, name)]
    if spec.api_key is None and host not in LOOPBACK:
        yield f"frontend.host is {host}: whoever reaches this machine can ask it, without a key: set `api_key`"
    elif spec.api_key is not None and keyless:
        engines = ", ".join(dict.fromkeys(spec.engine_of(name).type for name in keyless))
        who = "Dynamo's frontend and workers" if spec.frontend.type == "dynamo" else f"workers of {engines}"
        where = "this machine" if spec.backend.is_here else "the nodes"
        yield f"api_key: {who} take none, so whoever reaches their ports on {where} asks them without it"
