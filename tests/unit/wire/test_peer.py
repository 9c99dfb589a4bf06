"""Whose a port and a connection are, as recorded tables and the kernel tell."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from remuda.wire import peer
from remuda.wire.peer import Whose

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.strangers import Squatter

    Way = Callable[[pytest.MonkeyPatch], None]

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
HEAD6 = "  sl  local_address                         remote_address                        st tx_queue rx_queue ...\n"
#: Port 8000 is 1F40. As Linux on x86 writes it.
LOCAL, WILD, OTHER = "0100007F:1F40", "00000000:1F40", "0700000A:1F40"
LOCAL6, WILD6 = f"{'0' * 24}01000000:1F40", f"{'0' * 32}:1F40"
MAPPED = "0000000000000000FFFF00000100007F:1F40"
ME, ELSE = 1000, 1001


def row(address: str, uid: int, *, state: str = "0A", inode: int = 77) -> str:
    far = "0" * (len(address) - 5) + ":0000"
    rest = f"00000000:00000000 00:00000000 00000000  {uid:>5}        0 {inode} 1 000000001a90f8a5 100 0 0 10 0"
    return f"   0: {address} {far} {state} {rest}\n"


@pytest.mark.parametrize(
    ("host", "tcp", "tcp6", "expected"),
    [
        ("127.0.0.1", [row(LOCAL, ME)], [], Whose.OURS),
        ("127.0.0.1", [row(WILD, ME)], [], Whose.OURS),
        ("127.0.0.1", [], [row(WILD6, ME)], Whose.OURS),
        ("127.0.0.1", [], [row(MAPPED, ME)], Whose.OURS),
        ("127.0.0.1", [row(LOCAL, ELSE)], [], Whose.FOREIGN),
        ("127.0.0.1", [row(WILD, ELSE)], [], Whose.FOREIGN),
        ("127.0.0.1", [], [row(WILD6, ELSE)], Whose.FOREIGN),
        ("127.0.0.1", [row(LOCAL, 0)], [], Whose.UNKNOWN),
        ("127.0.0.1", [row(OTHER, ELSE)], [], Whose.NOBODY),
        ("127.0.0.1", [row("0100007F:1F41", ELSE)], [], Whose.NOBODY),
        ("127.0.0.1", [], [], Whose.NOBODY),
        # A connection that somebody has at that port is nobody who listens.
        ("127.0.0.1", [row(LOCAL, ME, state="01")], [], Whose.NOBODY),
        # Listeners come first; where they do not, they are found all the same.
        ("127.0.0.1", [row(OTHER, ME, state="01"), row(LOCAL, ELSE)], [], Whose.FOREIGN),
        # IPv6 on the same port is another place, and who squats there keeps nobody from IPv4.
        ("127.0.0.1", [row(WILD, ME)], [row(WILD6, ELSE)], Whose.OURS),
        ("::1", [row(WILD, ME)], [row(LOCAL6, ELSE)], Whose.FOREIGN),
        ("::1", [row(WILD, ELSE)], [row(WILD6, ME)], Whose.OURS),
        ("::1", [row(WILD, ME)], [], Whose.NOBODY),
        # Several that share a port are of one user; one that is not is seen.
        ("127.0.0.1", [row(LOCAL, ME), row(LOCAL, ELSE)], [], Whose.FOREIGN),
    ],
)
def test_who_listens(
    host: str, tcp: list[str], tcp6: list[str], expected: Whose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: ME)
    monkeypatch.setattr(os, "geteuid", lambda: ME)
    (tmp_path / "tcp").write_text(HEAD + "".join(tcp))
    (tmp_path / "tcp6").write_text(HEAD6 + "".join(tcp6))
    assert peer.listener(host, 8000, tmp_path) is expected


def test_a_table_that_is_not_there_is_no_table_without_anybody(tmp_path: Path) -> None:
    assert peer.listener("127.0.0.1", 8000, tmp_path) is Whose.UNKNOWN
    (tmp_path / "tcp").write_text("")
    assert peer.listener("127.0.0.1", 8000, tmp_path) is Whose.UNKNOWN
    (tmp_path / "tcp").write_text(HEAD)
    assert peer.listener("127.0.0.1", 8000, tmp_path) is Whose.NOBODY  # a machine without IPv6 has one table
    assert peer.listener("::1", 8000, tmp_path) is Whose.UNKNOWN
    (tmp_path / "tcp6").mkdir()
    assert peer.listener("127.0.0.1", 8000, tmp_path) is Whose.UNKNOWN


def test_of_ten_thousand_connections_none_is_read(tmp_path: Path) -> None:
    """What it costs does not depend on them: the line after the listeners would not be understood."""
    (tmp_path / "tcp").write_text(HEAD + row(LOCAL, os.getuid()) + row(OTHER, 7, state="01") + "   1: nonsense\n")
    (tmp_path / "tcp6").write_text(HEAD6)
    assert peer.listener("127.0.0.1", 8000, tmp_path) is Whose.OURS


def no_diag(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a sandbox: the kernel answers no questions, only its tables are there."""
    monkeypatch.setattr(peer, "_ask", lambda *_: None)


