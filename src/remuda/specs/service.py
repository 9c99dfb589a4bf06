"""What a document says of the service that it asks for, be it a swarm or a deployment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer

from remuda.specs.strict import Interval, Seconds, SecretSource, Strict, Text

Restarts = Literal["always", "on-failure", "never"]
LogLevel = Literal["debug", "info", "warning", "error"]


class RayWatch(Strict):
    """Supervision through Ray of replicas that span nodes."""

    enabled: bool = False
    """Ask Ray, too, not only the server, for as long as the replica runs."""
    expected_tp: int | None = None
    """GPUs that Ray must have; unset: all of the replica's nodes."""
    probe_timeout_s: Seconds = 120.0
    """Limit of one question to Ray."""
    status_grace_s: Seconds = 10.0
    """Time for which Ray must be healthy before the server starts."""
    probe_interval_s: Seconds = 30.0
    """Time between two questions to Ray."""


class Watchdog(Strict):
    """Supervision, restarts in place and replacement of each server (replica of a swarm, worker of a deployment)."""

    enabled: bool = True
    """`false`: no probes and no restarts in place; a replica counts as ready as soon as it runs."""
    probe_interval: Seconds = 30.0
    """Time between two probes of a ready replica."""
    http_path: Text | None = Field(default=None, json_schema_extra={"derived": "`/health`, or the engine's own"})
    """Path that is probed; the leading `/` may be left out."""
    http_timeout: Seconds = 2.0
    """Limit of one probe."""
    readiness_timeout: Seconds | None = 600.0
    """Time from start to the first good probe, after which the server is restarted."""
    restart_policy: Restarts = "on-failure"
    """Condition for a restart in place."""
    unhealthy_restart_after: Seconds = 120.0
    """Time for which a replica that was ready may be unhealthy before its restart. 0: never for this reason."""
    max_restarts: int = Field(default=3, ge=0)
    """Restarts in place before the allocation is ended."""
    restart_backoff_initial: Seconds = 5.0
    """Wait before the first restart."""
    restart_backoff_max: Seconds = 60.0
    """Longest wait before a restart; it doubles each time up to this."""
    kill_grace_seconds: Seconds = 10.0
    """Time between asking the server to end and killing it."""
    log_level: LogLevel | None = Field(
        default=None, json_schema_extra={"derived": "`info`, or the document's `log_level`"}
    )
    """Log level of the watchdog."""
    ray: RayWatch = RayWatch()
    """Replicas of a swarm that span nodes."""
    stall_after: Seconds = 120.0
    """Time without a log line or CPU use after which a starting server is taken to hang. 0: never."""
    heal_after: Seconds = 600.0
    """Time in health after which a replica gets its restarts back."""
    silence_after: Seconds = 60.0
    """Time without a report after which a replica on a cluster is replaced elsewhere, if others report; 0: never.
    Requests stop much earlier."""
    replace: Restarts | None = Field(
        default=None, json_schema_extra={"derived": "`never` when nothing is restarted in place, else `always`"}
    )
    """Replacement of an allocation that failed or was lost, by a new one."""
    max_replacements: int = Field(default=5, ge=0)
    """Failures in a row after which a replica is no longer replaced. Preemption, a failure of its node and a
    scheduler that lost it do not count."""

    @field_validator("http_path")
    @classmethod
    def _rooted(cls, path: str | None) -> str | None:
        return path if path is None or path.startswith("/") else f"/{path}"


class DeployedWatchdog(Watchdog):
    """Supervision, restarts in place and replacement of each worker."""

    probe_interval: Seconds = 5.0
    http_timeout: Seconds = 5.0
    readiness_timeout: Seconds | None = Field(
        default=None, json_schema_extra={"derived": "`max_attempts` × `interval_seconds` of `health_check`"}
    )
    kill_grace_seconds: Seconds = 20.0


class ServiceFields(Strict):
    """Fields that swarms and deployments share: access to the endpoint, lifetime and supervision."""

    api_key: SecretSource | None = None
    """Key that clients of the endpoint must send: `{file: PATH}` or `{env: NAME}`."""
    ready: Literal["first", "all"] = "first"
    """The endpoint is announced when the first replica, or the first worker of each role, answers, or when all do."""
    lifetime: Seconds = 0.0
    """Time for which it serves, beyond the time limits of its jobs: successors are submitted before they end, and take
    over when they are ready. Then it is taken down. 0: unlimited, each job replaced after its end. On this machine
    nothing limits the time of its parts, and `lifetime` only takes it down."""
    handover: Seconds | None = Field(
        default=None,
        json_schema_extra={"derived": "a quarter of each job's time limit, at most `2h`; more where the queue is long"},
    )
    """Time before a job's time limit to submit its successor, with `lifetime`; it must cover queue and start."""
    drain: Seconds = 600.0
    """Longest time for which a job that has a successor finishes requests that it has begun."""
    idle_timeout: Seconds = 0.0
    """Time without a request to its endpoint after which it is taken down. 0: never."""
    log_level: LogLevel = "info"
    """Log level of the router and of remuda's programs beside the servers."""
    watchdog: Watchdog = Watchdog()
    """Supervision and restarts of servers."""
    profile: Interval = ""
    """GPU sampling rate of each server: `10Hz`, `100ms`, `true` for 10 Hz; empty disables recording."""

    @model_serializer(mode="wrap")
    def _own_first(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Whoever reads a document meets what it is before how it is kept."""
        data: dict[str, Any] = serialise(self)
        shared = ServiceFields.model_fields
        own = {name: value for name, value in data.items() if name not in shared}
        return {**own, **data}
