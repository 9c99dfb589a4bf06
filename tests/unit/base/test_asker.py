"""Who asks for a change: how they are named, and how names of strangers are shown."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from remuda.base import asker

if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = os.uname().nodename


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    asker.me.cache_clear()
    yield
    asker.me.cache_clear()


@pytest.mark.parametrize(
    ("name", "told"), [("anna", f"anna@{MACHINE}"), ("an\x1b[31mna\r\nX: y", "anna X: y@"), ("a" * 900, "a" * 79 + "…")]
)
def test_a_name_is_one_short_line(monkeypatch: pytest.MonkeyPatch, name: str, told: str) -> None:
    monkeypatch.setattr(asker, "user_name", lambda _: name)
    assert asker.me().startswith(told)
    assert len(asker.me()) <= 80
