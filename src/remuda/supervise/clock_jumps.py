"""What becomes of the times that were noted when the clock is set, and of those that count on when nobody was there.

A clock that is set moves everything that was noted with it, here and in the database, so nothing becomes older or
younger by it. In a gap in the host's own turns (it was stopped, the machine slept, the disk stood still) nobody was
heard, so nobody was silent, and whoever was asked to end may not have been able to.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.base.clock import lived
from remuda.base.errors import Fenced, RemudaError
from remuda.policy.presence import Presence
from remuda.store.timeshift import move_times
from remuda.supervise.shifted import kept_waiting, shifted

if TYPE_CHECKING:
    from remuda.supervise.changes import Changes
    from remuda.supervise.failures.liveness import Hearing
    from remuda.supervise.state import State

_LOG = logging.getLogger("remuda.supervise")


class Timekeeper:
    """Looks at the clock once in each round, before anything else is looked at."""

    def __init__(self, state: State, hearing: Hearing) -> None:
        self._state = state
        self._hearing = hearing
        self.presence = self._presence(Presence())

    def look(self, changes: Changes) -> bool:
        """Take in what has happened to the time; whether the clock was set."""
        before, self.presence = self.presence, self._presence(self.presence)
        gap_s = self.presence.missed - before.missed
        if gap_s > 0:
            self._resume(gap_s, changes)
        by = self._state.clock.drift()
        return by != 0.0 and self._follow(by)

    def _presence(self, before: Presence) -> Presence:
        clock = self._state.clock
        now, missed = lived(clock), clock.missed()
        return Presence(now + missed, now, now if missed > before.missed else before.resumed, missed)

    def _resume(self, gap_s: float, changes: Changes) -> None:
        _LOG.warning("this host took no turn for %.0f s; nobody's silence in that time counts", gap_s)
        self._hearing.resume(self._state.clock.now())
        for task in list(self._state.every()):
            after = kept_waiting(task, gap_s)
            if after is not task:
                self._state.put(changes, task, after)

    def _follow(self, by: float) -> bool:
        """Move what was noted, in the database first: what cannot be written now is moved with a later round."""
        state = self._state
        try:
            move_times(state.journal.store, state.journal.fence, by, state.clock.now(), state.clock.offset + by)
        except Fenced:
            raise
        except RemudaError:
            _LOG.exception("the clock was set by %.0f s, and the state database cannot be written", by)
            return False
        state.clock.follow(by)
        for task in list(state.every()):
            state.all[task.key.workload][task.key] = shifted(task, by)
        for name, want in state.wants.items():
            if want.ends_at:
                state.wants[name] = replace(want, ends_at=want.ends_at + by)
        self._hearing.move(by)
        _LOG.warning("this machine's clock was set by %.0f s; all times that were noted are moved with it", by)
        return True
