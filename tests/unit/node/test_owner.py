"""Whose server it is, as the kernel tells."""

from __future__ import annotations

import os
import socket

import pytest

from remuda.node.owner import is_foreign


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
        assert not is_foreign(ask, port, [os.getpid()])
        assert is_foreign(ask, port, [])
        assert not is_foreign(ask, port, [1, os.getpid()])


def test_the_socket_bound_to_the_very_address_counts() -> None:
    with socket.socket() as wild, socket.socket() as exact:
        for server in (wild, exact):
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        wild.bind(("0.0.0.0", 0))
        port = wild.getsockname()[1]
        exact.bind(("127.0.0.1", port))
        wild.listen()
        assert is_foreign("127.0.0.1", port, [])
        exact.listen()
        assert is_foreign("127.0.0.1", port, [])
        assert not is_foreign("127.0.0.1", port, [os.getpid()])


def test_where_nothing_is_seen_nothing_is_claimed() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not is_foreign("127.0.0.1", bound.getsockname()[1], [])
