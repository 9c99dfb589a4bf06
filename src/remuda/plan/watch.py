"""What a document's watchdog says, as fields of a group. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.units import parse_interval
from remuda.plan.model import NodeRestart, Probe, Replace
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
    watchdog = spec.watchdog
    probe = Probe(
        path=watchdog.http_path or path,
        interval_s=watchdog.probe_interval,
        timeout_s=watchdog.http_timeout,
        startup_timeout_s=start_s if watchdog.readiness_timeout is None else watchdog.readiness_timeout,
        stall_s=watchdog.stall_after,
        unhealthy_restart_after_s=watchdog.unhealthy_restart_after,
        bearer=bearer,
    )
    restart = NodeRestart(
        policy=watchdog.restart_policy if watchdog.enabled else "never",
        max_restarts=watchdog.max_restarts,
        backoff_initial_s=watchdog.restart_backoff_initial,
        backoff_max_s=max(watchdog.restart_backoff_max, watchdog.restart_backoff_initial),
        heal_after_s=watchdog.heal_after,
    )
    healed = {"max_failures": watchdog.max_replacements, "heal_after_s": watchdog.heal_after}
    return {
        "probe": probe if watchdog.enabled else None, "restart": restart,
        "replace": Replace(policy=replacing(watchdog), **healed),
        "kill_grace_s": watchdog.kill_grace_seconds + (EXTRA_GRACE_S if nodes > 1 else 0.0),
        "log_level": watchdog.log_level or spec.log_level, "silence_s": silence_s(spec), "scan_log": True,
        "record_interval_s": parse_interval(spec.profile or 0),
    }  # fmt: skip


def replacing(watchdog: Watchdog) -> Restarts:
    """Whether a new allocation replaces one that was given up or lost."""
    stays_down = watchdog.restart_policy == "never" or not watchdog.enabled
    return watchdog.replace or ("never" if stays_down else "always")


def silence_s(spec: SwarmSpec | DeploymentSpec) -> float:
    """After how long a silence a task is begun again; 0 on this machine, where its processes are seen."""
    return spec.watchdog.silence_after if not spec.backend.is_here else 0.0
