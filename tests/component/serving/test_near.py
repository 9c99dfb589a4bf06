"""What only programs of the same user are told, on addresses that all users of a machine reach."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.conftest import Server, status_of

from remuda.serving.near import is_own

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ASK = """
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


def test_the_relay_tells_its_counters_to_its_own_user(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "router.json").write_text(json.dumps({"router": None, "alive": []}))
    argv = [sys.executable, "-m", "remuda.serving.relay", "--port", "{port}", "--file", str(tmp_path / "router.json")]
    server = serve(argv, wait=False)
    server.wait_until_up("/-/relay/health")
    paths = ["/-/relay/health", "/-/relay/stats"]
    assert [status_of(server.url + path) for path in paths] == [200, 200]
    port = server.url.rpartition(":")[2]
    done = subprocess.run([sys.executable, "-c", ASK, port, *paths], capture_output=True, text=True, check=True)
    # Who is nobody special cannot become somebody else; whose connection it is stands in the test below.
    assert done.stdout.split() == ["200", "404" if os.getuid() == 0 else "200"]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_of_ones_own(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        with socket.create_connection(listener.getsockname()[:2]) as one, listener.accept()[0] as other:
            assert is_own(other.getpeername()[:2], other.getsockname()[:2])
            assert is_own(one.getpeername()[:2], one.getsockname()[:2])
        assert not is_own((host, 1), listener.getsockname()[:2])


def test_a_connection_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as other,
    ):
        monkeypatch.setattr("remuda.serving.near.os.getuid", lambda: 4711)
        assert not is_own(other.getpeername(), other.getsockname())
