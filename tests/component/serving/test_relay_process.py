"""The relay as a program of its own: how it is started, found again, and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Final

from tests.component.serving.conftest import Server, status_of
from tests.component.serving.test_smg import ask, until

from remuda.enter import words
from remuda.plan.model import HOST_MARK, PORT_MARK, Listen
from remuda.plan.relay import PROBE, relay_group

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Start = Callable[..., Server]

ASK: Final = """
import os, socket, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[2:]:
    line = socket.socket()
    line.settimeout(60)
    line.connect(("127.0.0.1", int(sys.argv[1])))
    line.sendall(f"GET {path} HTTP/1.0\\r\\n\\r\\n".encode())
    print(line.recv(12).decode().split()[1])
"""


def start(serve: Start, folder: Path, *, descriptors: int = 0) -> Server:
    """As its group says."""
    argv = relay_group(Listen(), run_dir=str(folder), python=sys.executable).command.argv
    filled = [part.replace(HOST_MARK, "127.0.0.1").replace(PORT_MARK, "{port}") for part in argv]
    server = serve(filled, wait=False, descriptors=descriptors)
    server.wait_until_up(PROBE.path)
    return server


def name(folder: Path, url: str) -> None:
    router = {"url": url, "id": url}
    (folder / "router.json").write_text(json.dumps({"router": router, "alive": [router]}))


async def test_it_is_killed_and_comes_back_at_its_port(serve: Start, engine: Start, tmp_path: Path) -> None:
    replica = engine()
    name(tmp_path, replica.url)
    server = start(serve, tmp_path)
    assert ask(server.url)[0] == 200
    with urllib.request.urlopen(f"{server.url}/-/relay/stats", timeout=60) as answer:
        stats = json.load(answer)
    assert (stats["requests"], stats["in_flight"], stats["router"]) == (1, 0, replica.url)
    server.kill()
    server.start()
    server.wait_until_up(PROBE.path)
    assert ask(server.url)[0] == 200, "the file is read again"
    other = engine()
    name(tmp_path, other.url)
    await until(lambda: ask(server.url)[1]["system_fingerprint"].endswith(other.url.rpartition(":")[2]), timeout_s=60)


async def test_it_ends_when_it_is_asked(serve: Start, tmp_path: Path) -> None:
    server = start(serve, tmp_path)
    assert server.end() == 0
    assert status_of(server.url + PROBE.path) == 0


def test_a_port_that_is_taken_is_one_sentence(serve: Start, tmp_path: Path) -> None:
    port = start(serve, tmp_path).url.rpartition(":")[2]
    argv = [sys.executable, *words("relay"), "--port", port, "--file", str(tmp_path / "router.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith(f"relay: cannot listen on 127.0.0.1:{port}: ")
    assert done.stderr.count("\n") == 1


def test_it_tells_its_counters_to_programs_of_its_own_user(serve: Start, tmp_path: Path) -> None:
    server = start(serve, tmp_path)
    paths = ["/-/relay/health", "/-/relay/stats"]
    assert [status_of(server.url + path) for path in paths] == [200, 200]
    port = server.url.rpartition(":")[2]
    done = subprocess.run([sys.executable, "-c", ASK, port, *paths], capture_output=True, text=True, check=True)
    # Only root can become somebody else.
    assert done.stdout.split() == ["200", "404" if os.getuid() == 0 else "200"]
