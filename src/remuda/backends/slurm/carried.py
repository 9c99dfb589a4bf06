"""Allocations on nodes that share no directory with the head: their job has no content, and asks its node's client."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuda.backends.base import Life, Observed, Rendered
from remuda.backends.rundir import allocation_dir
from remuda.backends.slurm.observing import first_node
from remuda.backends.slurm.render import SCRIPT, SlurmSite, argv_alone, child_of, place_of
from remuda.backends.slurm.script import SLURMS_ENVIRONMENT
from remuda.base.errors import InputError
from remuda.wire.carrying import ADDRESS_MARK, DOCUMENT, PYTHON_MARK, SILENT_S

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.backends.base import Request
    from remuda.backends.slurm.parsing.parse import QueueLine
    from remuda.plan.placing.place import SlurmPlace

OWED_S = 120.0
"""For so long after a job's end its node may still owe the last word."""
_HINT = "give all machines of the fleet the head's state directory at the same path"
_CALL = 'exec "${SLURM_CONF%/*}/remuda-carried"'
"""What the client of the node has put beside its slurm.conf."""


def render(request: Request, site: SlurmSite) -> Rendered:
    """Say what submits `request`, which is carried.

    Raises:
        InputError: it cannot be carried, or Slurm cannot be asked for it.
    """
    place = place_of(request)
    _check(request, place)
    folder = allocation_dir(site.workloads, request.token)
    child, _ = child_of(request, place, site, folder)
    child = replace(child, fence_file="", previous_dir="", guard=None, host_file="", port_locks_own="", copy_to="")
    if request.group.listen is not None:
        argv = [PYTHON_MARK if word == sys.executable else word for word in child.argv]
        every_s = child.beat_s or child.report_every_s  # there is no line: files alone say that it lives
        child = replace(child, advertise_host=ADDRESS_MARK, argv=argv, report_every_s=every_s)
    script = folder / SCRIPT
    directives = [f"#SBATCH {option}" for option in place.directives]
    lines = ["#!/bin/sh", *directives, f"export REMUDA_TOKEN={request.token}", SLURMS_ENVIRONMENT, _CALL]
    call = tuple(_without_paths(word) for word in argv_alone(request, place, folder, script))
    return Rendered(
        request.token, call, {str(folder / DOCUMENT): child.to_json(), str(script): "\n".join(lines) + "\n"}
    )


def _without_paths(word: str) -> str:
    """A word of the call without what only the head has."""
    return {"--chdir": "--chdir=/", "--output": "--output=/dev/null"}.get(word.partition("=")[0], word)


def _check(request: Request, place: SlurmPlace) -> None:
    """See that a node can do it with files of its own.

    Raises:
        InputError: it cannot.
    """
    group = request.group
    if group.resources.nodes > 1 or group.spread is not None or request.workload.pack is not None:
        raise InputError("what spans several nodes needs a directory that they share, and the nodes of this fleet have "
                         "files of their own", where="nodes", hint=_HINT)  # fmt: skip
    if "DYN_FILE_KV" in group.command.env:
        raise InputError("parts of Dynamo would find each other by files, and the nodes of this fleet have files of "
                         "their own", where="dynamo.discovery", hint=f"set it to `etcd`, or {_HINT}")  # fmt: skip
    usual = f"{str(request.workload.place.get('home')).rstrip('/')}/logs"  # derived, and of the head alone
    said = {"output": place.output or place.error, "modules": place.modules, "preamble": place.preamble,
            "requeue": place.requeue, "log_directory": place.log_directory.removeprefix(usual),
            "image": group.command.image}  # fmt: skip
    for name, value in said.items():
        if value:
            raise InputError(f"nodes of this fleet have files of their own, where {name!r} means nothing", where=name,
                             hint=f"leave it out, or {_HINT}")  # fmt: skip


def is_silent(kept: Mapping[str, Any], heard: Path, now: float) -> bool:
    """Whether the node that has an allocation was not heard for a while.

    Args:
        kept: what is noted of it.
        heard: with a file for each node.
        now: wall time.
    """
    if not kept:
        return False
    try:
        # A clock that was set back makes it look as one of the future.
        return abs(now - os.stat(f"{heard}/{kept['node']}").st_mtime) > SILENT_S  # noqa: PTH116 - at every poll
    except OSError:
        return True


def owed(kept: Mapping[str, Any], line: QueueLine, now: float) -> Observed | None:
    """A job that has ended while its node has not yet said all of it; None when it has, or had the time. Pure."""
    is_whole = not kept or kept.get("done") or abs(now - line.ends_at) > OWED_S
    if is_whole or line.state not in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"):
        return None
    return Observed(
        Life.RUNNING, line.job_id, "COMPLETING", first_node(line.nodes), "its node has not said yet how it ended",
        started_at=line.started_at, unread=True,
    )  # fmt: skip
