"""What is kept of requests so that they can be sent again: one budget for all of them."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Final

REPLAY_LIMIT: Final = 4 << 20
"""Bytes of one request's body that are kept until its answer begins."""
BUDGET: Final = 256 << 20
"""Bytes of all requests together: a relay may stand on a login node, which has a limit for each user."""
TIDY: Final = 16 << 20
"""As little is not worth while to be given back to the system."""
PIECE: Final = 64
"""Bytes that Python and its lists need for each piece."""


class Budget:
    """Bytes that may be kept, and those that are.

    Args:
        limit: of all requests together.
    """

    def __init__(self, limit: int = BUDGET) -> None:
        self.limit = limit
        self.used = 0
        self._most = 0
        """Most that was kept since memory was last given back."""

    def allows(self, size: int) -> bool:
        """Whether so many more are below the limit."""
        return self.used + size <= self.limit

    def take(self, size: int) -> None:
        """So many more are kept."""
        self.used += size
        self._most = max(self._most, self.used)

    def give(self, size: int) -> None:
        """They are no more."""
        self.used -= size

    def tidy(self) -> None:
        """Let the system have the memory of what is kept no more: the C library holds on to it."""
        if self._most < TIDY or self.used > self._most // 2:
            return
        self._most = self.used
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


class Replay:
    """What was read so far of one request's body.

    Args:
        budget: that it takes from, and gives back to.
    """

    __slots__ = ("_budget", "_size", "is_full", "is_gone", "pieces")

    def __init__(self, budget: Budget) -> None:
        self.pieces: list[bytes] = []
        self.is_full = False
        """More came than may be kept: it is sent once, and not again."""
        self.is_gone = False
        """Nothing is kept any more, and the request cannot be sent again."""
        self._budget = budget
        self._size = 0

    def add(self, data: bytes, *, must: bool) -> None:
        """Keep some more; what is too much goes with all the rest, unless nobody else has got it (`must`)."""
        if self.is_gone:
            return
        size = len(data) + PIECE
        self.is_full |= self._size + size > REPLAY_LIMIT or not self._budget.allows(size)
        if self.is_full and not must:
            self.drop()
            return
        self.pieces.append(data)
        self._size += size
        self._budget.take(size)

    def sent(self) -> None:
        """A router has got it."""
        if self.is_full:
            self.drop()

    def drop(self) -> None:
        """Keep nothing."""
        self.is_gone = True
        self._budget.give(self._size)
        self.pieces, self._size = [], 0
