"""How many requests to have in flight: a pure limiter that follows what the endpoint shows.

It looks for the knee: the limit above which more requests in flight only wait longer. It grows fast until answers per
second stop growing with it, then slowly, up to half above the knee; it shrinks when the endpoint says that it is
overloaded (429, 503), when the engine's own queue grows, or when answers take much longer and no more of them come.
Time is a parameter; nothing here waits.
"""

from __future__ import annotations

from typing import Final

START: Final = 32
_CUT_OVERLOAD: Final = 0.7
_CUT_SLOW: Final = 0.9
#: A window is slow when its mean latency is this many times that at the knee.
_SLOWER: Final = 1.5
#: More in flight pays when the rate grows by at least this factor.
_FASTER: Final = 1.1
#: How far above the knee the limit may go, so that it notices an endpoint that became faster.
_ABOVE: Final = 1.5
_SMOOTH: Final = 0.3
_FORGET_RATE: Final = 0.995
_FORGET_LATENCY: Final = 0.02


class Limiter:
    """AIMD over windows of about one round of requests.

    Args:
        maximum: never exceeded, 1 or more.
        start: first limit.
        timeout_s: answers that take half of it count as overload.
    """

    def __init__(self, maximum: int, *, start: int = START, timeout_s: float = 600.0) -> None:
        self.maximum = max(1, maximum)
        self.limit = max(1, min(start, self.maximum))
        self._timeout_s = timeout_s
        self._doubling = True
        self._knee = 0
        self._rate = 0.0
        self._best_rate = 0.0
        self._usual_latency_s = 0.0
        self._queued = 0.0
        self._begin(-1.0)

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
        self._doubling = False
        self.limit = max(1, int(self.limit * _CUT_OVERLOAD))
        self._begin(now)
        self._overloaded = True

    def on_stall(self, now: float) -> None:
        """Nobody was answered any more: half of it is the next to try."""
        self._doubling = False
        self.limit = max(1, self.limit // 2)
        self._begin(now)

    def on_queue(self, waiting: float, running: float) -> None:
        """The engine's own figures: requests that wait, and requests that it works on."""
        self._queued = waiting / max(running, 1.0)
        if self._queued > 1.0:
            self._doubling = False
            self.limit = max(1, int(self.limit * _CUT_SLOW))

    def _close(self, now: float) -> None:
        rate, latency_s = self._count / max(now - self._began, 1e-6), self._latency_sum / self._count
        refused, full = self._overloaded, self._full
        self._begin(now)
        if refused:
            return
        better = self._learn(rate, latency_s)
        if latency_s > self._timeout_s * 0.5:
            self._shrink(floor=1)
        elif latency_s > self._usual_latency_s * _SLOWER and not better:
            self._shrink(floor=max(1, self._knee // 2))
        elif full and self._queued <= 0.1:
            self._grow(better=better)

    def _learn(self, rate: float, latency_s: float) -> bool:
        """Take a window into account; whether it shows that the knee is at this limit or above."""
        self._rate = rate if self._doubling else self._rate + _SMOOTH * (rate - self._rate)
        if self._rate > self._best_rate * _FASTER:
            self._knee, self._best_rate, self._usual_latency_s = self.limit, self._rate, latency_s
            return True
        # What was seen long ago fades, but never below what is seen now: noise must not look like progress.
        if self._rate < self._best_rate:
            self._best_rate = max(self._rate, self._best_rate * _FORGET_RATE)
        self._usual_latency_s += _FORGET_LATENCY * (latency_s - self._usual_latency_s)
        return False

    def _shrink(self, *, floor: int) -> None:
        self.limit = max(min(floor, self.limit), int(self.limit * _CUT_SLOW))
        self._doubling = False

    def _grow(self, *, better: bool) -> None:
        self._doubling = self._doubling and better
        step = self.limit if self._doubling else max(1, self.limit // 20)
        roof = self.maximum if self._doubling else max(self.limit, int(self._knee * _ABOVE), self._knee + 4)
        self.limit = min(self.maximum, roof, self.limit + step)
