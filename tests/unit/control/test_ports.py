"""The endpoint's port: free in every sense, and nobody else's."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from remuda.base.errors import Conflict
from remuda.control.ports import choose_port
from remuda.plan.model import Listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens, with free ones behind it."""
    with closing(socket.socket()) as server:
        server.bind((HOST, 0))
        server.listen()
        yield server.getsockname()[1]


@pytest.fixture
def free(taken: int) -> int:
    """A port that is free now."""
    return choose_port(Listen(port=min(taken + 1, 65000)), {}, HOST, _nowhere())


def _nowhere() -> Path:
    from pathlib import Path

    return Path("/nowhere/at/all")


def hold(locks: Path, port: int) -> int:
    locks.mkdir(exist_ok=True)
    descriptor = os.open(locks / f"{port}.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def test_the_preferred_port_is_taken_when_it_is_free(free: int, tmp_path: Path) -> None:
    assert choose_port(Listen(port=free), {}, HOST, tmp_path) == free
    assert choose_port(Listen(port=free, fixed=True), {}, HOST, tmp_path) == free


def test_without_a_wish_it_begins_at_9000(tmp_path: Path) -> None:
    used = dict.fromkeys(range(9000, 9100), "others")
    assert choose_port(Listen(), used, HOST, tmp_path) >= 9100


def test_one_that_listens_is_passed_over(taken: int, tmp_path: Path) -> None:
    assert choose_port(Listen(port=taken), {}, HOST, tmp_path) > taken
    with pytest.raises(Conflict, match=f"port {taken} on {HOST} is in use by another program"):
        choose_port(Listen(port=taken, fixed=True), {}, HOST, tmp_path)


def test_one_that_is_locked_is_passed_over_and_one_that_was_is_not(free: int, tmp_path: Path) -> None:
    descriptor = hold(tmp_path, free)
    assert choose_port(Listen(port=free), {}, HOST, tmp_path) > free
    with pytest.raises(Conflict, match="in use by another program"):
        choose_port(Listen(port=free, fixed=True), {}, HOST, tmp_path)
    os.close(descriptor)
    assert choose_port(Listen(port=free), {}, HOST, tmp_path) == free


def test_another_workload_owns_its_port_while_nobody_listens(free: int, tmp_path: Path) -> None:
    assert choose_port(Listen(port=free), {free: "herd"}, HOST, tmp_path) > free
    with pytest.raises(Conflict, match=f"port {free} belongs to 'herd'"):
        choose_port(Listen(port=free, fixed=True), {free: "herd"}, HOST, tmp_path)


def test_when_none_is_free_it_says_so(tmp_path: Path) -> None:
    used = dict.fromkeys(range(20000, 21000), "others")
    with pytest.raises(Conflict, match="none of the ports 20000 to 20499 is free"):
        choose_port(Listen(port=20000), used, HOST, tmp_path)


def test_at_the_end_of_the_range_it_ends(tmp_path: Path) -> None:
    used = dict.fromkeys(range(65500, 65536), "others")
    with pytest.raises(Conflict):
        choose_port(Listen(port=65500), used, HOST, tmp_path)


def test_an_address_of_another_machine_is_an_error_of_its_own(free: int, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"(?i)assign"):
        choose_port(Listen(port=free), {}, "192.0.2.1", tmp_path)
