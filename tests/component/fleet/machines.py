"""A head on this machine, and machines that join it: each with a network, host name, devices and home of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import Home, until

from remuda.testing.slurm import network, registry
from remuda.testing.slurm.config import BedLayout
from remuda.testing.slurm.topology import NodeShape, Partition, Topology

INIT = Path(network.__file__).with_name("nodeinit.py")
DEVICES = "null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 ptmx:5:2"


class Machine:
    """One machine: processes below an init, at the end of a cable that can be pulled."""

    def __init__(self, layout: BedLayout, index: int, gpus: int) -> None:
        self.layout, self.index = layout, index
        self.name = layout.topology.names[index]
        self.home = layout.root / self.name
        self.home.mkdir(mode=0o700)
        self.env: dict[str, str] = {}
        """What its users have in their environment besides."""
        files = [str(layout.root / name) for name in ("hosts", "resolv.conf")]
        init = [sys.executable, "-I", "-S", str(INIT), self.name, layout.address(index), layout.head, *files]
        self._init = subprocess.Popen([*network.NAMESPACES, *init, "sleep", "infinity"], stdin=subprocess.PIPE)
        network.connect(layout, index, self._init.pid)
        assert self._init.stdin is not None
        self._init.stdin.write(b"\n")
        self._init.stdin.close()
        until(lambda: "sleep" in self._below(), f"{self.name} is up", 30)
        self._give_devices(gpus)

    def _pid(self) -> int:
        """Of the first process inside: unshare forks it."""
        children = Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _below(self) -> str:
        with suppress(OSError):  # one of them has just ended
            pid = self._pid()
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if pid else []
            return " ".join(Path(f"/proc/{one}/comm").read_text().strip() for one in children)
        return ""

    def run(self, *words: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command inside."""
        env = {**os.environ, "REMUDA_HOME": str(self.home), "NO_COLOR": "1", "COLUMNS": "200", **self.env}
        inside = ["nsenter", "-t", str(self._pid()), "--net", "--uts", "--mount", "--pid", *words]
        done = subprocess.run(inside, input=stdin, capture_output=True, text=True, env=env, check=False, timeout=180)
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done

    def remuda(self, *words: str, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One of ours, as its user types it there."""
        return self.run(sys.executable, "-m", "remuda", *words, check=check, stdin=stdin)

    def _give_devices(self, gpus: int) -> None:
        nodes = f"{DEVICES} {' '.join(f'nvidia{number}:1:3' for number in range(gpus))}"
        script = f"""set -e; d=$(mktemp -d); mount -t tmpfs tmpfs $d; mkdir $d/shm $d/pts
        for n in {nodes}; do set -- $(echo $n | tr : ' '); mknod -m 666 $d/$1 c $2 $3; done
        mount --bind /dev/shm $d/shm; mount --bind /dev/pts $d/pts; ln -s /proc/self/fd $d/fd
        mount --rbind $d /dev"""
        self.run("sh", "-c", script)

    def status(self) -> dict[str, Any]:
        """As `remuda client status` has it."""
        found: dict[str, Any] = json.loads(self.remuda("client", "status", "--json", check=False).stdout)
        return found

    def kill(self, name: str) -> None:
        """`kill -9` of the client, slurmd or munged."""
        self.run("kill", "-9", str(self.status()["pid" if name == "client" else name]))

    def move(self, address: str) -> None:
        """Get another address."""
        self.run("ip", "addr", "flush", "dev", "eth0")
        self.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")

    def cut(self) -> None:
        """Pull the cable."""
        network.cut(self.layout, self.index)

    def heal(self) -> None:
        """Put it back in."""
        network.heal(self.layout, self.index)

    def close(self) -> None:
        """Turn it off."""
        self._init.kill()
        self._init.wait()


class Machines:
    """A head and its machines, `GPUs` of each by name."""

    def __init__(self, gpus: dict[str, int]) -> None:
        self.head = Home(Path(tempfile.mkdtemp(prefix="rg", dir="/tmp")))
        nodes = tuple(NodeShape(name) for name in gpus)
        topology = Topology(nodes, (Partition("all", tuple(gpus)),))
        root, user = self.head.root, "root"
        host = os.uname().nodename.partition(".")[0]
        self.layout = registry.take(
            lambda slot: BedLayout(root, slot, host, user, topology, accounting=False, isolated=True)
        )
        (root / "hosts").write_text("127.0.0.1 localhost\n")
        (root / "resolv.conf").write_text("")
        network.make_bridge(self.layout)
        self.by_name = {name: Machine(self.layout, index, gpus[name]) for index, name in enumerate(gpus)}
        self.port = self.layout.controller_port

    def begin(self, *words: str) -> str:
        """Make the head; the token that it prints."""
        start = ("host", "start", "--port", str(self.port), "--host", self.layout.head)
        return self.head.run(*start, *words).stdout.strip()

    @property
    def where(self) -> str:
        """What a user types."""
        return f"{self.layout.head}:{self.port}"

    def connect(self, name: str, token: str, *words: str) -> None:
        """One machine joins."""
        where = ("client", "connect", self.where, "--token-file", "-", "--detach")
        self.by_name[name].remuda(*where, "--resilient", *words, stdin=f"{token}\n")

    def nodes(self) -> dict[str, dict[str, Any]]:
        """As `remuda nodes` has them."""
        return {one["name"]: one for one in json.loads(self.head.run("nodes", "--json").stdout)}

    def health(self) -> dict[str, list[str]]:
        """What is wrong, by node."""
        said = json.loads(self.head.run("health", "--json", check=False).stdout)
        return {one["name"]: one["problems"] for one in said["nodes"]}

    def story(self, name: str) -> str:
        """What one machine and the head have noted, for a test that fails."""
        box = self.by_name[name]
        asked = [box.remuda("client", "logs", *words, check=False) for words in ((), ("--slurmd",))]
        asked += [self.head.run(*words, check=False) for words in (("nodes",), ("host", "logs", "--controller"))]
        return "\n".join([str(self.head.tokens()), *(done.stdout[-4000:] for done in asked)])

    def close(self) -> None:
        """All of it."""
        from remuda.fleet.processes import Daemons

        for machine in self.by_name.values():
            machine.close()
        daemons = Daemons(self.head.paths.fleet)
        with_host = self.head.paths.fleet.exists()
        self.head.run("host", "stop", check=False)
        for name in ("slurmctld", "munged") if with_host else ():
            daemons.stop(name, kill=True)
        network.remove(self.layout.slot)
        registry.give_back(self.layout.slot, self.layout.root)
        self.head.close()
        shutil.rmtree(self.head.root, ignore_errors=True)
