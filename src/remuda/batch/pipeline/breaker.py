"""When to stop asking an endpoint that answers nobody, and when to try again. Pure: time is a parameter.

A dead endpoint must not turn a million rows into errors. Failures that may be the endpoint's (no connection, timeout,
5xx) without any success between them open the breaker. Open, it lets one row through at a time, with growing pauses;
the first success closes it. Rows that fail while it is open, or open it, keep their tries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 5.0


@dataclass
class Breaker:
    """State of the endpoint as rows see it.

    Attributes:
        threshold: failures in a row that open the breaker.
        open_since: when it opened, None while closed.
        reason: the last failure's message.
    """

    threshold: int = 16
    failures: int = 0
    open_since: float | None = None
    next_probe: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    probing: bool = False
    reason: str = ""

    def on_success(self) -> None:
        """The endpoint answered something sensible."""
        self.failures = 0
        self.open_since = None
        self.probing = False
        self.pause_s = _FIRST_PAUSE_S

    def on_failure(self, now: float, reason: str, *, connected: bool, threshold: int = 0) -> None:
        """A try failed for a reason that may be the endpoint's.

        Args:
            now: the time.
            reason: what went wrong.
            connected: False means that nobody listens.
            threshold: fewer failures in a row than usual that open it; 0 for the usual number.
        """
        self.failures += 1
        self.reason = reason
        if self.open_since is None:
            if not connected or self.failures >= min(threshold or self.threshold, self.threshold):
                self.open_since = now
                self.next_probe = now + self.pause_s
            return
        if self.probing:
            self.probing = False
            self.pause_s = min(self.pause_s * 2, _LONGEST_PAUSE_S)
            self.next_probe = now + self.pause_s

    def on_neutral(self) -> None:
        """A row ended without having asked the endpoint; if it was the probe, another may be."""
        self.probing = False

    def may_send(self, now: float) -> bool:
        """Whether a row may go out now; while open, a True is the one probe."""
        if self.open_since is None:
            return True
        if self.probing or now < self.next_probe:
            return False
        self.probing = True
        return True

    def open_for_s(self, now: float) -> float:
        """Seconds since it opened, 0 while closed."""
        return 0.0 if self.open_since is None else now - self.open_since
