"""Time that a test moves: a sleep is a jump, so two hours of backoff take a millisecond."""

from __future__ import annotations

import asyncio


class FakeClock:
    """A `base.clock.Clock` that stands still until it is told to go on."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self._now = now

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

    async def sleep(self, seconds: float) -> None:
        """Jump by `seconds`, after all others had their turn."""
        await asyncio.sleep(0)
        self.advance(seconds)
