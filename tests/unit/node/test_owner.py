"""Whose server it is, as the kernel tells."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.ports import free_port

from remuda.node.child import owner
from remuda.node.child.fetch import Fetch
from remuda.node.child.owner import PortOwner, owner_of
from remuda.wire import peer
from remuda.wire.peer import Whose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.strangers import Squatter

HOST = "127.0.0.1"


def of(host: str, port: int, pids: list[int], *, is_known: bool = False) -> Whose:
    return owner_of(host, port, lambda: pids, is_known=is_known)


def asked_in_vain() -> list[int]:
    raise AssertionError("all of /proc is read")


@pytest.fixture
def port() -> Iterator[int]:
    """Bound, and nobody listens."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize(
    ("family", "bind", "ask"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_a_listener_is_found_whatever_it_is_bound_to(family: int, bind: str, ask: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind((bind, 0))
        server.listen()
        port = server.getsockname()[1]
        assert of(ask, port, [os.getpid()]) is Whose.OURS
        assert of(ask, port, []) is Whose.FOREIGN
        assert of(ask, port, [1, os.getpid()]) is Whose.OURS
        assert owner_of(ask, port, asked_in_vain, is_known=True) is Whose.OURS


def test_the_socket_bound_to_the_very_address_counts() -> None:
    with socket.socket() as wild, socket.socket() as exact:
        for server in (wild, exact):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        wild.bind(("0.0.0.0", 0))
        port = wild.getsockname()[1]
        exact.bind((HOST, port))
        wild.listen()
        assert of(HOST, port, []) is Whose.FOREIGN
        exact.listen()
        assert of(HOST, port, []) is Whose.FOREIGN
        assert of(HOST, port, [os.getpid()]) is Whose.OURS


@pytest.mark.parametrize("is_known", [False, True])
def test_nobody_is_seen_to_be_nobody(port: int, is_known: bool) -> None:
    assert of(HOST, port, [os.getpid()], is_known=is_known) is Whose.NOBODY
    assert of(HOST, port, [], is_known=is_known) is Whose.NOBODY


def test_where_nothing_is_seen_nothing_is_claimed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "listeners", lambda *_: None)  # no /proc
    assert of(HOST, port, [os.getpid()]) is Whose.UNKNOWN
    monkeypatch.setattr(peer, "listeners", lambda *_: [])  # tables that name nobody, not even ourselves
    assert of(HOST, port, [os.getpid()]) is Whose.UNKNOWN


def test_a_child_in_another_network_has_its_ports_in_other_tables(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    there, here, unseen = 5_000_011, 5_000_012, 5_000_013  # no pids of any process
    networks = {os.getpid(): "net:[1]", there: "net:[2]", here: "net:[1]"}
    monkeypatch.setattr(owner, "_network", lambda pid: networks.get(pid, ""))
    assert of(HOST, port, [there]) is Whose.UNKNOWN
    assert of(HOST, port, [here, there]) is Whose.UNKNOWN
    assert of(HOST, port, [unseen]) is Whose.UNKNOWN  # it is not seen where it is
    assert of(HOST, port, [here, unseen]) is Whose.NOBODY


def test_a_network_is_seen(port: int) -> None:
    """A real one where this machine lets one be made."""
    made = ["unshare", "--user", "--net", sys.executable, "-Sc", "print(flush=True); input()"]
    with subprocess.Popen(made, stdin=-1, stdout=-1, stderr=-1) as child:
        assert child.stdout is not None
        is_made = bool(child.stdout.readline())
        if not is_made:
            child.wait()  # nothing is seen of it any more
        pids = [child.pid, os.getpid()]
        assert of(HOST, port, pids) is (Whose.UNKNOWN if is_made else Whose.NOBODY)
        child.kill()


def test_once_ours_a_port_can_become_somebody_elses(squatter: Squatter) -> None:
    whose = PortOwner(lambda: [os.getpid()], is_watched=True)
    port = free_port()  # none that the kernel gives to another meanwhile
    with socket.create_server((HOST, port)) as ours:
        assert ours.fileno() >= 0
        assert whose.why_not(HOST, port) == ""
        assert whose.was_ours
    assert whose.why_not(HOST, port) == f"what answered on port {port} does not listen there any more"
    squatter.takes(port, accepts=False)
    assert whose.why_not(HOST, port) == f"another process answers on port {port}"
    assert PortOwner(asked_in_vain, is_watched=False).why_not(HOST, port) == ""


@pytest.mark.parametrize("lets_go", [False, True])
def test_a_stranger_gets_no_key_and_no_question(squatter: Squatter, lets_go: bool) -> None:
    squatter.takes(lets_go=lets_go, answer=b"HTTP/1.0 200 OK\r\n\r\n")
    fetch = Fetch(HOST, squatter.port, "/health", 60.0, max_bytes=100, bearer="s3cr3t")
    if lets_go:
        squatter.until("let go")
    until(lambda: fetch.advance(0.0), "it is told")
    fetch.close()
    assert fetch.error == f"another process answers on port {squatter.port}"
    squatter_heard(squatter)


def squatter_heard(squatter: Squatter) -> None:
    squatter.until("served")
    assert squatter.heard == b""


def test_a_line_that_is_not_open_yet_is_asked_about_when_it_is(squatter: Squatter) -> None:
    """Who lets connections pile up is not asked about, and forgotten."""
    squatter.takes(accepts=False, backlog=0)
    waiting = [Fetch(HOST, squatter.port, "/", 1.0, max_bytes=100, bearer="s3cr3t") for _ in range(8)]
    for fetch in waiting:
        fetch.advance(0.0)
    told = {fetch.error for fetch in waiting}
    assert told <= {"", f"another process answers on port {squatter.port}"}
    assert all(fetch._asks_who for fetch in waiting if not fetch.error)
    assert any(not fetch.error for fetch in waiting)
    for fetch in waiting:
        fetch.close()
