"""What a node's own machine records of its client: whom the head answered last, by a clock that nobody sets."""

from __future__ import annotations

import io
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from remuda.base.disk.locks import Lock
from remuda.base.disk.paths import StatePaths
from remuda.base.errors import Conflict, NotFound
from remuda.fleet import client, joining, membership
from remuda.wire.fleet import Levels

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_answer_is_told_by_a_clock_that_nobody_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "clock_gettime", lambda _: now[0])
    assert membership.heard(tmp_path) == (0, None)
    membership.hear(tmp_path)
    size = (tmp_path / membership.HEARD).stat().st_size
    now[0] += 123_456.5
    assert membership.heard(tmp_path) == (os.getpid(), 123_456.5)
    membership.hear(tmp_path)
    assert membership.heard(tmp_path) == (os.getpid(), 0.0)
    assert (tmp_path / membership.HEARD).stat().st_size == size, "a full disk takes it, too"


def test_what_an_earlier_boot_or_version_wrote_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / membership.HEARD
    for text in ("", "12", "x y z", f"{os.getpid()} another-boot 12.0"):
        file.write_text(text)
        assert membership.heard(tmp_path) == (0, None), text
    monkeypatch.setattr(membership, "boot_id", lambda: "")
    membership.hear(tmp_path)
    assert membership.heard(tmp_path)[0] == os.getpid(), "where the kernel has no id of its boot"


def test_a_client_is_seen_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    assert membership.running(tmp_path) == 0
    lock = Lock(tmp_path / membership.LOCK, "it runs already", "look at it")
    assert membership.running(tmp_path) == os.getpid()
    with pytest.raises(Conflict, match="it runs already") as raised:
        Lock(tmp_path / membership.LOCK, "it runs already", "look at it")
    assert raised.value.hint == "look at it"
    lock.close()
    assert membership.running(tmp_path) == 0


def test_a_token_from_standard_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 1_000_000))
    assert len(joining.read_token("-")) == 4096
    monkeypatch.setattr(sys, "stdin", io.StringIO("rmd1.a\nmore"))
    assert joining.read_token("-") == "rmd1.a\n"


class View:
    """What `disconnect` asks of a client's own view."""

    def __init__(self, looks: list[int]) -> None:
        if len(looks) < 2:
            raise NotFound("it has left a moment ago")

    def running(self) -> str:
        return "12 train, 13 eval"


def test_leaving_says_again_and_again_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, looks = list[str](), [7, 7, 7, 0]
    kept = [membership.Membership("head", 1, "", "box", joined={})]
    monkeypatch.setattr(membership, "read", lambda _: kept.pop() if kept else None)
    monkeypatch.setattr(membership, "running", lambda _: looks.pop(0))
    monkeypatch.setattr(client, "TELL_S", 0.0)
    monkeypatch.setattr(joining, "NodeClient", lambda *_: View(looks))
    monkeypatch.setattr(joining, "_leaving", lambda *_, **__: Levels(leaving=True))
    joining.disconnect(StatePaths(tmp_path), told.append)
    assert told[0].startswith("the node gets nothing new")
    assert told[1:] == ["still waiting for what runs here: 12 train, 13 eval"] * 2
    assert not looks
