"""From a request to the files and the command that start it on this machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.backends.base import Rendered, Request, read_token
from remuda.base.errors import InputError
from remuda.wire.child import ChildSpec, HealthProbe, RestartRule

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.plan.model import Group

LOOPBACK = "127.0.0.1"


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


def allocation_dir(workloads: Path, token: str) -> Path:
    """Directory of one allocation. Only the token is needed, so a crash cannot lose it."""
    parts = read_token(token)
    return workloads / parts.workload / f"{parts.group}-{parts.index}" / f"attempt-{parts.attempt}-{parts.uid}"


def render(request: Request, site: LocalSite) -> Rendered:
    """Say what starts `request`: the child document, and the node program's command line.

    Raises:
        InputError: more GPUs than the workload was given.
    """
    folder = allocation_dir(site.workloads, request.token)
    group, workload = request.group, request.workload
    env = _text_map(workload.place.get("env")) | dict(group.command.env) | _devices(request)
    listen = group.listen
    child = ChildSpec(
        token=request.token,
        workload=workload.name,
        task=f"{request.key.group}/{request.key.index}",
        attempt=request.attempt,
        argv=list(group.command.argv),
        run_dir=str(folder),
        env=env,
        secret_env={
            name: {"file": ref.file} if ref.file else {"env": ref.env} for name, ref in group.command.secret_env.items()
        },
        cwd=group.command.cwd,
        port=(listen.port or 20000) if listen else 0,
        port_fixed=bool(listen and listen.fixed),
        port_locks=str(site.port_locks),
        bind_host="0.0.0.0" if listen and listen.public else LOOPBACK,  # noqa: S104 - asked for by the user
        probe=_probe(group),
        restart=RestartRule(**group.restart.model_dump()),
        kill_grace_s=group.kill_grace_s,
        host_file=str(site.host_file),
        log_level=group.log_level,
        metrics_path=group.metrics_path,
    )
    spec = folder / "child.json"
    return Rendered(
        token=request.token,
        argv=(site.python, "-I", "-S", str(site.node_program), "child", str(spec)),
        files={str(spec): child.to_json()},
        env={"REMUDA_TOKEN": request.token},
    )


def _probe(group: Group) -> HealthProbe | None:
    return HealthProbe(**group.probe.model_dump()) if group.probe else None


def _devices(request: Request) -> dict[str, str]:
    """The GPUs that this task was given when the workload was accepted."""
    wanted = request.group.resources.gpus
    if not wanted:
        return {}
    devices = request.workload.place.get("devices")
    of_group = devices.get(request.group.name) if isinstance(devices, dict) else None
    if not isinstance(of_group, list) or request.key.index >= len(of_group):
        raise InputError(f"{request.key} needs {wanted} GPUs, and none were assigned to it on this machine")
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(device) for device in of_group[request.key.index])}


def _text_map(value: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in value.items()} if isinstance(value, dict) else {}
