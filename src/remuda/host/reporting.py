"""Where node programs reach the host: this machine's address towards the nodes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from typing import TYPE_CHECKING

from remuda.base.settings import setting
from remuda.fleet.addresses import resolved, towards

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK = "127.0.0.1"
_ASK_S = 3.0
_CONTROLLER = re.compile(r"^SlurmctldHost\[0\]\s*=\s*([\w.\-]+)(?:\(([^)]+)\))?", re.MULTILINE)


def report_host(environ: Mapping[str, str] = os.environ) -> str:
    """An address of this machine as text, to listen on and to tell nodes; `environ` is that of Slurm's commands.

    `REMUDA_REPORT_HOST` when it is set. In a pod of Kubernetes its address, which others there reach. On a machine with
    Slurm the address from which its controller is reached, because nodes are on that network, too; otherwise loopback,
    so that nothing is opened to others.
    """
    said = setting("REPORT_HOST")
    if said:
        return resolved(said) or LOOPBACK
    if api := os.environ.get("KUBERNETES_SERVICE_HOST"):
        return towards(api) or LOOPBACK
    if shutil.which("scontrol", path=environ.get("PATH")) is None:
        return LOOPBACK
    controller = site_controller(environ)
    own = towards(controller) if controller else ""
    return own or resolved(socket.gethostname()) or LOOPBACK


def site_controller(environ: Mapping[str, str]) -> str:
    """Address of Slurm's controller, empty when nobody answers."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=_ASK_S, check=False,
            stdin=subprocess.DEVNULL, env=dict(environ),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return controller_in(done.stdout)


def controller_in(config: str) -> str:
    """Address of the first controller in the output of `scontrol show config`; empty when it names none."""
    found = _CONTROLLER.search(config)
    return (found.group(2) or found.group(1)) if found else ""
