"""Whether anybody asks an endpoint: what its parts count, compared with what they counted before. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remuda.supervise.model import RUNNING, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.plan.model import Workload
    from remuda.supervise.model import Task

_TOKENS = ("prompt_tokens", "generated_tokens")


@dataclass(frozen=True)
class Reading:
    """What was counted at one moment."""

    counts: Mapping[str, float]
    """By whoever counts: requests, or tokens; only that they change means something."""
    at: float
    """Seconds, of the oldest count."""
    is_busy: bool = False
    """Something is being answered."""


@dataclass(frozen=True)
class Use:
    """When an endpoint was last used, as far as is known."""

    at: float
    """Later rather than earlier than it really was."""
    counts: Mapping[str, float] = field(default_factory=dict)

    def mark(self) -> str:
        """The counts as text; `use_of` reads it."""
        return json.dumps(dict(self.counts), sort_keys=True)


def use_of(at: float, mark: str) -> Use:
    """What was recorded, by this host or another."""
    return Use(at, json.loads(mark) if mark else {})


def taken_in(use: Use, reading: Reading) -> Use:
    """The use after one more reading.

    What began to count anew without ever having been seen beside the one before may have missed a request, so that is
    taken for use.
    """
    was_used = any(
        count != use.counts.get(name, 0.0 if use.counts.keys() & reading.counts.keys() else None)
        for name, count in reading.counts.items()
    )
    if reading.is_busy or was_used:
        return Use(max(use.at, reading.at), reading.counts)
    return replace(use, counts=reading.counts)


def by_router(counts: Mapping[str, tuple[float, float]], at: float, tasks: Iterable[Task]) -> Reading:
    """What routers counted that know a request when they see one.

    Args:
        counts: requests answered and under way, by router.
        at: when they were asked, seconds.
        tasks: of the workload; a replica may still answer what no router counts any more.
    """
    is_busy = any(running > 0 for _, running in counts.values()) or any(_is_busy(task) for task in tasks)
    return Reading({name: requests for name, (requests, _) in counts.items()}, at, is_busy)


def by_replicas(workload: Workload, tasks: Iterable[Task]) -> Reading | None:
    """What the replicas counted; None where one that is ready does not tell."""
    names = {group.name for group in workload.groups if group.role.serves}
    ready = [task for task in tasks if task.key.group in names and task.phase is Phase.READY]
    if not ready or any(not any(name in task.metrics for name in _TOKENS) for task in ready):
        return None
    counts = {f"{task.token}/{task.restarts}": sum(task.metrics.get(name, 0.0) for name in _TOKENS) for task in ready}
    return Reading(counts, min(task.loaded_at for task in ready), any(_is_busy(task) for task in ready))


def _is_busy(task: Task) -> bool:
    return task.phase in RUNNING and (task.metrics.get("running", 0.0) > 0 or task.metrics.get("waiting", 0.0) > 0)
