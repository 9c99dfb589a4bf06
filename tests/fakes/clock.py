"""Time that a test moves: a sleep is a jump, so two hours of backoff take a millisecond."""

from __future__ import annotations

import asyncio


class FakeClock:
    """A `base.clock.Clock` that stands still until it is told to go on."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.offset = 0.0
        self._now = now
        self._drift = 0.0
        self._missed = 0.0

    def now(self) -> float:
        """Seconds since the epoch, as set."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Raises:
            ValueError: backwards.
        """
        if seconds < 0:
            raise ValueError(f"time does not go back by {-seconds} s")
        self._now += seconds

    def stop(self, seconds: float) -> None:
        """Let time pass in which the process that looks at this clock stands still."""
        self._now += seconds
        self._missed += seconds

    def set_by(self, seconds: float) -> None:
        """Set the machine's clock on or, with a negative number, back."""
        self._drift += seconds

    def drift(self) -> float:
        """By how many seconds the machine's clock was set."""
        return self._drift

    def follow(self, by: float) -> None:
        """Let `now` jump."""
        self._now += by
        self.offset += by
        self._drift -= by

    def missed(self) -> float:
        """Seconds of all gaps so far."""
        return self._missed

    async def sleep(self, seconds: float) -> None:
        """Jump by `seconds`, after all others had their turn."""
        await asyncio.sleep(0)
        self.advance(seconds)
