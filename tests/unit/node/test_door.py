"""The port that members of a replica call at: friends come in, strangers get little, and nobody holds it up."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import until

from remuda.node.guard import door as doors
from remuda.node.guard import member_line
from remuda.node.guard.door import Door
from remuda.wire.gate import PAUSE_S, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FEW = Limits(number=3, seconds=10.0, bytes=100)


@pytest.fixture
def door() -> Iterator[Door]:
    one = Door("127.0.0.1", FEW)
    yield one
    one.close()


@pytest.fixture
def call(door: Door) -> Iterator[Callable[..., socket.socket]]:
    made: list[socket.socket] = []

    def dial(words: bytes = b"") -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", door.port), timeout=60))
        made[-1].sendall(words)
        return made[-1]

    yield dial
    for one in made:
        one.close()


def hello(door: Door, **more: Any) -> bytes:
    return json.dumps({"key": door.key, **more}).encode() + b"\n"


def come(door: Door, now: float = 0.0) -> list[dict[str, Any]]:
    """What the first newcomers say; loopback delivers at once or a moment later."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = door.newcomers(now)
        if found:
            for line, _ in found:
                line.close()
            return [said for _, said in found]
        time.sleep(0.001)
    return []


def is_closed(one: socket.socket) -> bool:
    try:
        return one.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_who_knows_the_key_comes_in(door: Door, call: Callable[..., socket.socket]) -> None:
    call(hello(door, rank=2))
    assert come(door) == [{"key": door.key, "rank": 2}]


@pytest.mark.parametrize(
    "words", [b'{"key": "open"}\n', b'{"key": 7}\n', b'{"rank": 1}\n', b"x" * 101, b'{"key": "\xc3\xb6"}\n']
)
def test_who_says_else_is_sent_away(door: Door, call: Callable[..., socket.socket], words: bytes) -> None:
    stranger = call(words)
    call(hello(door))
    assert come(door) == [{"key": door.key}]
    stranger.settimeout(0.01)
    until(lambda: door.newcomers(0.0) == [] and is_closed(stranger), "the stranger is sent away")


def test_words_nested_for_ever_end_nothing(door: Door, call: Callable[..., socket.socket]) -> None:
    call(b"[" * 200_000 + b"\n")
    call(hello(door))
    assert come(door) == [{"key": door.key}]


def test_a_member_comes_in_through_a_flood(door: Door, call: Callable[..., socket.socket]) -> None:
    flood = [call() for _ in range(20)]
    call(hello(door, rank=1))
    flood += [call() for _ in range(20)]
    assert [said["rank"] for said in come(door)] == [1]
    assert len(door.waits_for(0.0)) <= 1 + FEW.number


def test_who_says_nothing_has_its_time(door: Door, call: Callable[..., socket.socket]) -> None:
    silent = call()
    until(lambda: door.newcomers(0.0) == [] and len(door.waits_for(0.0)) == 2, "it is let in")
    assert door.newcomers(9.9) == []
    assert len(door.waits_for(9.9)) == 2
    assert door.newcomers(10.0) == []
    assert is_closed(silent)


def test_one_that_never_stops_talking_is_hung_up_on() -> None:
    one, other = socket.socketpair()
    line = member_line.MemberLine(other)
    one.settimeout(0)
    said = 0
    deadline = time.monotonic() + 120
    while line.is_open:
        assert time.monotonic() < deadline
        with contextlib.suppress(BlockingIOError, ConnectionError):
            said += one.send(b"x" * 65536)
        line.hear()
    assert said < member_line.MAX_BYTES * 2
    assert line.heard <= member_line.MAX_BYTES + member_line.READS * 65536
    one.close()
    line.close()


def test_without_descriptors_it_waits_a_moment(door: Door, call: Callable[..., socket.socket]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    call(hello(door, rank=1))
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        deadline = time.monotonic() + 60
        while door.waits_for(0.0) and time.monotonic() < deadline:
            assert door.newcomers(0.0) == []
        assert door.waits_for(0.0) == [], "it is not asked again at once"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert door.newcomers(PAUSE_S / 2) == []
    assert [said["rank"] for said in come(door, PAUSE_S)] == [1]


def test_a_member_that_is_crowded_out_calls_again(door: Door, tmp_path: Path) -> None:
    """Whoever hangs up on it was not the end of its first node."""
    taken: list[member_line.MemberLine] = []
    with socket.create_server(("127.0.0.1", 0)) as crowded:

        def meeting(port: int) -> None:
            draft = tmp_path / "draft"
            draft.write_text(json.dumps({"port": port, "key": door.key, "hosts": ["127.0.0.1"]}))
            draft.replace(tmp_path / member_line.MEETING)

        meeting(crowded.getsockname()[1])
        with ThreadPoolExecutor(1) as pool:
            met = pool.submit(doors.call, tmp_path / member_line.MEETING, rank=1)
            crowded.accept()[0].close()
            meeting(door.port)
            deadline = time.monotonic() + 60
            while not met.done() and time.monotonic() < deadline:
                for one, _ in door.newcomers(0.0):
                    taken.append(one)
                    one.say({})
                crowded.settimeout(0)
                with contextlib.suppress(BlockingIOError):
                    crowded.accept()[0].close()
                time.sleep(0.001)
            found = met.result()
    assert found is not None
    line = found[0]
    assert [one.socket.getpeername() for one in taken] == [line.socket.getsockname()]
    for one in (line, *taken):
        one.close()
