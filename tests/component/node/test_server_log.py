"""Lines that a server prints about broken hardware: no restart in place, and the last word names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.component.node.conftest import QUICK, SOON

from remuda.wire import exit as codes

if TYPE_CHECKING:
    from tests.component.node.conftest import Allocation

FALLEN = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus."


def test_a_server_on_a_broken_gpu_is_given_up_at_once(allocation: Allocation) -> None:
    allocation.start(
        ["/bin/sh", "-c", f"echo '{FALLEN}' >&2; exit 1"], probe=QUICK, restart=SOON, port=23600, scan_log=True
    )
    assert allocation.code() == codes.NODE_FAULT
    record = allocation.record()
    assert [(fault["name"], fault["kind"], fault["device"]) for fault in record.faults] == [
        ("xid-79", "node", "0000:3b:00")
    ]
    assert record.reason.startswith(f"broken hardware: {FALLEN}")
    assert "backoff" not in allocation.states()


def test_a_server_that_only_fails_is_started_again(allocation: Allocation) -> None:
    allocation.start(
        ["/bin/sh", "-c", "echo no such model; exit 1"], probe=QUICK, restart=SOON, port=23700, scan_log=True
    )
    assert allocation.code() == codes.GAVE_UP
    assert allocation.record().faults == []


def test_without_the_scan_lines_mean_nothing(allocation: Allocation) -> None:
    allocation.start(["/bin/sh", "-c", f"echo '{FALLEN}'; exit 1"], probe=QUICK, restart=SOON, port=23800)
    assert allocation.code() == codes.GAVE_UP
