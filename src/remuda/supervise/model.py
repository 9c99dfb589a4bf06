"""The supervisor's nouns: tasks, phases, and the table of moves between them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.backends.base import TaskKey
    from remuda.plan.model import Workload


class Phase(StrEnum):
    """Where a task is on its way."""

    WAITING = "waiting"
    """No allocation; one is due when the backoff is over."""
    SUBMITTING = "submitting"
    """Intent recorded; the backend may or may not have heard of it."""
    PENDING = "pending"
    """The scheduler has it and has not started it."""
    STARTING = "starting"
    """It runs and is not ready yet."""
    READY = "ready"
    """It runs and answers its probe (or has none)."""
    UNHEALTHY = "unhealthy"
    """It runs, was ready, and does not answer now."""
    STOPPING = "stopping"
    """Asked to end; waiting for the backend to say so."""
    FAILED = "failed"
    """Given up after too many failures; the user decides."""
    DONE = "done"
    """Reached its goal."""
    STOPPED = "stopped"
    """Ended because it is not wanted any more, or because a person ended it with the scheduler's own tools."""


class Event(StrEnum):
    """What can happen to a task."""

    SUBMIT = "submit"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    SEEN_PENDING = "seen-pending"
    SEEN_RUNNING = "seen-running"
    PROBE_OK = "probe-ok"
    PROBE_LATE = "probe-late"
    RESTARTING = "restarting"
    """The node program starts its child again in place."""
    ENDED_OK = "ended-ok"
    ENDED_BAD = "ended-bad"
    ENDED_AGAIN = "ended-again"
    """What the supervisor ended although the task is wanted (hung, restarted by the user, never to start) has ended."""
    REACHED = "reached"
    """It reached its goal before it could be ended."""
    CANCELLED = "cancelled"
    """A person ended it with the scheduler's own tools, and that is to be its end."""
    REQUEUED = "requeued"
    """The scheduler put the same allocation back into its queue."""
    STOP = "stop"
    GIVE_UP = "give-up"
    REVIVE = "revive"
    """The user, or a new intent, wants a finished task again."""


LIVE: Final = frozenset({Phase.SUBMITTING, Phase.PENDING, Phase.STARTING, Phase.READY, Phase.UNHEALTHY, Phase.STOPPING})
"""Phases in which an allocation may exist."""
RUNNING: Final = frozenset({Phase.STARTING, Phase.READY, Phase.UNHEALTHY})
FINAL: Final = frozenset({Phase.FAILED, Phase.DONE, Phase.STOPPED})


TAKEN_DOWN: Final = "taken down"
"""Note of an intent that a person ended; nothing more is told of it."""
GIVEN_UP: Final = "it failed: "
"""Begin of the note of an intent that the host ended because nothing more could come of the workload: see
`Want.has_failed`."""
PAUSED: Final = "paused; "
"""Begin of the reason of a task that waits because its workload is paused."""
TIME_OVER: Final = "its time is over"
"""Begin of the reason of a task that ended because `Replace.until` has come."""

AVOIDS_NOTHING: Final = 0
AVOIDS_BANS: Final = 1
"""Nodes that a person banned."""
AVOIDS_ALL: Final = 2
"""Nodes that the ledger speaks against, too."""


