"""What a document's watchdog says, as fields of a group. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.units import parse_interval
from remuda.plan.model import HealthProbe, Replace, RestartRule
from remuda.wire.spread import EXTRA_GRACE_S

if TYPE_CHECKING:
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.service import Restarts, Watchdog
    from remuda.specs.swarm import SwarmSpec


def watched(
    spec: SwarmSpec | DeploymentSpec, nodes: int, path: str, bearer: str = "", *, start_s: float = 600.0
) -> dict[str, Any]:
    """How servers of so many nodes each are watched, restarted and recorded, as fields of their group.

    `path` answers when the engine can take requests; `bearer` names the secret variable whose value opens it.
    `start_s` is how long the start may take where the watchdog does not say it.
    """
    dog = spec.watchdog
    probe = HealthProbe(
        path=dog.http_path or path, interval_s=dog.probe_interval, timeout_s=dog.http_timeout, bearer=bearer,
        startup_timeout_s=start_s if dog.readiness_timeout is None else dog.readiness_timeout,
        stall_s=dog.stall_after, unhealthy_restart_after_s=dog.unhealthy_restart_after,
    )  # fmt: skip
    restart = RestartRule(
        policy=dog.restart_policy if dog.enabled else "never", max_restarts=dog.max_restarts,
        backoff_initial_s=dog.restart_backoff_initial,
        backoff_max_s=max(dog.restart_backoff_max, dog.restart_backoff_initial), heal_after_s=dog.heal_after,
    )  # fmt: skip
    replace = Replace(policy=replacing(dog), max_failures=dog.max_replacements, heal_after_s=dog.heal_after)
    return {
        "probe": probe if dog.enabled else None, "restart": restart, "replace": replace,
        "kill_grace_s": dog.kill_grace_seconds + (EXTRA_GRACE_S if nodes > 1 else 0.0), "scan_log": True,
        "log_level": dog.log_level or spec.log_level, "silence_s": silence_s(spec),
        "record_interval_s": parse_interval(spec.profile or 0),
    }  # fmt: skip


def replacing(watchdog: Watchdog) -> Restarts:
    """Whether a new allocation replaces one that was given up or lost."""
    stays_down = watchdog.restart_policy == "never" or not watchdog.enabled
    return watchdog.replace or ("never" if stays_down else "always")


def silence_s(spec: SwarmSpec | DeploymentSpec) -> float:
    """After how long a silence a task is begun again; 0 on this machine, where its processes are seen."""
    return spec.watchdog.silence_after if not spec.backend.is_here else 0.0
