"""A machine that somebody says is off: what ran there starts elsewhere, without the wait for its silence."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.conftest import until

from remuda.fleet.processes import Daemons

if TYPE_CHECKING:
    from tests.component.fleet.homes import Fleet


def power_off(fleet: Fleet) -> None:
    """Everything of the machine ends at once, and nothing says a word."""
    os.kill(fleet.status()["pid"], signal.SIGKILL)
    daemons = Daemons(fleet.box.paths.fleet_node / "slurm")
    for name in ("slurmd", "munged"):
        daemons.stop(name, kill=True)
    for pid in fleet.head.tokens():
        with suppress(ProcessLookupError):  # some end with others
            os.kill(pid, signal.SIGKILL)


def test_what_ran_on_a_machine_that_is_off_starts_elsewhere_at_once(fleet: Fleet) -> None:
    fleet.connect(fleet.begin(), "--resilient")
    fleet.idle()
    (fleet.head.root / "train.sh").write_text("#!/bin/sh\nsleep 3600\n")
    fleet.head.run("run", "train.sh", "--backend", "fleet", "--set", "backoff_base=1")
    task = until(lambda: (one := fleet.head.task("train", "script/0"))["phase"] == "ready" and one, "it runs")
    assert task["node"] == "box"

    said = fleet.head.run("nodes", "lost", "bax", check=False)
    assert said.stderr == "error: the fleet has no node 'bax'\n  did you mean 'box'?\n"
    said = fleet.head.run("nodes", "lost", "box", check=False)
    assert said.returncode == 4
    assert re.fullmatch(
        r"error: box is not off: it was heard \d\.\d s ago\n"
        r"  to give up what runs there: remuda client disconnect --force on it, or --force here\n",
        said.stderr,
    )

    power_off(fleet)
    began = time.monotonic()
    said = fleet.head.run("nodes", "lost", "box", "--force")
    assert said.stderr == "box is taken for off; what ran there starts elsewhere\n"
    until(lambda: fleet.head.task("train", "script/0")["attempt"] == 2, "it starts elsewhere", 60)
    assert time.monotonic() - began < 12, "a poll is every 15 s, and silence is noticed after five minutes"
    assert "its node failed" in fleet.head.run("explain", "train").stdout

    fleet.box.run("client", "connect", fleet.where, "--node-id", "box", "--resilient", "--detach")
    until(
        lambda: (one := fleet.head.task("train", "script/0"))["phase"] == "ready" and one["attempt"] == 2, "it is back"
    )
    fleet.head.run("down", "train")
