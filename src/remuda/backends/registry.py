"""Puts the parts together. The only place that knows all of them."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from remuda.backends.local.backend import LocalBackend
from remuda.backends.local.render import LocalSite
from remuda.backends.slurm.backend import SlurmBackend
from remuda.backends.slurm.client import SlurmClient
from remuda.backends.slurm.commands import Commands
from remuda.backends.slurm.render import SlurmSite
from remuda.base.errors import located
from remuda.base.settings import setting_with_origin
from remuda.base.units import parse_duration
from remuda.node.zipapp import build_zipapp, deflated, program_path

SLURM_POLL_S, SLURM_HURRY_S = 15.0, 5.0
KUBERNETES_POLL_S = 5.0

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from remuda.backends.base import Backend
    from remuda.base.clock import Clock
    from remuda.base.disk.paths import StatePaths


def install_node_program(paths: StatePaths) -> Path:
    """See that what allocations are started with is there and is exactly ours; its path.

    Raises:
        NotPrivate: somebody else could write it.
        OSError: it cannot be written.
    """
    return build_zipapp(paths.folder(paths.node))


def local_site(paths: StatePaths) -> LocalSite:
    """What allocations on this machine have in common. Whoever starts one calls `install_node_program` first."""
    return LocalSite(
        workloads=paths.workloads,
        node_program=program_path(paths.node),
        python=sys.executable,
        host_file=paths.host_file,
        port_locks=paths.ports,
    )


def backends(paths: StatePaths, clock: Clock | None = None) -> Mapping[str, Backend]:
    """Every backend that this version has, by type; `clock` is the host's.

    Raises:
        InputError: a setting of one cannot be read.
    """
    return {name: make(paths, clock) for name, make in BACKENDS.items()}


def environment(paths: StatePaths) -> Mapping[str, str]:
    """What Slurm's commands are run with: this process's own environment, and the host's fleet where it has one."""
    try:
        fleet: dict[str, str] = json.loads(paths.fleet_environment.read_text())
    except OSError:
        return os.environ
    path = f"{fleet['PATH']}:{os.environ.get('PATH', os.defpath)}"  # of its own version
    return {**os.environ, **fleet, "PATH": path}


def slurm_backend(paths: StatePaths, clock: Clock | None = None) -> SlurmBackend:
    """The host's fleet, else the cluster that this machine's Slurm commands talk to; nothing is asked of it yet.

    Raises:
        InputError: `REMUDA_SLURM_POLL_S` is no duration.
    """
    poll_s = _poll_s("SLURM_POLL_S", SLURM_POLL_S)
    site = SlurmSite(
        workloads=paths.workloads, node_program=program_path(paths.node), host_file=paths.host_file,
        carried_file=paths.fleet_carried,
    )  # fmt: skip
    hurry_s = min(poll_s, SLURM_HURRY_S)
    client = SlurmClient(Commands(environ=partial(environment, paths)))
    return SlurmBackend(site, client, poll_s=poll_s, hurry_s=hurry_s, clock=clock)


def _kubernetes(paths: StatePaths, _: Clock | None) -> Backend:
    """The clusters that this user's kubeconfig knows. Its HTTP client is slow to load, and few commands need it."""
    from remuda.backends.kubernetes.backend import KubernetesBackend
    from remuda.backends.kubernetes.render import KubernetesSite

    user = f"{os.getuid()}@{os.uname().nodename}"
    site = KubernetesSite(workloads=paths.workloads, host_file=paths.host_file, program=deflated, user=user)
    return KubernetesBackend(site, poll_s=_poll_s("KUBERNETES_POLL_S", KUBERNETES_POLL_S))


def _poll_s(name: str, usual_s: float) -> float:
    """What a setting says of the time between two questions, in seconds.

    Raises:
        InputError: it is no duration.
    """
    said, origin = setting_with_origin(name)
    with located(origin):
        return max(0.2, parse_duration(said)) if said else usual_s


BACKENDS: Final[Mapping[str, Callable[[StatePaths, Clock | None], Backend]]] = {
    "local": lambda paths, _: LocalBackend(local_site(paths)), "slurm": slurm_backend, "kubernetes": _kubernetes,
}  # fmt: skip
"""What makes each, by its type."""
