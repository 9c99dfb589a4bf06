"""Who has connected and has not said the key yet: so many, for so long, with so many bytes.

Bookkeeping only, for any kind of connection and clock. Whoever listens closes what this names. Python 3.9, standard
library only.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Answers of `accept` that say nothing about the listener: it waits a moment and goes on."""
PAUSE_S = 1.0
"""How long nothing is accepted after one of these."""
ACCEPTS = 32
"""At most so many connections are accepted in one turn, so that a flood leaves time for all else."""


@dataclass(frozen=True)
class Limits:
    """What strangers get."""

    number: int = 64
    seconds: float = 10.0
    bytes: int = 4096
    """Of what each may say before its first line ends."""


@dataclass
class _Waiting:
    address: str
    since: float
    said: int = 0


class Gate(Generic[T]):
    """Connections that wait before the key, oldest first."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._waiting: dict[T, _Waiting] = {}
        self._counts: dict[str, int] = {}
        """Of each address, how many wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, who: T) -> bool:
        return who in self._waiting

    def admit(self, who: T, address: str, now: float) -> T | None:
        """Take in a new connection; the one that has to go for it, if any.

        That is the oldest of the address that has most, so a flood from one address is paid by that address.
        """
        self.leave(who)
        self._waiting[who] = _Waiting(address, now)
        self._counts[address] = self._counts.get(address, 0) + 1
        return self.push_out() if len(self._waiting) > self.limits.number else None

    def push_out(self) -> T | None:
        """The one that has to go for another, and waits no more: the oldest of the busiest address; None: nobody."""
        if not self._waiting:
            return None
        most = max(self._counts.values())
        victim = next(one for one, waiting in self._waiting.items() if self._counts[waiting.address] == most)
        self.leave(victim)
        return victim

    def hears(self, who: T, size: int) -> bool:
        """Count `size` more bytes of a connection; whether it may go on."""
        waiting = self._waiting.get(who)
        if waiting is None:
            return False
        waiting.said += size
        return waiting.said <= self.limits.bytes

    def overdue(self, now: float) -> list[T]:
        """Those that had their time."""
        found = []
        for one, waiting in self._waiting.items():
            if now - waiting.since < self.limits.seconds:
                break
            found.append(one)
        return found

    def due(self) -> float:
        """When `overdue` names somebody, if nothing happens before; infinity when nobody waits."""
        first = next(iter(self._waiting.values()), None)
        return first.since + self.limits.seconds if first is not None else float("inf")

    def everybody(self) -> list[T]:
        """All that wait."""
        return list(self._waiting)

    def leave(self, who: T) -> None:
        """It has said the key, or is gone."""
        waiting = self._waiting.pop(who, None)
        if waiting is None:
            return
        self._counts[waiting.address] -= 1
        if not self._counts[waiting.address]:
            del self._counts[waiting.address]
