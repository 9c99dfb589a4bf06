"""How many requests to have in flight: a pure limiter that follows what the endpoint shows.

Grows fast until more requests in flight bring no more answers per second, then slowly; shrinks when the endpoint says
that it is overloaded (429, 503), when its own queue grows, or when answers take much longer than they did and no more
of them come. Time is a parameter; nothing here waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

START: Final = 32
_CUT_OVERLOAD: Final = 0.7
_CUT_SLOW: Final = 0.9
_SLOWER: Final = 1.5
_FASTER: Final = 1.05


@dataclass(frozen=True)
class Window:
    """What was seen between two looks: answers per second, and mean seconds per answer."""

    rate: float
    latency_s: float


class Limiter:
    """AIMD over windows of about one round of requests.

    Args:
        maximum: never exceeded, 1 or more.
        start: first limit; the maximum when the user gave a bound.
        timeout_s: answers that take half of it count as overload.
    """

    def __init__(self, maximum: int, *, start: int = START, timeout_s: float = 600.0) -> None:
        self.maximum = max(1, maximum)
        self.limit = max(1, min(start, self.maximum))
        self._timeout_s = timeout_s
        self._doubling = True
        self._best: Window | None = None
        self._queued = 0.0
        self._begin(0.0)
        self._began = -1.0

    def _begin(self, now: float) -> None:
        self._began = now
        self._count = 0
        self._latency_sum = 0.0
        self._overloaded = False
        self._full = False

    def on_answer(self, latency_s: float, now: float, *, in_flight: int) -> None:
        """An answer came `latency_s` after its request; `in_flight` counts it too."""
        if self._began < 0:
            self._begin(now - latency_s)
        self._count += 1
        self._latency_sum += latency_s
        if in_flight >= self.limit:
            self._full = True
        if self._count >= self.limit and self._count >= 8:
            self._close(now)

    def on_overload(self, now: float) -> None:
        """The endpoint refused (429, 503) or let a request time out. Cuts at most once per window."""
        if self._overloaded:
            return
        self.limit = max(1, int(self.limit * _CUT_OVERLOAD))
        self._doubling = False
        self._best = None
        self._begin(now)
        self._overloaded = True

    def on_queue(self, waiting: float, running: float) -> None:
        """The engine's own figures: requests that wait, and requests that it works on."""
        self._queued = waiting / max(running, 1.0)
        if self._queued > 1.0:
            self._doubling = False
            self.limit = max(1, int(self.limit * _CUT_SLOW))

    def _close(self, now: float) -> None:
        elapsed = max(now - self._began, 1e-6)
        seen = Window(self._count / elapsed, self._latency_sum / self._count)
        refused, full = self._overloaded, self._full
        self._begin(now)
        if refused:
            return
        best = self._best
        faster = best is None or seen.rate > best.rate * _FASTER
        slower = best is not None and seen.latency_s > best.latency_s * _SLOWER
        if seen.latency_s > self._timeout_s * 0.5 or (slower and not faster):
            self._shrink()
        elif full and self._queued <= 0.1:
            self._grow(faster=faster)
        if faster:
            self._best = seen

    def _shrink(self) -> None:
        self.limit = max(1, int(self.limit * _CUT_SLOW))
        self._doubling = False
        # Forgetting slowly lets the limiter learn that the endpoint itself became slower or faster.
        if self._best is not None:
            self._best = Window(self._best.rate * 0.95, self._best.latency_s * 1.1)

    def _grow(self, *, faster: bool) -> None:
        self._doubling = self._doubling and faster
        step = self.limit if self._doubling else max(1, self.limit // 20)
        self.limit = min(self.maximum, self.limit + step)
