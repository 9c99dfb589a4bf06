"""What a server prints about broken hardware, and how long that counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from remuda.node.child.serverlog import GRACE_S, ServerLog
from remuda.node.journal import NodeLog
from remuda.wire.child import ChildSpec

if TYPE_CHECKING:
    from pathlib import Path

FALLEN = b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def looked(folder: Path, *pieces: bytes, fatal: tuple[str, ...] = ()) -> ServerLog:
    spec = ChildSpec(
        token="t", workload="w", task="replica/0", attempt=1, argv=["x"], run_dir=str(folder), fatal_lines=list(fatal)
    )
    log = ServerLog(spec, NodeLog(folder, spec.task, "warning", to_file=True))
    log.starts(0.0)
    for piece in pieces:
        log.took(0, piece)
    return log


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    assert looked(tmp_path, FALLEN).broken(time.monotonic(), ill=False) == FALLEN.decode()
    assert looked(tmp_path, b"all is well").broken(time.monotonic(), ill=False) == ""


def test_an_ill_server_has_time_to_end_by_itself(tmp_path: Path) -> None:
    log = looked(tmp_path, FALLEN + b"\n")
    now = time.monotonic()
    assert log.broken(now, ill=True) == ""
    assert log.broken(now + GRACE_S + 1, ill=True) == FALLEN.decode()


def test_a_server_that_goes_on_answering_was_not_broken(tmp_path: Path) -> None:
    """It may have printed what it was asked."""
    log = looked(tmp_path, FALLEN + b"\n")
    log.answered(time.monotonic())
    assert log.faults.all
    log.answered(time.monotonic() + GRACE_S + 1)
    assert log.faults.all == []
    assert log.broken(time.monotonic() + 10 * GRACE_S, ill=True) == ""


def test_each_start_begins_anew(tmp_path: Path) -> None:
    log = looked(tmp_path, FALLEN + b"\n")
    log.starts(0.0)
    assert log.broken(time.monotonic() + 10 * GRACE_S, ill=True) == ""


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        ((b"loads\nScheduler hit an exception: x\nlives on\n",), "Scheduler hit an exception: x"),
        ((b"loads\nSchedu", b"ler hit an ex", b"ception: x\n"), "Scheduler hit an exception: x"),
        ((b"Scheduler hit an exception",), ""),  # its line has no end yet
        ((b"x" * 5000 + b"Scheduler hit an exception\n",), ""),
        ((b"\xff out of cards\n",), "\ufffd out of cards"),
        ((b"well\n",), ""),
    ],
)
def test_a_line_after_which_a_server_never_comes_up(tmp_path: Path, pieces: tuple[bytes, ...], line: str) -> None:
    log = looked(tmp_path, *pieces, fatal=("Scheduler hit an exception", "out of (cards|luck)"))
    assert log.fatal == line
    log.starts(0.0)
    assert log.fatal == ""


@pytest.mark.parametrize("pattern", ["(?i)scheduler HIT", "(?s-i:Scheduler) hit", "Scheduler hit|(?#never) x"])
def test_each_pattern_stands_alone_whatever_is_at_its_front(tmp_path: Path, pattern: str) -> None:
    log = looked(tmp_path, b"well\nScheduler hit\n", fatal=("out of cards", pattern))
    assert log.fatal == "Scheduler hit"


def test_a_pattern_that_backtracks_without_end_is_given_up_and_the_others_are_not(tmp_path: Path) -> None:
    log = looked(tmp_path, b"a" * 60 + b"!\n", fatal=("(a+)+$", "out of luck"))
    log.took(0, b"a" * 60 + b"!\nout of luck\n")
    assert log.fatal == "out of luck"
    assert "'(a+)+$' is looked for no longer" in (tmp_path / "node.log").read_text()
