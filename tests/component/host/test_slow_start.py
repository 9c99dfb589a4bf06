"""A host that is slow to start is waited for while it gets on; one that does nothing is told, and may still come."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.conftest import until

from remuda.base.disk import starting

if TYPE_CHECKING:
    from tests.conftest import Home

SLOW = """
import sys, time
if "remuda.host" in sys.orig_argv:
    class Slow:
        left = 18
        def find_spec(self, name, path=None, target=None):
            if name.startswith("remuda.") and Slow.left:
                Slow.left -= 1
                time.sleep(0.5)
    sys.meta_path.insert(0, Slow())
"""
"""As from a file server that was not asked before: nine seconds, half a second for each of the first modules."""
STUCK = """
import os, signal, sys
if "remuda.host" in sys.orig_argv:
    class Stuck:
        def find_spec(self, name, path=None, target=None):
            if name == "remuda.store.engine":
                sys.meta_path.remove(self)
                os.kill(os.getpid(), signal.SIGSTOP)
    sys.meta_path.insert(0, Stuck())
"""


def injected(home: Home, code: str) -> dict[str, str]:
    folder = home.root / "injected"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_a_slow_start_is_waited_for_while_it_gets_on(home: Home) -> None:
    done = home.run("host", "start", "--wait", "8s", env=injected(home, SLOW), patience=True)
    assert f"host {home.host_pid()} serves" in done.stderr
    assert f"waiting for the host (pid {home.host_pid()}): it loads its modules" in done.stderr
    assert starting.told(home.paths) == (0, ""), "nothing of it is left"


def test_a_host_that_does_nothing_is_told_and_comes_up_later(home: Home) -> None:
    stuck = home.run("host", "start", "--wait", "8s", env=injected(home, STUCK), check=False, patience=True)
    pid, stage = starting.told(home.paths)
    assert stage == "loads its modules"
    assert stuck.returncode == 7
    assert f"the host (pid {pid}) loads its modules, and has done nothing for " in stuck.stderr
    assert "remuda host start --wait 10m" in stuck.stderr
    until(lambda: _stopped(home), "it is stuck")
    os.kill(pid, signal.SIGCONT)
    until(home.client.is_up, "it comes up")
    assert home.host_pid() == pid


def test_one_that_goes_on_in_time_is_no_failure(home: Home) -> None:
    waiting = home.start("host", "start", "--wait", "60s", env=injected(home, STUCK))
    pid = until(lambda: _stopped(home), "it is stuck")
    os.kill(pid, signal.SIGCONT)
    _, err = waiting.communicate(timeout=240)
    assert waiting.returncode == 0, err
    assert f"host {pid} serves" in err


def _stopped(home: Home) -> int:
    pid, _ = starting.told(home.paths)
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return 0
    return pid if state == "T" else 0
