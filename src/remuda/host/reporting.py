"""Where node programs reach the host: this machine's address towards the nodes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess

from remuda.base.settings import setting

LOOPBACK = "127.0.0.1"
_ASK_S = 3.0
_CONTROLLER = re.compile(r"^SlurmctldHost\[0\]\s*=\s*([\w.\-]+)(?:\(([^)]+)\))?", re.MULTILINE)


def report_host() -> str:
    """An address of this machine as text, to listen on and to tell nodes.

    `REMUDA_REPORT_HOST` when it is set. In a pod of Kubernetes its address, which others there reach. On a machine with
    Slurm the address from which its controller is reached, because nodes are on that network, too; otherwise loopback,
    so that nothing is opened to others.
    """
    said = setting("REPORT_HOST")
    if said:
        return _resolved(said) or LOOPBACK
    if api := os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _towards(api) or LOOPBACK
    if shutil.which("scontrol") is None:
        return LOOPBACK
    controller = _controller()
    own = _towards(controller) if controller else ""
    return own or _resolved(socket.gethostname()) or LOOPBACK


def _controller() -> str:
    """Address of Slurm's controller, empty when nobody answers."""
    try:
        done = subprocess.run(
            ["scontrol", "show", "config"], capture_output=True, text=True, timeout=_ASK_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return controller_in(done.stdout)


def controller_in(config: str) -> str:
    """Address of the first controller in the output of `scontrol show config`; empty when it names none."""
    found = _CONTROLLER.search(config)
    return (found.group(2) or found.group(1)) if found else ""


def _towards(host: str) -> str:
    """This machine's address on the way to `host`; nothing is sent."""
    address = _resolved(host)
    if not address:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def _resolved(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError:
        return ""
