"""The directory for an engine's sockets: nobody can have made it before, and nobody else gets into it."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from remuda.node.child import scratch
from remuda.node.child.ports import UnsafeDirectory
from remuda.wire.spread import SCRATCH_MARK

if TYPE_CHECKING:
    from tests.strangers import Stranger

RAY = ("ray", f"--temp-dir={SCRATCH_MARK}")


@pytest.mark.usefixtures("loose")
def test_it_is_new_private_and_short() -> None:
    one, two = scratch.make(RAY), scratch.make(RAY)
    try:
        assert one != two
        assert len(one) <= 15, "Ray puts long names of sockets behind it"
        assert stat.S_IMODE(Path(one).stat().st_mode) == 0o700
    finally:
        scratch.remove(one)
        scratch.remove(two)
    assert not Path(one).exists()


def test_a_name_that_is_taken_is_not_used(stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Path(scratch.make(["none"]))
    names = iter([taken.name[2:], "0" * 7 + taken.name[-1]])
    assert stranger.does(lambda: taken.mkdir(mode=0o777))
    try:
        monkeypatch.setattr("secrets.token_hex", lambda _: next(names))
        made = scratch.make(RAY)
        assert made != str(taken)
        scratch.remove(made)
    finally:
        taken.rmdir()


def test_where_no_engine_asks_for_it_nothing_is_made() -> None:
    assert not Path(scratch.make(["vllm", "serve"])).exists()
    assert scratch.share("/tmp/rr01234567", ["vllm"]) == ""


def test_on_another_node_it_is_ours_or_nobody_s(common: Path, stranger: Stranger) -> None:
    here = str(common / "ours")
    assert scratch.share(here, RAY) == here
    assert scratch.share(here, RAY) == here, "two nodes of a test are one machine"
    assert stranger.does((common / "theirs").mkdir)
    stranger.see_as_foreign()
    with pytest.raises(UnsafeDirectory):
        scratch.share(str(common / "theirs"), RAY)
