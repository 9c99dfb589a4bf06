"""Allocations whose queue gave them their place, and took it back."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import Life
from remuda.backends.kubernetes.observing import QUEUED

if TYPE_CHECKING:
    from remuda.backends.base import Observed


class QueueTurns:
    """How often the queue of each allocation took its place back, as far as it was looked at in between."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Life, int]] = {}

    def counted(self, token: str, seen: Observed) -> Observed:
        """What was seen of it, with that."""
        last, times = self._of.get(token, (Life.PENDING, 0))
        times += last is Life.RUNNING and seen.native_state == QUEUED
        self._of[token] = seen.life, times
        return replace(seen, requeues=times)

    def forget(self, others_than: set[str]) -> None:
        """Those that are not asked for any more."""
        self._of = {token: last for token, last in self._of.items() if token in others_than}
