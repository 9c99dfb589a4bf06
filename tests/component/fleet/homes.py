"""A head and the machines that join it, each with a state directory of its own, all on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import Home, until
from tests.ports import free_port

from remuda.fleet import membership
from remuda.fleet.processes import Daemons

if TYPE_CHECKING:
    import subprocess

ADDRESS = "127.0.0.1"


class Fleet:
    """One head, and at most one node at a time: a machine has one slurmd an address."""

    def __init__(self) -> None:
        self.head, self.box = (Home(Path(tempfile.mkdtemp(prefix="rf", dir="/tmp"))) for _ in range(2))
        self.port = three_ports()

    @property
    def where(self) -> str:
        """What a user types."""
        return f"{ADDRESS}:{self.port}"

    def begin(self) -> str:
        """Make the head; the token that it prints."""
        return self.head.run("host", "start", "--port", str(self.port), "--host", ADDRESS).stdout.strip()

    def token(self, *words: str) -> str:
        """Another one."""
        return self.head.run("host", "token", *words).stdout.strip()

    def connect(
        self, token: str, *words: str, name: str = "box", check: bool = True, wait: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Join in the background, as the user of the other machine types it."""
        file = self.box.root / "token"
        file.write_text(token)
        words = ("client", "connect", self.where, "--token-file", str(file), "--node-id", name, *words)
        return self.box.run(*words, *(["--detach"] if wait else []), check=check)

    def nodes(self) -> dict[str, dict[str, Any]]:
        """As `remuda nodes` has them."""
        return {one["name"]: one for one in json.loads(self.head.run("nodes", "--json").stdout)}

    def idle(self, name: str = "box") -> dict[str, Any]:
        """The node, as soon as it is idle."""
        return until(lambda: (one := self.nodes().get(name)) and one["state"] == "idle" and one, f"{name} is idle", 60)

    def status(self) -> dict[str, Any]:
        """As `remuda client status` has it."""
        found: dict[str, Any] = json.loads(self.box.run("client", "status", "--json", check=False).stdout)
        return found

    def close(self) -> None:
        """End all of it, whatever a test left."""
        if pid := membership.running(self.box.paths.fleet_node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sides = ((self.box.paths.fleet_node / "slurm", "slurmd"), (self.head.paths.fleet, "slurmctld"))
        with suppress(Exception):
            os.kill(self.head.host_pid(), signal.SIGKILL)
        for folder, name in sides:
            for daemon in (name, "munged"):
                if folder.exists():
                    Daemons(folder).stop(daemon, kill=True)
        self.head.close()
        self.box.close()


def three_ports() -> int:
    """The first of three that are free in a row."""
    while True:
        port = free_port()
        with suppress(OSError):
            for more in (port + 1, port + 2):
                with socket.socket() as probe:
                    probe.bind((ADDRESS, more))
            return port
