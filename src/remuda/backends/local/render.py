"""From a request to the files and the command that start it on this machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.backends.base import Rendered, Request
from remuda.backends.container import in_image
from remuda.backends.rundir import OWN_LOCKS, allocation_dir, child_spec, text_map
from remuda.base.errors import InputError
from remuda.wire.child import DEVICES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from remuda.plan.model import Group

LOOPBACK = "127.0.0.1"
ORDER = "CUDA_DEVICE_ORDER"


@dataclass(frozen=True)
class LocalSite:
    """What this machine's allocations have in common."""

    workloads: Path
    """Parent of the run directories."""
    node_program: Path
    """The zipapp."""
    python: str
    """Interpreter that runs it (3.9 or newer)."""
    host_file: Path
    port_locks: Path


def render(request: Request, site: LocalSite) -> Rendered:
    """Say what starts `request`: the child document, and the node program's command line.

    Raises:
        InputError: more GPUs than the workload was given, or an image that nothing here starts.
    """
    folder = allocation_dir(site.workloads, request.token)
    of_user = text_map(request.workload.place.get("env"))
    group, files = in_image(_in_order(request.group, of_user), folder)
    request = replace(request, group=group)
    env = of_user | dict(request.group.command.env) | _devices(request)
    listen = request.group.listen
    child = child_spec(
        request,
        folder,
        env=env,
        port_locks=str(site.port_locks),
        port_locks_own=str(site.workloads.parent / OWN_LOCKS),
        bind_host="0.0.0.0" if listen and listen.public else LOOPBACK,  # noqa: S104 - asked for by the user
        host_file=str(site.host_file),
    )
    spec = folder / "child.json"
    return Rendered(
        token=request.token,
        argv=(site.python, "-I", "-S", str(site.node_program), "child", str(spec)),
        files={**files, str(spec): child.to_json()},
        env={"REMUDA_TOKEN": request.token},
    )


def _in_order(group: Group, of_user: Mapping[str, str]) -> Group:
    """CUDA counts GPUs as `nvidia-smi` and recordings do, and not the fastest first, unless its user says otherwise."""
    if not group.resources.gpus or ORDER in of_user:
        return group
    command = group.command
    env = {ORDER: "PCI_BUS_ID", **command.env}
    return group.model_copy(update={"command": command.model_copy(update={"env": env})})


def _devices(request: Request) -> dict[str, str]:
    """The GPUs that this task was given when the workload was accepted."""
    wanted = request.group.resources.gpus
    if not wanted:
        return {}
    devices = request.workload.place.get("devices")
    of_group = devices.get(request.group.name) if isinstance(devices, dict) else None
    place = request.group.place_of(request.key.index)
    if not isinstance(of_group, list) or place >= len(of_group):
        raise InputError(f"{request.key} needs {wanted} GPUs, and none were assigned to it on this machine")
    return {DEVICES: ",".join(str(device) for device in of_group[place])}
