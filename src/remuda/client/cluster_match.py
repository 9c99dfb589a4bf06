"""Whether the host reaches the cluster that a command sends work to; the command's own environment may differ."""

from __future__ import annotations

import os
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import Conflict
from remuda.client import mirror
from remuda.client.http import HostClient, connect
from remuda.specs.places import traits

if TYPE_CHECKING:
    from collections.abc import Mapping

_USUAL: Final = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/usr/local/etc/slurm.conf")


def check_cluster(host: HostClient, backend: str = "slurm") -> None:
    """See that the host asks the cluster that this command means: a host keeps the environment it was started in.

    Raises:
        Conflict: it asks another one, or none.
    """
    name, view = traits(backend).variable, host.get("/host")
    mine = os.environ.get(name, "")
    theirs = str(view.get(name.lower(), mine))
    has_usual = name == "SLURM_CONF" and any(os.path.exists(path) for path in _USUAL)  # noqa: PTH110
    if theirs == mine or (name == "SLURM_CONF" and not mine) or (not theirs and has_usual):
        return
    said = f"with {name}={theirs}" if theirs else f"without {name}"
    raise Conflict(
        f"the host (pid {view['pid']}) was started {said}, and here it is {mine or 'not set'}",
        hint="start one with this environment: remuda host stop, then remuda host start; what runs keeps running",
    )


def silence(view: Mapping[str, Any], client: HostClient | None = None, *, limit_s: float = 3.0) -> str:
    """What kept the host from submitting the first task of a new workload; empty when nothing did, or not yet.

    Args:
        view: of the workload, as it was accepted.
        client: of the host.
        limit_s: how long to wait for the first word of the scheduler.
    """
    from remuda.supervise.facts import UNANSWERED

    told = (views[0] for views in mirror.wait(client or connect(), [view["name"]], limit_s=limit_s))
    for seen in chain([view], told):
        task: Mapping[str, Any] = next(iter(seen["tasks"]), {})
        if task.get("native") or task.get("phase") not in (None, "submitting"):
            return ""
        reason = str(task.get("reason", ""))
        if said := seen["unreachable"] or (reason if reason.startswith(UNANSWERED) else ""):
            return str(said).removeprefix(UNANSWERED)
    return ""
