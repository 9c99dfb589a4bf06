"""Time as a parameter, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

SET_S = 1.5
"""A machine's clock that differs by more from what it should show was set; less comes from the looking."""
TICK_S = 1.0
LATE_S = 1.0
"""A turn that comes later than this is a gap; a busy machine alone makes none."""


class Clock(Protocol):
    """Where `now` comes from and how to wait.

    `now` goes on evenly whatever is done to the machine's clock, so durations may be measured with it. A machine's
    clock that was set shows as `drift`, and only whoever has moved everything that was noted before calls `follow`.
    """

    offset: float
    """Between `now` and a clock that nobody can set; `follow` changes it."""

    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def drift(self) -> float:
        """By how many seconds the machine's clock was set, compared with `now`; 0 when it was not."""
        ...

    def follow(self, by: float) -> None:
        """Let `now` jump by so many seconds."""
        ...

    def missed(self) -> float:
        """Seconds of all gaps so far: times in which this process took no turn although it should have."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        ...


class SystemClock:
    """The machine's clock.

    `now` counts the time in which the machine slept: outside, it has passed. To `missed` it is a gap.

    Args:
        offset: of another clock of the same boot, to go on where that was; None: as the machine's clock is now.
    """

    def __init__(self, offset: float | None = None) -> None:
        self.offset = _offset() if offset is None else offset
        """Between `now` and the time since the machine was started."""
        self._missed = 0.0
        self._turned_at: float | None = None

    def now(self) -> float:
        """Seconds since the epoch."""
        return steady() + self.offset

    def drift(self) -> float:
        """By how many seconds the machine's clock was set, compared with `now`; 0 when it was not."""
        by = _offset() - self.offset
        return by if abs(by) > SET_S else 0.0

    def follow(self, by: float) -> None:
        """Let `now` jump by so many seconds."""
        self.offset += by

    def missed(self) -> float:
        """Seconds of all gaps so far; they are seen only while `keep` runs."""
        if self._turned_at is not None:
            at = steady()
            passed, self._turned_at = at - self._turned_at, at
            self._missed += passed - TICK_S if passed > TICK_S + LATE_S else 0.0
        return self._missed

    async def keep(self) -> None:
        """Take a turn every second, for ever."""
        self._turned_at = steady()
        while True:
            await asyncio.sleep(TICK_S)
            self.missed()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


def steady() -> float:
    """Seconds since the machine was started, those in which it slept included; nobody can set it."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def _offset() -> float:
    """The machine's clock less `steady`. Whoever stood still between looking at the one and the other looks again."""
    wall = before = 0.0
    for _ in range(10):
        before, wall = steady(), time.time()
        if steady() - before < SET_S / 2:
            break
    return wall - before


def lived(clock: Clock) -> float:
    """Seconds that this process was there for, of some beginning: no gap and no setting of the clock is in them."""
    missed = clock.missed()
    return clock.now() - clock.offset - missed
