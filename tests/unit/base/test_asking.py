"""Who asks for a change: how they are named, and how names of strangers are shown."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

import pytest

from remuda.base import asking

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = os.uname().nodename


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    asking.me.cache_clear()
    yield
    asking.me.cache_clear()


@pytest.mark.parametrize(
    ("name", "told"), [("anna", f"anna@{MACHINE}"), ("an\x1b[31mna\r\nX: y", "anna X: y"), ("a" * 900, "a" * 63 + "…")]
)
def test_a_name_is_one_short_line(monkeypatch: pytest.MonkeyPatch, name: str, told: str) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: name)
    assert asking.me().startswith(told)
    assert len(asking.me()) <= 64
    assert asking.me().encode().isascii() or "…" in asking.me()


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no entry")])
def test_who_has_no_name_has_a_number(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def getuser() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", getuser)
    assert asking.me().startswith(f"{os.geteuid()}@")