def _moves() -> Mapping[tuple[Phase, Event], Phase]:
    moves = {
        (Phase.WAITING, Event.SUBMIT): Phase.SUBMITTING,
        (Phase.WAITING, Event.STOP): Phase.STOPPED,
        (Phase.WAITING, Event.GIVE_UP): Phase.FAILED,
        (Phase.SUBMITTING, Event.ACCEPTED): Phase.PENDING,
        (Phase.SUBMITTING, Event.REFUSED): Phase.WAITING,
        (Phase.SUBMITTING, Event.STOP): Phase.STOPPING,
        (Phase.SUBMITTING, Event.ENDED_BAD): Phase.WAITING,
        (Phase.PENDING, Event.SEEN_PENDING): Phase.PENDING,
        (Phase.PENDING, Event.SEEN_RUNNING): Phase.STARTING,
        (Phase.PENDING, Event.PROBE_OK): Phase.READY,
        (Phase.STARTING, Event.PROBE_OK): Phase.READY,
        (Phase.READY, Event.PROBE_LATE): Phase.UNHEALTHY,
        (Phase.UNHEALTHY, Event.PROBE_OK): Phase.READY,
        (Phase.READY, Event.RESTARTING): Phase.STARTING,
        (Phase.UNHEALTHY, Event.RESTARTING): Phase.STARTING,
        (Phase.STOPPING, Event.ENDED_OK): Phase.STOPPED,
        (Phase.STOPPING, Event.ENDED_BAD): Phase.STOPPED,
        (Phase.STOPPING, Event.ENDED_AGAIN): Phase.WAITING,
        (Phase.STOPPING, Event.REACHED): Phase.DONE,
        (Phase.FAILED, Event.REVIVE): Phase.WAITING,
        (Phase.DONE, Event.REVIVE): Phase.WAITING,
        (Phase.STOPPED, Event.REVIVE): Phase.WAITING,
    }
    for phase in (Phase.PENDING, Phase.STARTING, Phase.READY, Phase.UNHEALTHY):
        moves[phase, Event.STOP] = Phase.STOPPING
        moves[phase, Event.ENDED_OK] = Phase.DONE
        moves[phase, Event.ENDED_BAD] = Phase.WAITING
        moves[phase, Event.CANCELLED] = Phase.STOPPED
    for phase in (Phase.STARTING, Phase.READY, Phase.UNHEALTHY):
        moves[phase, Event.REQUEUED] = Phase.PENDING
    return moves


MOVES: Final = _moves()
"""Every allowed move. `docs/states.md` is drawn from it."""


