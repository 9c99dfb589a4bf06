"""A fleet on this machine: how soon a node works and a run speaks; what clients, logs and many nodes cost. As root.

python benchmarks/bench_fleet.py [--nodes N] [--seconds S] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from harness import BenchHome, Figure, cpu_seconds, finish, measure, slurm_farm, until
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import RemudaError
from remuda.fleet import membership, token
from remuda.fleet.link import Link
from remuda.testing.slurm import cpu_farm
from remuda.wire.fleet import BEAT_S, Beat, Joined, Joining, Levels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ADDRESS, TIMES = "127.0.0.1", 5
JOINED_S, FIRST_LINE, LOG_PERCENT, BEHIND_S, IDLE_PERCENT, IDLE_MB = 10.0, 1.5, 10.0, 3.0, 0.5, 60.0
MANY_PERCENT, KNOWN_S, NODES_MS = 2.0, 10.0, 150.0
RATE = 10
"""Megabytes of log a second."""
WRITES = """#!{python}
import sys, time
begin = time.time()
for number in range({rate} * {seconds}):
    time.sleep(max(0.0, begin + number / {rate} - time.time()))
    sys.stdout.write(f"{{time.time():017.6f}} {{'x' * 81}}\\n" * 10_000)
    sys.stdout.flush()
time.sleep(600)
"""


class Box(BenchHome):
    """Another machine: what it starts finds nothing in the directory of the head.

    Args:
        head: the directory that is hidden.
    """

    def __init__(self, head: Path) -> None:
        super().__init__()
        self.folder = StatePaths(self.root / "home").fleet_node
        self._inside = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs tmpfs {head} && exec "$@"', "sh"]

    def run(self, *arguments: str) -> str:
        """Run a command there; its standard output."""
        words = [*self._inside, sys.executable, "-m", "remuda", *arguments]
        done = subprocess.run(words, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"remuda {' '.join(arguments)}: {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout


class Clients(threading.Thread):
    """Machines that are in the fleet and do nothing else: each joins over a connection of its own, and beats.

    Args:
        port: of the head, for clients.
        text: of a token.
        count: so many.
    """

    def __init__(self, port: int, text: str, count: int) -> None:
        super().__init__(daemon=True)
        self._port, self._token, self._count = port, token.read(text, where=""), count
        self.heard = [0.0] * count
        """When each was answered last."""
        self.ends = False

    def run(self) -> None:
        """Be all of them, until `ends` is set."""
        asyncio.run(self._all())

    async def _all(self) -> None:
        await asyncio.gather(*(self._one(number) for number in range(self._count)))

    async def _one(self, number: int) -> None:
        link, key, address = (
            Link(ADDRESS, self._port, self._token.fingerprint),
            f"{number:032}",
            f"127.0.1.{number + 1}",
        )
        said = Joining(
            name=f"many-{number}", key=key, uid=os.getuid(), at=time.time(), slurm="22.05.8", address=address, cpus=8,
            memory=16_000, gpus="h100:2",
        )  # fmt: skip
        await link.ask("join", f"Token {self._token.id}.{self._token.secret}", said, Joined)
        while not self.ends:
            with suppress(RemudaError):
                await link.ask("beat", f"Key {key}", Beat(at=time.time(), address=address, gpus="h100:2"), Levels)
                self.heard[number] = time.monotonic()
            await asyncio.sleep(BEAT_S)
        await link.close()


def three_ports() -> int:
    """The first of three that are free in a row."""
    while True:
        with suppress(OSError), socket.socket() as first, socket.socket() as second, socket.socket() as third:
            first.bind((ADDRESS, 0))
            port = int(first.getsockname()[1])
            second.bind((ADDRESS, port + 1))
            third.bind((ADDRESS, port + 2))
            return port


def joined(head: BenchHome, box: Box, port: int, text: str) -> float:
    """Seconds from the command until the node gets work."""
    (box.root / "token").write_text(text)
    begin = time.monotonic()
    where = ("client", "connect", f"{ADDRESS}:{port}", "--token-file", str(box.root / "token"), "--node-id", "box")
    box.run(*where, "--resilient", "--detach")
    until(lambda: '"idle"' in head.run("nodes", "--json"), "the node is idle")
    return time.monotonic() - begin


def empty(home: BenchHome) -> Path:
    """A folder of the command with nothing in it, as it would travel to a node that shares nothing."""
    folder = home.root / "folder"
    folder.mkdir(exist_ok=True)
    return folder


def log_of(home: BenchHome, name: str) -> Path | None:
    """The log of a run's first attempt, where it is."""
    return next((home.root / "home/workloads" / name).rglob("child.log"), None)


def first_lines(home: BenchHome, *where: str) -> float:
    """Seconds from `remuda run` to the first line on the head: the median of a few."""
    script = home.root / "first.sh"
    script.write_text("#!/bin/sh\necho first\n")
    took = []
    for number in range(TIMES + 1):
        begin = time.monotonic()
        home.run("run", str(script), "--name", f"first-{number}", "--workdir", str(empty(home)), *where)
        until(lambda name=f"first-{number}": (path := log_of(home, name)) and path.stat().st_size, "its first line")  # type: ignore[misc]
        took.append(time.monotonic() - begin)
        until(lambda name=f"first-{number}": home.client.get(f"/workloads/{name}")["phase"] == "DONE", "its end")  # type: ignore[misc]
    return statistics.median(took[1:])  # the program travels with the first


