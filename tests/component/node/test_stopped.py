"""Program and child stand still for longer than any limit, and go on in every order: nothing is begun again.

Limits are some seconds. All orders are tried beside each other, because most of it is waiting.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.component.node.conftest import PYTHON, QUICK, alive, until

from remuda.wire.child import RunWatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.component.node.conftest import Allocation

LIMIT_S = 8.0
"""More than a busy machine lets a process wait: that alone must not end one."""
STOP_S = 1.5 * LIMIT_S
APART_S = LIMIT_S / 10
"""Between two that go on."""
ORDERS = (("program",), ("program", "child"), ("child", "program"))
WATCH = RunWatch(heartbeat_interval_s=0.2, progress_stall_s=LIMIT_S, previous_wait_s=0.0)
WORKS = f"import time\nwhile True:\n    print('a step', flush=True)\n    time.sleep({LIMIT_S / 8})"


class Pair:
    """A node program with its child, and who of them is stopped."""

    def __init__(self, allocation: Allocation, order: tuple[str, ...], state: str = "ready") -> None:
        self.allocation = allocation
        self.child = allocation.state(state).pid
        self.pids = [{"program": allocation.process.pid, "child": self.child}[name] for name in order]

    def grows(self) -> None:
        """It writes on."""
        log = self.allocation.run_dir / "child.log"
        grown = log.stat().st_size
        until(lambda: log.stat().st_size > grown, "it works on")

    def is_as_before(self) -> bool:
        """It is ready, and was never begun again."""
        report = self.allocation.report()
        assert report is not None
        assert (report.pid, report.restarts) == (self.child, 0), report.reason
        assert alive(self.child)
        return report.state == "ready"


def begin(make: Callable[[str], Allocation], start: Callable[[Allocation], object]) -> list[Pair]:
    """One for each order."""
    made = [make("-".join(order)) for order in ORDERS]
    for allocation in made:
        start(allocation)
    return [Pair(allocation, order) for allocation, order in zip(made, ORDERS, strict=True)]


def serve(one: Allocation, **probe: Any) -> None:
    """Start a server; all choose their ports with the same locks."""
    one.server(probe=replace(QUICK, **probe), port_locks=str(one.home.parent / "locks"))


def stop(pair: Pair) -> None:
    """Let it stand still."""
    for pid in pair.pids:
        os.kill(pid, signal.SIGSTOP)


def stand_still(pairs: list[Pair]) -> None:
    """Stop all, wait, and let them go on, each in its order, a moment apart."""
    for pair in pairs:
        stop(pair)
    time.sleep(STOP_S)
    go_on(pairs)


def go_on(pairs: list[Pair]) -> None:
    """Each in its order, a moment apart."""
    for turn in range(2):
        for pair in pairs:
            for pid in pair.pids[turn : turn + 1]:
                os.kill(pid, signal.SIGCONT)
        time.sleep(APART_S)


def test_a_script_that_stood_still_is_not_taken_for_hung(make_allocation: Callable[[str], Allocation]) -> None:
    pairs = begin(make_allocation, lambda one: one.start([sys.executable, "-c", WORKS], watch=WATCH))
    for _ in range(2):
        for pair in pairs:
            pair.grows()
        stand_still(pairs)
    for pair in pairs:
        pair.grows()
        assert pair.is_as_before()


def test_a_server_that_is_starting_has_its_time(make_allocation: Callable[[str], Allocation]) -> None:
    pairs: list[Pair] = []
    for order in ORDERS:
        one = make_allocation("-".join(order))
        one.control.write_text("500")
        serve(one, startup_timeout_s=LIMIT_S)
        pairs.append(Pair(one, order, "starting"))
        stop(pairs[-1])
        one.control.write_text("ok")
    time.sleep(STOP_S)
    go_on(pairs)
    for pair in pairs:
        until(pair.is_as_before, "it is ready")


def test_a_script_that_hangs_is_ended_all_the_same(allocation: Allocation) -> None:
    allocation.start([sys.executable, "-c", "import time\ntime.sleep(600)"], watch=WATCH)
    stand_still([Pair(allocation, ("program",))])
    allocation.code()
    assert "nothing was printed" in allocation.record().reason


def test_a_server_that_stood_still_is_not_started_again(make_allocation: Callable[[str], Allocation]) -> None:
    pairs = begin(make_allocation, lambda one: serve(one, timeout_s=LIMIT_S / 2, unhealthy_restart_after_s=LIMIT_S))
    stand_still(pairs)
    for pair in pairs:
        until(pair.is_as_before, "it is ready")


SAVES = f"""
import os, signal, sys, time
def end(*_):
    os.write(1, b"saves\\n")
    for _ in range(10):
        time.sleep({LIMIT_S / 5} / 10)
    os.write(1, b"saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
os.write(1, b"listens\\n")  # a print that a signal interrupts lets none of its handler happen
while True:
    time.sleep(0.05)
"""


def test_who_was_asked_to_end_has_its_grace(make_allocation: Callable[[str], Allocation]) -> None:
    """It takes a part of its grace; the rest is for the moment in which only one of them goes on."""
    pairs = begin(make_allocation, lambda one: one.start([*PYTHON, "-c", SAVES], kill_grace_s=LIMIT_S))
    until(lambda: all("listens" in pair.allocation.log() for pair in pairs), "all listen")
    for pair in pairs:
        os.kill(pair.allocation.process.pid, signal.SIGTERM)
    until(lambda: all("saves" in pair.allocation.log() for pair in pairs), "all were asked")
    stand_still(pairs)
    for pair in pairs:
        pair.allocation.code()
        assert "saved" in pair.allocation.log()
