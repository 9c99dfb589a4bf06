"""A fleet on this machine: its head, and one node of it with GPUs that are links to /dev/null."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.fleet.homes import Fleet
from tests.ports import free_port

from remuda.fleet import tree
from remuda.fleet.conf import FleetConf, NodeConf
from remuda.fleet.daemons import Controller, Node
from remuda.fleet.processes import send, wait_until
from remuda.testing.slurm import procs

if TYPE_CHECKING:
    from collections.abc import Iterator


class Alone:
    """One head and one node, both on this machine."""

    def __init__(self, root: Path, *, programs: tree.Tree | None = None, lease_s: float = 180.0) -> None:
        self.root = root
        self.programs = programs or tree.find(), programs or tree.find(head=True)
        here = socket.gethostname().split(".")[0]
        ports = {"port": free_port(), "slurmd_port": free_port()}
        self.conf = FleetConf("fleet", here, "127.0.0.1", os.getuid(), lease_s=lease_s, **ports)
        self.devices = tuple(str(root / f"nvidia{number}") for number in range(2))
        for device in self.devices:
            Path(device).symlink_to("/dev/null")

    def head(self) -> Controller:
        """The head as a program that was just started knows it."""
        return Controller(self.root / "home" / "fleet", self.conf, self.programs[1])

    def node(self, gpus: str = "h100:2", address: str = "127.0.0.1") -> Node:
        """The node, likewise."""
        head = self.head()
        devices = self.devices[: int(gpus.rpartition(":")[2] or 0)]
        wanted = NodeConf("n1", address, cpus=8, memory=16_000, gpus=gpus, devices=devices)
        key, text = head.munge_key, head.slurm_conf
        return Node(self.root / "node", self.conf, wanted, munge_key=key, slurm_conf=text, tree=self.programs[0])

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands says."""
        done = self.head().ask(*words)
        assert done.returncode == 0, (words, done)
        return done.stdout.strip()

    def state(self) -> str:
        """Of the node, as sinfo has it."""
        return self.head().ask("sinfo", "-h", "-N", "-o", "%t").stdout.strip()

    def wait(self, state: str = "idle") -> None:
        """Until the node is in a state."""
        wait_until(lambda: self.state() == state, f"the node is {state}", 30)

    def submit(self, script: str, *options: str) -> int:
        """A job; its id. What it prints goes to `ID.out`."""
        words = ["--parsable", "--export=NONE", "--chdir=/", f"--output={self.root}/%j.out", *options]
        return int(self.ask("sbatch", *words, "--wrap", script))

    def kill(self, *daemons: str) -> None:
        """`kill -9` of daemons, as `head/slurmctld` or `node/slurmd`."""
        for name in daemons:
            side, _, daemon = name.partition("/")
            there = (self.head() if side == "head" else self.node()).daemons
            pid = there.pid(daemon)
            assert pid, f"{name} does not live"
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda there=there, daemon=daemon: not there.pid(daemon), f"the end of {name}", 10)  # type: ignore[misc]

    def end(self) -> None:
        """Everything of it."""
        if self.head().answers():
            self.head().ask("scancel", "--partition=fleet")
            wait_until(lambda: not self.head().ask("squeue", "-h").stdout.strip(), "the end of all jobs", 30)
        self.node().stop()
        self.head().stop()
        mark = f"\0SLURM_CONF={self.root}/node/slurm.conf\0".encode()
        send([pid for pid in procs.pids() if mark in procs.environment(pid)], signal.SIGKILL)  # jobs nobody remembers


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A head and a machine that has not joined yet; all of it ends with the test."""
    one = Fleet()
    yield one
    one.close()


@pytest.fixture
def alone() -> Iterator[Alone]:
    """A head and a node that are not started yet; all of it ends with the test."""
    root = Path(tempfile.mkdtemp(prefix="remuda-fleet-"))
    fleet = Alone(root)
    try:
        yield fleet
    finally:
        if root.exists():
            fleet.end()
            shutil.rmtree(root)
