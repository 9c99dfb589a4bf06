"""What a server prints about broken hardware, and how long that counts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from remuda.node.journal import Journal
from remuda.node.serverlog import GRACE_S, ServerLog
from remuda.wire.child import ChildSpec

if TYPE_CHECKING:
    from pathlib import Path

FALLEN = b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def looked(folder: Path, *pieces: bytes) -> ServerLog:
    spec = ChildSpec(token="t", workload="w", task="replica/0", attempt=1, argv=["x"], run_dir=str(folder))
    log = ServerLog(spec, Journal(folder, spec.task, "error", to_file=True))
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
