"""The node program's own time: what it was stopped for is not in it, so nobody is ended for standing still with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from remuda.policy.presence import Presence, turned

if TYPE_CHECKING:
    import select

STEP_S = 1.0
"""Longest wait while a child has its grace: so much of it may pass in a gap."""


class LivedTime:
    """Seconds that go on while this program takes its turns."""

    def __init__(self) -> None:
        at = time.monotonic()
        self._presence = Presence(at, at)

    def now(self) -> float:
        """Seconds; they are those of the clock until the first gap."""
        self._presence = turned(self._presence, time.monotonic())
        return self._presence.lived

    @property
    def resumed(self) -> float:
        """`now` when the last gap ended, 0 for none."""
        return self._presence.resumed

    def wait(self, poll: select.poll, until: float, *, in_steps: bool = False) -> None:
        """Wait for one of the descriptors of `poll`, or until `now` is `until`; maybe for less."""
        longest = STEP_S if in_steps else 3600.0
        wait_s = min(max(0.0, until - self.now()), longest)
        poll.poll(wait_s * 1000 + 0.5)  # rounded up: waking too early would spin
        self._presence = turned(self._presence, time.monotonic(), wait_s)
