"""Who is connected and asks nothing at the moment. Where descriptors run out they go, the longest idle first.

Bookkeeping only, for any kind of connection and clock. Whoever waits for an answer is never named here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from remuda.wire.gate import Gate, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

STRANGERS: Final = Limits(number=1024, seconds=20.0, bytes=0)
"""Those that have sent no whole head yet; how long that is may be is another's to say."""
TELL_S: Final = 60.0
"""From the first byte of a later head to its end, or from one byte of a body to the next."""
REST_S: Final = 900.0
"""Between two requests."""
_TRIES: Final = 8


class Guest(Protocol):
    """A connection."""

    @property
    def owes(self) -> bool:
        """Whether the rest of what it began to say is waited for."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether it has asked for something."""
        ...

    @property
    def reads(self) -> bool:
        """Whether it has not got all yet that was written to it."""
        ...


G = TypeVar("G", bound=Guest)


class Crowd(Generic[G]):
    """Idle connections, oldest first: strangers, those that owe the rest of a request, and those that rest.

    One that rested and is busy again is told apart when it is its turn to go: that costs a request nothing.
    """

    def __init__(self, strangers: Limits = STRANGERS) -> None:
        self._strangers: Gate[G] = Gate(strangers)
        self._telling: dict[G, float] = {}
        self._resting: dict[G, float] = {}

    def comes(self, who: G, address: str, now: float) -> G | None:
        """It has asked nothing so far, or nothing that counts; the one that has to go for it, if any."""
        self.leaves(who)
        return self._strangers.admit(who, address, now)

    def tells(self, who: G, now: float) -> None:
        """It has said some of a request; a stranger stays one as long as that is no whole head."""
        if who not in self._strangers:
            self.leaves(who)
            self._telling[who] = now

    def is_telling(self, who: G) -> bool:
        """Whether it is known to owe the rest of a request."""
        return who in self._telling

    def rests(self, who: G, now: float) -> None:
        """Its request is over; it may rest already."""
        if self._telling:
            self._telling.pop(who, None)
        self._resting.pop(who, None)
        self._resting[who] = now

    def leaves(self, who: G) -> None:
        """It waits for an answer, or is gone."""
        self._strangers.leave(who)
        self._telling.pop(who, None)
        self._resting.pop(who, None)

    def stranger(self) -> G | None:
        """The stranger that goes first, and is one no more."""
        return self._strangers.push_out()

    def longest(self, now: float) -> G | None:
        """Of all others the one that was idle longest, and is here no more.

        One that still reads its last answer is idle from now on, unless there are few but such.
        """
        first: G | None = None
        for _ in range(_TRIES):
            who = self._oldest()
            if who is None or who is first:
                break
            self.leaves(who)
            if not who.reads:
                return who
            first = first or who
            self.rests(who, now)
        if first is not None:
            self.leaves(first)
        return first

    def overdue(self, now: float) -> list[G]:
        """Those that had their time."""
        self._drop_busy()
        found = self._strangers.overdue(now)
        for waiting, seconds in ((self._telling, TELL_S), (self._resting, REST_S)):
            found += _before(waiting, now - seconds)
        return [who for who in found if who.owes or not who.is_busy]

    def _oldest(self) -> G | None:
        self._drop_busy()
        firsts = [next(iter(waiting.items()), None) for waiting in (self._telling, self._resting)]
        found = [first for first in firsts if first is not None]
        return min(found, key=lambda item: item[1])[0] if found else None

    def _drop_busy(self) -> None:
        """Who gets its answer already may take hours for the rest of its request."""
        while (who := next(iter(self._telling), None)) is not None and not who.owes:
            del self._telling[who]
        while (who := next(iter(self._resting), None)) is not None and who.is_busy:
            del self._resting[who]


def _before(waiting: dict[G, float], limit: float) -> Iterator[G]:
    for who, since in waiting.items():
        if since > limit:
            return
        yield who
