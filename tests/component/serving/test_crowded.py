"""Another user holds idle connections to what stands in front of a swarm: its own limit of open files is enough."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest
from tests.component.serving.crowding import END, FEW, HALF, in_the_crowd, limits, stream
from tests.component.serving.test_relay_process import name, start
from tests.component.serving.test_smg import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.component.serving.conftest import Server
    from tests.component.serving.crowding import Crowd

    Start = Callable[..., Server]

pytestmark = pytest.mark.real


@pytest.mark.parametrize("text", [b"", HALF], ids=["silent", "half a head"])
def test_the_relay_answers_all_who_ask(serve: Start, engine: Start, tmp_path: Path, crowd: Crowd, text: bytes) -> None:
    replica = engine("--token-s", "0.05")
    name(tmp_path, replica.url)
    server = start(serve, tmp_path, descriptors=FEW)
    words = stream(server.url)
    assert next(words).startswith(b"data: ")
    crowd(server, text)
    assert [in_the_crowd(lambda: ask(server.url)[0]) for _ in range(10)] == [200] * 10
    assert list(words)[-2:] == END
    assert server.process is not None
    assert server.process.poll() is None


def test_what_stands_in_front_takes_all_that_it_may_open(router: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW, hard))
    try:
        server = router()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert limits(server.pid) == [str(hard)] * 2
