"""How soon Slurm is asked again while something is about to end. Pure."""

from __future__ import annotations

SOON_S = 0.5
BURST = 6.0
"""Looks that may come soon after each other, once nothing has been asked for a while."""


class Pace:
    """A look each `usual_s` seconds on average; what was saved while nothing was asked may be spent at once.

    A job is over some tenths of a second after its task said so, and what follows waits for Slurm's word. So the end
    of one is seen soon, and the ends of thousands in a row cost the controller no more than before.
    """

    def __init__(self, usual_s: float) -> None:
        self._usual_s, self._saved, self._looked_at = usual_s, BURST, float("-inf")

    def looked(self, now: float) -> float:
        """Take in a look; seconds until the next."""
        if self._usual_s > SOON_S:
            self._saved = min(BURST, self._saved + max(0.0, now - self._looked_at) / self._usual_s) - 1.0
        self._looked_at = now
        return self._usual_s if self._saved < 1.0 else min(self._usual_s, SOON_S)
