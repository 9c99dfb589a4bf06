"""Remembers that an endpoint was announced: what it loses afterwards makes it degraded, not starting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.supervise.summary import UP, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import TaskKey
    from remuda.control.service import Service
    from remuda.supervise.model import Task, Want

_AGAIN_S = 1.0
"""While only the router is missing, whose answer is no news for the loop."""


class Announcer:
    """Looks at each workload with an endpoint once its tasks are ready, as a person would."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def step(self, want: Want, tasks: Mapping[TaskKey, Task]) -> float | None:
        """Record it when it is up for the first time, and forget it when it is taken down."""
        if want.workload.endpoint is None:
            return None
        if want.announced:
            if not want.running:
                self._service.announce(want, announced=False)
            return None
        if not want.running or summarise(want, tasks).phase not in UP:
            return None
        if self._service.view(want.workload.name).phase not in UP:
            return _AGAIN_S
        self._service.announce(want, announced=True)
        return None
