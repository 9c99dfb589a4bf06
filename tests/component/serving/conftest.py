"""Real processes for the tests of the router and the engines: started on free ports, ended with the test."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.crowding import crowd  # noqa: F401 - a fixture
from tests.ports import free_port

from remuda.plan.front import RouterSettings, router_group
from remuda.plan.model import HOST_MARK, PORT_MARK, Endpoint, Secret
from remuda.serving.client import call
from remuda.serving.router import Member
from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

#: The second choice is tested where it is installed; pip cannot bring it.
collect_ignore = [] if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") else ["test_nginx.py"]


def replicas(urls: Iterable[str]) -> frozenset[Member]:
    """Members that answer whole requests."""
    return frozenset(map(Member, urls))


def status_of(url: str) -> int:
    """Status of a GET, 0 without an answer."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


@dataclass
class Server:
    """One child process that listens."""

    url: str
    argv: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdout=log, stderr=log, env={**os.environ, **self.env}, start_new_session=True
            )

    def wait_until_up(self, path: str = "/health", *, timeout_s: float = 180.0) -> None:
        deadline = time.monotonic() + timeout_s
        while status_of(self.url + path) != 200:
            assert self.process is not None
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"not up: {self.log.read_text()[-2000:]}"
            time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def end(self, *, timeout_s: float = 60.0) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def restart(self) -> None:
        """Come back at the same port, once nothing of what was killed is there any more."""
        self.kill()
        deadline = time.monotonic() + 60
        while self._is_heard():
            assert time.monotonic() < deadline, "something of it still listens"
            time.sleep(0.02)
        self.start()
        self.wait_until_up()

    def _is_heard(self) -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", int(self.url.rpartition(":")[2]))) == 0


_FEW = (
    "import os, resource, sys; most = int(sys.argv[1]); resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)); "
    "os.execv(sys.argv[2], sys.argv[2:])"
)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A router on a busy machine has more time for an answer to the host than the host's loop can spare."""
    defaults = call.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout_s", 60.0)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a command that listens on the port it is given as `{port}`; it may have so many descriptors and no more."""
    servers: list[Server] = []
    temporary = tempfile.mkdtemp(prefix="rs", dir="/tmp")  # what is killed leaves its files; sockets need a short path
    kept: list[socket.socket] = []

    def start(
        argv: Sequence[str], *, env: dict[str, str] | None = None, wait: bool = True, descriptors: int = 0
    ) -> Server:
        kept.append(keep_port())
        port = kept[-1].getsockname()[1]
        filled = [part.replace("{port}", str(port)) for part in argv]
        if descriptors:
            filled = [sys.executable, "-c", _FEW, str(descriptors), *filled]
        given = {"TMPDIR": temporary, **(env or {})}
        server = Server(f"http://127.0.0.1:{port}", filled, tmp_path / f"server-{len(servers)}.log", given)
        servers.append(server)
        server.start()
        if wait:
            server.wait_until_up()
        return server

    yield start
    for server in servers:
        server.kill()
    shutil.rmtree(temporary, ignore_errors=True)
    for keeper in kept:
        keeper.close()


def keep_port() -> socket.socket:
    """Bound to a port and no listener: servers that come and go there find it free, and other tests do not."""
    while True:
        keeper = socket.socket()
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # some servers ask for this one
        try:
            keeper.bind(("127.0.0.1", free_port()))
        except OSError:
            keeper.close()
        else:
            return keeper


@pytest.fixture
def engine(serve: Callable[..., Server]) -> Callable[..., Server]:
    """Start a misbehaving engine."""

    def start(*flags: str, env: dict[str, str] | None = None, wait: bool = True) -> Server:
        return serve([sys.executable, "-m", "tests.fakes.engine", "--port", "{port}", *flags], env=env, wait=wait)

    return start


@pytest.fixture
def router(serve: Callable[..., Server]) -> Callable[..., Server]:
    """Start a router as its group says; one that `is_patient` takes no replica for dead that is only slow."""

    def start(
        kind: str = "smg",
        *,
        replicas: int = 2,
        policy: str = "",
        api_key: str = "",
        control_key: str = "",
        descriptors: int = 0,
        is_patient: bool = True,
        apart: bool = False,
    ) -> Server:
        endpoint = Endpoint(port=1, router="router", model="tiny", api_key=Secret(env="A") if api_key else None)
        control = Secret(env="C") if control_key else None
        settings = RouterSettings(endpoint, replicas, policy, control_key=control, apart=apart, python=sys.executable)
        command = router_group(kind, settings).command
        argv = [part.replace(HOST_MARK, "127.0.0.1").replace(PORT_MARK, "{port}") for part in command.argv]
        if kind == "smg" and is_patient:
            # On a busy machine a replica may stand still for longer than smg has patience with it.
            argv[argv.index("--health-check-timeout-secs") + 1] = "60"
        values = {"A": api_key, "C": control_key}
        secrets = {name: values[secret.env] for name, secret in command.secret_env.items()}
        server = serve(argv, env={**command.env, **secrets}, descriptors=descriptors)
        if kind == "smg":
            wait_for_the_waiting_room(server, control_key or api_key)
        return server

    return start


def wait_for_the_waiting_room(server: Server, key: str) -> None:
    """It registers itself a moment after smg is up; until then smg answers 404."""
    deadline = time.monotonic() + 180
    request = urllib.request.Request(f"{server.url}/workers", headers={"authorization": f"Bearer {key}"} if key else {})
    while True:
        with urllib.request.urlopen(request, timeout=60) as answer:
            if json.load(answer)["workers"]:
                return
        assert time.monotonic() < deadline, "no waiting room"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