def shares(pids: Sequence[int], seconds: float) -> list[float]:
    """Percent of a core that each process uses now."""
    before, begin = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begin
    return [100 * (cpu_seconds(pid) - was) / passed for pid, was in zip(pids, before, strict=True)]


def logs(head: BenchHome, pids: Sequence[int]) -> list[Figure]:
    """CPU of client and host while a run writes, and how far what the head has is behind."""
    seconds = 6
    script = head.root / "writes.py"
    script.write_text(WRITES.format(python=sys.executable, rate=RATE, seconds=seconds))
    head.run("run", str(script), "--backend", "fleet", "--name", "writes", "--workdir", str(empty(head)))
    until(lambda: (path := log_of(head, "writes")) and path.stat().st_size, "its first line")
    path = log_of(head, "writes")
    assert path is not None
    before, begin, behind = [cpu_seconds(pid) for pid in pids], time.monotonic(), 0.0
    while time.monotonic() < begin + seconds - 1:
        time.sleep(0.25)
        with path.open("rb") as file:
            file.seek(-200, os.SEEK_END)
            behind = max(behind, time.time() - float(file.read().splitlines()[1].split()[0]))
    passed = time.monotonic() - begin
    used = [100 * (cpu_seconds(pid) - was) / passed for pid, was in zip(pids, before, strict=True)]
    head.run("down", "writes")
    name = f"{RATE} MB/s of log"
    return [
        Figure(f"{name}: CPU of the client", used[0], "% of a core", LOG_PERCENT),
        Figure(f"{name}: CPU of the host", used[1], "% of a core", LOG_PERCENT),
        Figure(f"{name}: behind at most", behind, "s", BEHIND_S),
    ]


def nodes_ms(head: BenchHome) -> float:
    """CPU of one `remuda nodes`: the median of a few."""
    words = [sys.executable, "-m", "remuda", "nodes"]
    return statistics.median(measure(words, head.env).cpu_s * 1000 for _ in range(TIMES))


def many(head: BenchHome, port: int, count: int, seconds: float) -> list[Figure]:
    """What so many nodes cost the head, and how soon another host knows them all."""
    host = int(head.client.get("/host")["pid"])
    alone = shares([host], seconds)[0]
    clients = Clients(port, head.run("host", "token").strip(), count)
    clients.start()
    until(lambda: all(clients.heard), f"{count} nodes have joined", 120)
    time.sleep(5)
    busy = shares([host], seconds)[0]
    os.kill(host, signal.SIGKILL)
    begin = time.monotonic()
    head.run("list")
    until(lambda: min(clients.heard) > begin, "all are heard", 60)
    known = time.monotonic() - begin
    clients.ends = True
    clients.join(BEAT_S + 10)
    return [
        Figure(f"host with {count} nodes at rest", busy, "% of a core", MANY_PERCENT, alone, "with one"),
        Figure(f"killed, until it has heard all {count} again", known, "s", KNOWN_S, BEAT_S, "between two beats"),
    ]


def on_slurm(count: int, ask: Callable[[BenchHome], float]) -> float:
    """What is measured on a cluster of so many nodes, which share the directory."""
    with slurm_farm(cpu_farm(count)) as bed, BenchHome() as home:
        home.env |= {name: bed.env()[name] for name in ("SLURM_CONF", "PATH")}
        return ask(home)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.getuid() != 0:
        sys.stdout.write("not measured: it makes a mount namespace, which is root's\n")
        return 0
    beside = on_slurm(1, lambda home: first_lines(home, "--backend", "slurm", "--partitions", "cpu"))
    many_ms, port = on_slurm(options.nodes, nodes_ms), three_ports()
    with BenchHome() as head, Box(head.root) as box:
        text = head.run("host", "start", "--port", str(port), "--host", ADDRESS).strip()
        took = joined(head, box, port, text)
        pids = [membership.running(box.folder), int(head.client.get("/host")["pid"])]
        line = first_lines(head, "--backend", "fleet")
        figures = [
            Figure("`client connect`, until the node gets work", took, "s", JOINED_S),
            Figure("`run` on a node that shares nothing, to its first line", line, "s", FIRST_LINE * beside, beside,
                   "on Slurm, a shared directory"),
            *logs(head, pids),
            Figure("client at rest", shares(pids[:1], options.seconds)[0], "% of a core", IDLE_PERCENT),
            Figure("client's memory", resident_mb(pids[0]), "MB", IDLE_MB),
            Figure(f"`remuda nodes` of {options.nodes}: CPU", many_ms, "ms", NODES_MS, nodes_ms(head), "of one"),
            *many(head, port + 1, options.nodes, options.seconds),
        ]  # fmt: skip
        box.run("client", "disconnect", "--force")
        head.run("host", "stop", "--fleet")
    return finish(figures, as_json=options.json)


def resident_mb(pid: int) -> float:
    """Memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    sys.exit(main())
