"""The first node of a replica that spans nodes, as a process: strangers at its door end nothing and hold nothing up."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.node.conftest import PATIENCE_S, until

from remuda.node import records
from remuda.node.child.launch import PORTS_VARIABLE
from remuda.node.guard import member_line
from remuda.wire.child import ChildSpec, named_mark
from remuda.wire.spread import HEAD_PORT_MARK, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIPTORS = 256
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
SLURM_PROCID=0 exec "$@"
"""
SLEEPER = "import time; print('works', flush=True); time.sleep(9000)"


class First:
    """The program of the first of two nodes, both of which are this machine."""

    def __init__(self, home: Path, program: Path, words: list[str], few: int = DESCRIPTORS, **spread: Any) -> None:
        self.run_dir = home / "run"
        self.run_dir.mkdir()
        self.log = home / "log"
        launcher = [sys.executable, "-I", "-S", str(program)]
        plan = Spread(**{"nodes": 2, "member": words, "launcher": launcher, **spread})
        spec = ChildSpec("w.replica.0.1.u1", "w", "replica/0", 1, words, str(self.run_dir), spread=plan)
        document = home / "child.json"
        document.write_text(spec.to_json())
        (home / "srun").write_text(SRUN)
        (home / "srun").chmod(0o755)
        start = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({few},) * 2)"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"{start}; os.execv(sys.argv[1], sys.argv[1:])", *launcher, "spread",
                 str(document), "--", *words],
                stdout=log, stderr=log, env={**os.environ, "PATH": f"{home}:{os.environ['PATH']}"},
            )  # fmt: skip

    def door(self) -> tuple[str, int]:
        """Where it listens."""
        until((self.run_dir / member_line.MEETING).exists)
        return "127.0.0.1", int(json.loads((self.run_dir / member_line.MEETING).read_text())["port"])

    def works(self) -> bool:
        """Whether both nodes run what they shall."""
        return self.log.read_text().count("works") == 2

    def memory(self) -> int:
        """Resident KiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

    def close(self) -> None:
        """End it, also when it failed."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def first(tmp_path: Path, program: Path) -> Iterator[First]:
    one = First(tmp_path, program, [sys.executable, "-c", SLEEPER])
    yield one
    one.close()


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process may open more than the 1024 that many machines allow unasked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096 if hard < 0 else min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_a_thousand_idle_connections_end_nothing(first: First) -> None:
    door = first.door()
    idle = [socket.create_connection(door, timeout=60) for _ in range(1000)]
    until(first.works, "both nodes work")
    idle += [socket.create_connection(door, timeout=60) for _ in range(200)]
    assert len(list(Path(f"/proc/{first.process.pid}/fd").iterdir())) < DESCRIPTORS
    for one in idle:
        one.close()
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(PATIENCE_S)
    assert "Traceback" not in first.log.read_text()
    assert first.log.stat().st_size < 10_000


def test_one_without_a_newline_neither_grows_nor_deafens_it(first: First) -> None:
    door = first.door()
    until(first.works)
    before = first.memory()
    flooding, sizes, stop = threading.Event(), [before], threading.Event()

    def flood() -> None:
        while not stop.is_set():
            with suppress(OSError), socket.create_connection(door, timeout=60) as endless:
                for _ in range(100):
                    endless.sendall(b"x" * 65536)
                    flooding.set()
                    sizes.append(first.memory())

    with ThreadPoolExecutor(1) as pool:
        pool.submit(flood)
        try:
            assert flooding.wait(PATIENCE_S)
            first.process.send_signal(signal.SIGTERM)
            first.process.wait(PATIENCE_S)
        finally:
            stop.set()
    assert max(sizes) - before < 8 << 10


OLD_ASK = """
import json, time
while True:
    print(json.dumps({"nodes": 2, "gpus": 4, "version": "2.40.0"}), flush=True)
    time.sleep(0.1)
"""
HEAD = "import socket, sys, time; s = socket.create_server(('0.0.0.0', int(sys.argv[1]))); time.sleep(9000)"


def test_a_ray_that_is_too_old_for_a_token_is_said_loudly(tmp_path: Path, program: Path) -> None:
    first = First(
        tmp_path, program, [sys.executable, "-c", SLEEPER], gpus=4,
        head=[sys.executable, "-c", HEAD, HEAD_PORT_MARK], ask=[sys.executable, "-c", OLD_ASK],
    )  # fmt: skip
    try:
        until(first.works)
        assert "warning: Ray 2.40.0 cannot ask for a token" in first.log.read_text()
        assert "install Ray 2.52 or newer" in records.warning(first.run_dir)
    finally:
        first.close()


def test_all_nodes_are_told_the_ports_that_the_first_has_by_name(
    tmp_path: Path, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, '{"bootstrap": 8998}')
    prints = "import sys, time; print('works at', sys.argv[1], flush=True); time.sleep(9000)"
    first = First(tmp_path, program, [sys.executable, "-c", prints, named_mark("bootstrap")])
    try:
        until(lambda: first.log.read_text().count("works at 8998") == 2)
    finally:
        first.close()
