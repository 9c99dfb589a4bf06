"""Who asks for a change: how they are named, and how names of strangers are shown."""

from __future__ import annotations

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
    ("name", "told"), [("anna", f"anna@{MACHINE}"), ("an\x1b[31mna\r\nX: y", "anna X: y@"), ("a" * 900, "a" * 79 + "…")]
)
def test_a_name_is_one_short_line(monkeypatch: pytest.MonkeyPatch, name: str, told: str) -> None:
    monkeypatch.setattr(asking, "user_name", lambda _: name)
    assert asking.me().startswith(told)
    assert len(asking.me()) <= 80