class Cause(StrEnum):
    """Why an allocation ended, classified once, with evidence."""

    NONE = ""
    USER = "user"
    APPLICATION = "application"
    NODE = "node"
    SCHEDULER = "scheduler"
    PREEMPTION = "preemption"
    TIME_LIMIT = "time-limit"
    GROUP = "group"
    """Another task of those that share its fate has ended, or all were put back because too few of them ran."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Task:
    """One task as last known. `attempt` numbers its allocations: the fencing number."""

    key: TaskKey
    backend: str
    phase: Phase = Phase.WAITING
    attempt: int = 0
    generation: int = 0
    """Of the intent that last set it going; a newer one revives a finished task."""
    since: float = 0.0
    """When this phase began, seconds since the epoch."""
    token: str = ""
    submitted_at: float = 0.0
    """When the intent of this attempt was recorded."""
    native: str = ""
    failures: int = 0
    """Consecutive failed allocations."""
    not_before: float = 0.0
    """No new allocation before this time."""
    ready_since: float = 0.0
    """Begin of the current healthy stretch, 0 when it is not ready."""
    kill_at: float = 0.0
    """While stopping: when asking turns into killing."""
    cause: Cause = Cause.NONE
    """Of the last allocation's end."""
    reason: str = ""
    """One sentence: why it is in this phase."""
    node: str = ""
    url: str = ""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Its further ports by name."""
    http_status: int = 0
    pid: int = 0
    restarts: int = 0
    """In place, within this allocation."""
    exit_code: int | None = None
    seq: int = -1
    """Of the newest report taken in."""
    last_seen: float = 0.0
    started_at: float = 0.0
    """When this attempt was first seen running, 0 before: grace periods begin here."""
    released: bool = False
    """The backend was told that this attempt may start."""
    never: str = ""
    """Why the scheduler will never start it as it is, empty otherwise."""
    limit_at: float = 0.0
    """When this attempt's time limit ends it, 0 if unknown."""
    requeues: int = 0
    """How often the scheduler itself put this attempt back into its queue."""
    ending: Cause = Cause.NONE
    """Why the supervisor ends this attempt although the task is still wanted. It gets a new one. Set by a fact while
    it runs (no sign of life), and kept while it is stopping."""
    pool: str = ""
    """Name of the pool that this attempt was asked of, or runs in; empty where the group has none."""
    pool_refusals: int = 0
    """Refused submissions, one after the other, through all pools: so it is known when every pool was asked."""
    pool_failures: int = 0
    """Failed allocations in that pool, one after the other, that speak against it."""
    pool_nevers: int = 0
    """Pools, one after the other, whose scheduler said that it will never start the task."""
    pool_left_at: float = 0.0
    """When the preferred pool was left, 0 while it is the one."""
    quick_failures: int = 0
    """Failures soon after the start, one after the other: the crash-loop brake counts them."""
    restart_mark: int = 0
    """Of `Want.mark` when this attempt was begun."""
    yields_at: float = 0.0
    """Since when it is sent nothing new because its successor serves, 0 if it does not yield."""
    avoids: int = 0
    """What this attempt was told to keep away from: `AVOIDS_NOTHING`, `AVOIDS_BANS` or `AVOIDS_ALL`."""
    may_avoid: int = 2
    """The most that the next attempt may be told to: less once the scheduler said that it will never start it so."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    loaded_at: float = 0.0
    """When `metrics` were taken, as far as this host knows."""
    progress: float = 0.0
    """The farthest step that any attempt has told of, since the user last asked for it; of a server at least 1 once it
    was ready."""


class IllegalMove(AssertionError):
    """A move that the table does not know: a bug in the supervisor, told with its story."""


def move(task: Task, event: Event, now: float, reason: str = "", **changes: Any) -> Task:
    """`task` after `event`, with other `changes`; `since` changes only with the phase.

    Raises:
        IllegalMove: the table has no such move.
    """
    phase = MOVES.get((task.phase, event))
    if phase is None:
        raise IllegalMove(f"{task.key}: {event} in phase {task.phase} (attempt {task.attempt}, reason {task.reason!r})")
    if phase is task.phase:
        return replace(task, reason=reason or task.reason, **changes)
    return replace(task, phase=phase, since=now, reason=reason, **changes)


@dataclass(frozen=True, slots=True)
class Want:
    """What a user wants of a workload, as last recorded."""

    workload: Workload
    running: bool
    """False: take it down."""
    generation: int = 0
    """Rises with every change of intent."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Count by group, where it differs from the workload's own."""
    paused: bool = False
    """Leave alone what runs, begin nothing new."""
    restart_mark: int = 0
    """Rises when the user wants what runs now to be begun again, too."""
    ends_at: float = 0.0
    """When its lifetime is over, seconds since the epoch; 0: never."""
    note: str = ""
    """Why the intent is as it is, for people."""
    announced: bool = False
    """Its endpoint was up since it was brought up: what it loses now makes it degraded, not starting."""
    group_marks: Mapping[str, int] = field(default_factory=dict)
    """As `restart_mark`, by group or task (`group/index`) that the user asked for alone."""

    @property
    def has_failed(self) -> bool:
        """The host has ended it because it failed, and nobody has said yet what is to become of it."""
        return not self.running and self.note.startswith(GIVEN_UP)

    def count(self, group: str) -> int:
        """How many tasks of `group` shall run."""
        return self.planned(group) if self.running else 0

    def mark(self, key: TaskKey) -> int:
        """A task with a lower `Task.restart_mark` is begun again, whether it runs or has ended."""
        marks = self.group_marks
        if not marks:
            return self.restart_mark
        return self.restart_mark + marks.get(key.group, 0) + marks.get(f"{key.group}/{key.index}", 0)

    def slots(self, group: str) -> Sequence[int]:
        """Indices of the members of `group` while the workload is wanted."""
        return self.workload.group(group).slots(self.planned(group))

    def planned(self, group: str) -> int:
        """How many tasks of `group` there are while the workload is wanted."""
        return self.counts.get(group, self.workload.group(group).count)


@dataclass(frozen=True, slots=True)
class Allocation:
    """What is kept of one allocation, for `explain`."""

    token: str
    key: TaskKey
    attempt: int
    backend: str
    submitted_at: float
    native: str = ""
    node: str = ""
    ended_at: float = 0.0
    exit_code: int | None = None
    signal: int = 0
    cause: Cause = Cause.NONE
    reason: str = ""
    evidence: str = ""
    started_at: float = 0.0
    """When it was first seen running, 0 if never."""
    pool: str = ""