def as_it_is(_: pytest.MonkeyPatch) -> None:
    """The kernel is asked."""


ways = pytest.mark.parametrize("way", [as_it_is, no_diag])


@ways
@pytest.mark.parametrize(
    ("bind", "connect"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1"), ("::", "::1")],
)
def test_a_connection_to_ourselves(bind: str, connect: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    way(monkeypatch)
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.create_server((bind, 0), family=family, dualstack_ipv6=bind == "::") as server:
        port = server.getsockname()[1]
        with socket.create_connection((connect, port), timeout=60) as line:
            assert peer.of(line) is Whose.OURS  # not accepted yet
            with server.accept()[0] as taken:
                assert peer.of(line) is Whose.OURS
                assert peer.of(taken) is Whose.OURS
                assert peer.refusal(line) == ""
                taken.shutdown(socket.SHUT_WR)  # it still reads, and has no owner that is seen for sure
                assert peer.of(line) is Whose.NOBODY
                assert peer.refusal(line) == "it hung up"


@ways
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_connection_that_met_itself_reaches_nobody(host: str, way: Way, monkeypatch: pytest.MonkeyPatch) -> None:
    """As happens now and then to whoever calls, on this machine, a port on which nobody listens any more."""
    way(monkeypatch)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as line:
        line.bind((host, 0))
        line.connect(line.getsockname())
        assert peer.of(line) is Whose.NOBODY
        assert peer.refusal(line) == "it hung up"


@ways
def test_a_connection_that_a_stranger_has_not_accepted(
    squatter: Squatter, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    way(monkeypatch)
    squatter.takes(accepts=False)
    with socket.create_connection(("127.0.0.1", squatter.port), timeout=60) as line:
        assert peer.of(line) is Whose.FOREIGN
        assert "another user" in peer.refusal(line)


@ways
def test_a_stranger_who_accepts_and_lets_go_of_the_port(
    squatter: Squatter, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens now is one of ours; the connection is not."""
    way(monkeypatch)
    squatter.takes(lets_go=True)
    with socket.create_connection(("127.0.0.1", squatter.port), timeout=60) as line:
        squatter.until("let go")
        with socket.socket() as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ours.bind(("127.0.0.1", squatter.port))
            ours.listen()
            if squatter.stranger.is_real:
                assert peer.listener("127.0.0.1", squatter.port) is Whose.OURS
            assert peer.of(line) is Whose.FOREIGN


def test_who_is_not_on_this_machine_is_not_known() -> None:
    with socket.socket() as line:
        assert peer.of(line) is Whose.NOBODY  # it is not open
    near, far = socket.socketpair()
    with near, far:
        assert peer.of(near) is Whose.UNKNOWN
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as line:
        assert peer._end(("192.0.2.7", 80), line.getsockname()) is None


def test_what_it_costs_does_not_matter_beside_a_request() -> None:
    """One of the two ways there are costs 0.02 ms however many connections a machine has; this kernel has it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as line:
        assert peer._ask(line.getpeername(), line.getsockname()) is not None
