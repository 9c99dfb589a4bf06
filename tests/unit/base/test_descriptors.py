"""How many files may be open."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from remuda.base import descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def hard() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_may_be_asked_for_is_asked_for(hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    assert descriptors.limit() == min(descriptors.MOST, hard - 1)
    assert descriptors.raise_limit() == min(descriptors.MOST, hard)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (descriptors.limit(), hard)


def test_where_no_more_is_given_nothing_fails(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        assert descriptors.raise_limit() == min(descriptors.MOST, hard - 1)


@pytest.mark.usefixtures("hard")
def test_without_a_limit_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert descriptors.raise_limit() == descriptors.MOST
