"""Waiting for a host that starts: as long as it gets on, however slow the disk, and no longer once it does not."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.disk import starting
from remuda.base.errors import TimedOut
from remuda.base.units import show_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.base.disk.paths import StatePaths

PATIENCE_S: Final = 60.0
"""How long a start that does nothing is waited for: one read of a file server may take that."""
_TELL_AFTER_S: Final = 3.0


class Patience:
    """Looks again and again at a host that starts.

    Args:
        paths: its state directory.
        pid: of the process that was started; another one may be faster.
        wait_s: how long it may do nothing that can be seen.
        tell: is given a sentence when it does something else, and the wait is a long one.
    """

    def __init__(self, paths: StatePaths, pid: int, wait_s: float, tell: Callable[[str], None]) -> None:
        self._paths = paths
        self._pid = pid
        self._wait_s = wait_s
        self._tell = tell
        self._begun = self._at = time.monotonic()
        self._sign: object = None
        self._told = ""

    def look(self) -> None:
        """Once more.

        Raises:
            TimedOut: it has done nothing for too long.
        """
        pid, stage = starting.told(self._paths)
        if not Path(f"/proc/{pid}").exists():  # what one that was killed has left
            pid, stage = 0, ""
        pid = pid or self._pid
        doing = stage or "is not ready yet"
        sign, now = (pid, stage, *_work(pid)), time.monotonic()
        if sign != self._sign:
            self._sign, self._at = sign, now
        if now - self._at >= self._wait_s:
            raise TimedOut(
                f"the host (pid {pid}) {doing}, and has done nothing for {show_duration(now - self._at)}",
                hint=f"wait longer: remuda host start --wait 10m; its log: {self._paths.host_log}",
            )
        if now - self._begun >= _TELL_AFTER_S and doing != self._told:
            self._told = doing
            self._tell(f"waiting for the host (pid {pid}): it {doing}")


def _work(pid: int) -> tuple[str, ...]:
    """What a process has used and read so far: anything new is progress."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        used = (stat[11], stat[12], stat[9])  # user and system time, and pages that had to be read
    except (OSError, IndexError):
        return ()
    try:
        return (*used, Path(f"/proc/{pid}/io").read_text())
    except OSError:
        return used


def to_stderr(text: str) -> None:
    """Say it where it is in nobody's way."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
