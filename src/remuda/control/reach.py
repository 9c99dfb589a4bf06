"""Whether the host reaches the cluster that a command sends work to; the command's own environment may differ."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from remuda.base.ids import api_path
from remuda.control.client import HostClient, connect
from remuda.supervise.facts import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOOK_AGAIN_S = 0.02


def silence(view: Mapping[str, Any], client: HostClient | None = None, *, limit_s: float = 3.0) -> str:
    """What kept the host from submitting the first task of a new workload; empty when nothing did, or not yet.

    Args:
        view: of the workload, as it was accepted.
        client: of the host.
        limit_s: how long to wait for the first word of the scheduler.
    """
    host = client or connect()
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        task: Mapping[str, Any] = next(iter(view["tasks"]), {})
        if task.get("native") or task.get("phase") not in (None, "submitting"):
            return ""
        reason = str(task.get("reason", ""))
        if said := view["unreachable"] or (reason if reason.startswith(UNANSWERED) else ""):
            return str(said).removeprefix(UNANSWERED)
        time.sleep(_LOOK_AGAIN_S)
        view = host.get(api_path(view["name"]))
    return ""
