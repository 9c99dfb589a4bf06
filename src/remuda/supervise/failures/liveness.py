"""Who of a cluster's tasks is not heard any more while others are: kept beside the loop, which tells it what came in.

Reports come over a line from the node or, where that is closed, by files that are read with each look at the backend.
So a task's usual pause is that of the way on which it was heard last. No clock, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from remuda.policy import presence
from remuda.policy.silence import Ear, hear, is_lost, is_missed, patience_s, silence_s
from remuda.supervise.model import RUNNING
from remuda.wire.child import BEAT_S, REPORT_EVERY_S

if TYPE_CHECKING:
    from collections.abc import Iterable

    from remuda.plan.model import Group
    from remuda.policy.presence import Presence
    from remuda.supervise.model import Task


@dataclass(frozen=True, slots=True)
class Missed:
    """One task that should have been heard."""

    task: Task
    silent_s: float
    is_sure: bool
    """Its files were read since, too."""


@dataclass(frozen=True, slots=True)
class Silent:
    """A silence for which an allocation is to be replaced."""

    for_s: float
    node_is_heard: bool
    """Others on its node are heard, so the node is not to blame."""


class Hearing:
    """One ear for each backend."""

    def __init__(self) -> None:
        self._ears: dict[str, Ear] = {}
        self._by_line: set[str] = set()
        self._lost: dict[str, Silent] = {}
        self._signs: dict[str, tuple[tuple[int, int], float]] = {}
        """By allocation: the newest sign of life, and what this host had lived when it was first seen."""

    def by_line(self, token: str) -> None:
        """A report of this allocation came over the line."""
        self._by_line.add(token)

    def by_file(self, token: str) -> None:
        """A report came by file that had not come over the line."""
        self._by_line.discard(token)

    def silence_s(self, task: Task, requeues: int, now: Presence) -> float:
        """How long a task that runs gave no new sign of life, as long as this host was there to see one.

        Nobody's clock is compared with another one, and no host answers for the time before its own.
        """
        if task.phase not in RUNNING:
            self._signs.pop(task.token, None)
            return 0.0
        sign = (task.seq, max(task.requeues, requeues))
        known = self._signs.get(task.token)
        if known is None or known[0] != sign:
            known = self._signs[task.token] = (sign, now.lived)
        return presence.silence_s(now, known[1])

    def resume(self, now: float) -> None:
        """The host took no turn for a while, and does again: what was not heard in that time is nobody's silence."""
        for backend, ear in self._ears.items():
            self._ears[backend] = replace(ear, deaf_until=max(ear.deaf_until, now))

    def move(self, by: float) -> None:
        """The clock that tasks are noted with was set."""
        for backend, ear in self._ears.items():
            self._ears[backend] = Ear(ear.newest + by, ear.deaf_until + by)

    def lost(self, token: str) -> Silent | None:
        """The silence of an allocation that is to be replaced for it; None for others."""
        return self._lost.get(token)

    def forget(self, token: str) -> None:
        """This allocation has ended."""
        self._by_line.discard(token)
        self._lost.pop(token, None)
        self._signs.pop(token, None)

    def listen(
        self, backend: str, tasks: Iterable[tuple[Task, Group]], *, poll_s: float, looked_at: float
    ) -> list[Missed]:
        """Those that are missed now.

        Args:
            backend: name of the backend.
            tasks: all of its tasks, each with its group.
            poll_s: longest time between two looks at it.
            looked_at: when its files were last read.
        """
        # One that was never heard is another matter: its program may still be on its way to the node.
        running = [(task, group) for task, group in tasks if task.phase in RUNNING and task.last_seen > 0]
        speaking = [(task, group) for task, group in running if group.silence_s > 0]
        paces = {task.token: self._pace_s(task, poll_s) for task, _ in speaking}
        ear = hear(self._ears.get(backend, Ear()), [(heard_at(task), paces[task.token]) for task, _ in speaking])
        self._ears[backend] = ear
        silences = {task.token: silence_s(ear, heard_at(task)) for task, _ in speaking}
        heard = {task.node for task, _ in speaking if not is_missed(silences[task.token], paces[task.token])}
        missed = []
        for task, group in speaking:
            at, pace, silent = heard_at(task), paces[task.token], silences[task.token]
            self._lost.pop(task.token, None)
            if is_missed(silent, pace):
                missed.append(Missed(task, silent, looked_at > at + patience_s(pace)))
            if is_lost(silent, pace, group.silence_s):
                self._lost[task.token] = Silent(silent, task.node in heard)
        return missed

    def _pace_s(self, task: Task, poll_s: float) -> float:
        return BEAT_S if task.token in self._by_line else REPORT_EVERY_S + poll_s


def heard_at(task: Task) -> float:
    """When this allocation was heard last, or began."""
    return max(task.last_seen, task.started_at)
