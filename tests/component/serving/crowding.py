"""Another user who holds idle connections, and what shows that nobody else is harmed by it."""

from __future__ import annotations

import json
import resource
import socket
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.load import chat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.component.serving.conftest import Server
    from tests.strangers import Stranger

    Crowd = Callable[[Server, bytes], None]

FEW = 256
CROWD = 1100
HALF = b"GET /health HTTP/1.1\r\nX: "
END = [b"data: [DONE]\n", b"\n"]
"""Of a whole answer."""


@pytest.fixture
def crowd(stranger: Stranger, common: Path) -> Crowd:
    """Another user opens so many connections, and goes on to open one for each that is closed; returns when they do."""

    def begin(server: Server, text: bytes) -> None:
        told, port = common / "held", int(server.url.rpartition(":")[2])
        stranger.begins(lambda: hold(port, text, told))
        wait(told.exists)

    return begin


def hold(port: int, text: bytes, told: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    lines: list[socket.socket] = []
    while True:
        lines = [line for line in lines if is_open(line)]
        while len(lines) < CROWD:
            try:
                lines.append(socket.create_connection(("127.0.0.1", port), timeout=60))
                lines[-1].setblocking(False)
                lines[-1].sendall(text)
            except OSError:
                time.sleep(0.01)  # they try again
        told.touch()
        time.sleep(0.1)


def is_open(line: socket.socket) -> bool:
    try:
        if line.recv(1):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    line.close()
    return False


def wait(ask: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not ask():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_the_crowd(ask: Callable[[], int]) -> int:
    """The status that a client gets.

    Who has not said all of its request yet is one of the crowd, and is let go when it is its turn: then it asks again.
    """
    for _ in range(4):
        try:
            if status := ask():
                return status
        except OSError as error:
            if not isinstance(getattr(error, "reason", error), ConnectionError):
                raise
    return ask()


def stream(url: str, key: str = "") -> Iterator[bytes]:
    """A long answer, event by event."""
    head = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    body = json.dumps({**chat("hello"), "stream": True, "max_tokens": 40}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/chat/completions", body, head), timeout=60) as answer:
        yield from answer


def limits(pid: int) -> list[str]:
    """Soft and hard."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    return next(line for line in lines if line.startswith("Max open files")).split()[3:5]
