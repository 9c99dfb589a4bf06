"""Remembers that an endpoint was announced: what it loses afterwards makes it degraded, not starting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.supervise.reconciler import Due, Moment, Reconciler
from remuda.supervise.summary import UP, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.host.service import Service

_AGAIN_S = 1.0
"""While only the router is missing, whose answer is no news for the loop."""


class Announcer(Reconciler[str, bool]):
    """Looks at each workload with an endpoint once its tasks are ready, as a person would."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def due(self, at: Moment) -> Due[str, bool]:
        """Announced when it is up for the first time, and not any more when it is taken down."""
        want, name = at.want, at.want.workload.name
        if want.workload.endpoint is None or want.announced == want.running:
            return Due()
        if want.announced:
            return Due({name: False})
        if summarise(want, at.tasks).phase not in UP:
            return Due()
        return Due({name: True}) if self._service.view(name).phase in UP else Due(again_s=_AGAIN_S)

    def act(self, actions: Mapping[str, bool]) -> None:
        """Record it."""
        for name, announced in actions.items():
            self._service.announce(self._service.supervisor.wants[name], announced=announced)
