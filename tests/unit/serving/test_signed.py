"""A port that takes connections only from who signs them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from itertools import count
from types import SimpleNamespace

import pytest

from remuda.serving import signed


@pytest.fixture
def key() -> bytes:
    made = signed.make_key()
    assert made, "this kernel signs no TCP segments: CONFIG_TCP_MD5SIG"
    return made


def test_only_who_signs_connects(key: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        signed.sign_all(listener, key)
        asyncio.run(signed.connect(port, key)).close()
        for wrong in (b"", signed.make_key()):
            with pytest.raises(TimeoutError):
                asyncio.run(asyncio.wait_for(signed.connect(port, wrong), 0.3))


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_from_no_address_without_the_key(key: bytes, source: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        signed.sign_all(listener, key)
        with pytest.raises(TimeoutError):
            socket.create_connection(listener.getsockname(), timeout=0.3, source_address=(source, 0))


def test_who_was_quicker_than_the_key_is_hung_up_on(key: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long this process stands still between any two of its steps."""
    hours = count(step=3600)
    monkeypatch.setattr(signed, "time", SimpleNamespace(sleep=time.sleep, monotonic=lambda: next(hours)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        early = socket.create_connection(("127.0.0.1", port), timeout=60)
        taken, _ = listener.accept()
        closing = threading.Thread(target=signed.close_to_others, args=(frozenset({port}), key))
        closing.start()
        closing.join()
        with early, taken:
            early.settimeout(60)
            assert early.recv(1) == b""
        asyncio.run(signed.connect(port, key)).close()
