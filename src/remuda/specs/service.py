"""What a document says of the service that it asks for, be it a swarm or a deployment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from remuda.specs.strict import Interval, Seconds, SecretSource, Strict, Text

Restarts = Literal["always", "on-failure", "never"]
LogLevel = Literal["debug", "info", "warning", "error"]


class RayWatch(Strict):
    """How replicas of a swarm that span nodes are watched through Ray."""

    enabled: bool = False
    """Ask Ray, too, not only the server, for as long as the replica runs."""
    expected_tp: int | None = None
    """GPUs that Ray must have; unset: all of the replica's nodes."""
    probe_timeout_s: Seconds = 120.0
    """Limit of one question to Ray."""
    status_grace_s: Seconds = 10.0
    """How long Ray must be healthy before the server is started."""
    probe_interval_s: Seconds = 30.0
    """Between two questions."""


class Watchdog(Strict):
    """How each server (a replica of a swarm, a worker of a deployment) is watched, restarted in place, and replaced."""

    enabled: bool = True
    """`false`: no probes and no restarts in place; a replica counts as ready as soon as it runs."""
    probe_interval: Seconds = 30.0
    """Between two probes of a ready replica."""
    http_path: Text | None = Field(default=None, json_schema_extra={"derived": "`/health`, or the engine's own"})
    """Path that is probed; the leading `/` may be left out."""
    http_timeout: Seconds = 2.0
    """Limit of one probe."""
    readiness_timeout: Seconds | None = 600.0
    """From start to the first good probe; later than that, the server is restarted."""
    restart_policy: Restarts = "on-failure"
    """When the server is restarted in place."""
    unhealthy_restart_after: Seconds = 120.0
    """A replica that was ready and is unhealthy for so long is restarted. 0: never for this reason."""
    max_restarts: int = Field(default=3, ge=0)
    """Restarts in place before the allocation is given up."""
    restart_backoff_initial: Seconds = 5.0
    """Wait before the first restart."""
    restart_backoff_max: Seconds = 60.0
    """Longest wait before a restart; it doubles each time up to this."""
    kill_grace_seconds: Seconds = 10.0
    """Between asking the server to end and killing it."""
    log_level: LogLevel | None = Field(
        default=None, json_schema_extra={"derived": "`info`, or the document's `log_level`"}
    )
    """How much the watchdog writes."""
    ray: RayWatch = RayWatch()
    """Replicas of a swarm that span nodes."""
    stall_after: Seconds = 120.0
    """While starting: no line in the log and no CPU used for so long means that the server hangs. 0: never."""
    heal_after: Seconds = 600.0
    """A replica that was healthy for so long gets its restarts back."""
    silence_after: Seconds = 60.0
    """On a cluster: a replica of which nothing is heard for so long, while others are, is replaced elsewhere; 0: never.
    Nothing is sent to it much earlier."""
    replace: Restarts | None = Field(
        default=None, json_schema_extra={"derived": "`never` when nothing is restarted in place, else `always`"}
    )
    """Whether a new allocation replaces one that was given up or lost."""
    max_replacements: int = Field(default=5, ge=0)
    """Failures in a row after which a replica is not replaced any more. Preemption, a failure of its node and a
    scheduler that lost it do not count."""

    @field_validator("http_path")
    @classmethod
    def _rooted(cls, path: str | None) -> str | None:
        return path if path is None or path.startswith("/") else f"/{path}"


class DeployedWatchdog(Watchdog):
    """How each worker is watched, restarted in place, and replaced."""

    probe_interval: Seconds = 5.0
    http_timeout: Seconds = 5.0
    readiness_timeout: Seconds | None = Field(
        default=None, json_schema_extra={"derived": "`max_attempts` × `interval_seconds` of `health_check`"}
    )
    kill_grace_seconds: Seconds = 20.0


class ServiceFields(Strict):
    """What a swarm and a deployment have in common: who may ask, how long it serves, and how it is watched."""

    api_key: SecretSource | None = None
    """Key that clients of the endpoint must send: `{file: PATH}` or `{env: NAME}`."""
    ready: Literal["first", "all"] = "first"
    """The endpoint is announced when the first replica, or the first worker of each role, answers, or when all do."""
    lifetime: Seconds = 0.0
    """How long it shall serve, beyond the time limits of its jobs: successors are submitted before they end, and take
    over when they are ready. Then it is taken down. 0: for ever, each job replaced after its end. On this machine
    nothing limits the time of its parts, and `lifetime` only takes it down."""
    handover: Seconds | None = Field(
        default=None,
        json_schema_extra={"derived": "a quarter of each job's time limit, at most `2h`; more where the queue is long"},
    )
    """With `lifetime`: how long before its time limit a job's successor is submitted; queue and start must fit."""
    drain: Seconds = 600.0
    """Longest time that a job which was succeeded goes on answering what it has begun."""
    idle_timeout: Seconds = 0.0
    """It is taken down when nothing was asked of its endpoint for so long. 0: never."""
    log_level: LogLevel = "info"
    """How much the router and the programs of remuda beside the servers write."""
    watchdog: Watchdog = Watchdog()
    """How servers are watched and restarted."""
    profile: Interval = ""
    """Record what the GPUs of each server do, beside it, so often: `10Hz`, `100ms`, `true` for 10 Hz. Empty: not."""

    @model_serializer(mode="wrap")
    def _own_first(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Whoever reads a document meets what it is before how it is kept."""
        data: dict[str, Any] = serialise(self)
        own = {name: value for name, value in data.items() if name not in ServiceFields.model_fields}
        return {**own, **data}
