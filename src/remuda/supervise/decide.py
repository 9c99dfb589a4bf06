"""What to do next: a function of what is wanted, what is known, and the time. Pure.

No clock, no I/O, no randomness; the reason is in the action.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from remuda.backends.base import TaskKey, make_token
from remuda.policy.failover import Standing, next_pool
from remuda.supervise.groups import assemble, handover, rules, together
from remuda.supervise.groups.handover import Part
from remuda.supervise.model import (
    AVOIDS_ALL,
    AVOIDS_NOTHING,
    FINAL,
    LIVE,
    PAUSED,
    RUNNING,
    TAKEN_DOWN,
    TIME_OVER,
    Cause,
    Event,
    Phase,
    Task,
    Want,
    move,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.model import Group
    from remuda.supervise.groups.handover import Cast

KILL_AGAIN_S = 5.0
"""Between two attempts to kill what does not end."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Make the allocation of `task`, which carries its new attempt and token."""

    task: Task
    again: bool = False
    """The intent was recorded before; find it first, the backend may have it."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask the allocation of `task` to end."""

    task: Task
    force: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Only the task changes; nothing is to be done outside."""

    task: Task


Action = Submit | Cancel | Note


def decide(want: Want, tasks: Mapping[TaskKey, Task], now: float) -> tuple[Action, ...]:
    """Say which steps move `tasks` towards `want`.

    Args:
        want: the recorded intent of one workload.
        tasks: all known tasks of that workload.
        now: seconds, on the clock of `Task.since`.

    Returns:
        At most one action for a task, surplus ones first. Empty when nothing is due.
    """
    tasks = together.levelled(want, tasks)
    casts, over, outlasting = rules.parts(want, tasks, now), rules.over(want, tasks), rules.outlasting(want, tasks)
    surplus = [
        action
        for key in sorted(tasks)
        if key.index not in casts.get(key.group, ())
        if key.group not in outlasting or tasks[key].phase not in RUNNING
        for action in _remove(want, tasks[key], now, over)
    ]
    due = [
        action
        for group in want.workload.groups
        for index, cast in casts.get(group.name, {}).items()
        for action in _play(want, group, index, tasks, cast, now)
    ]
    return (*surplus, *due)


def _play(
    want: Want, group: Group, index: int, tasks: Mapping[TaskKey, Task], cast: Cast, now: float
) -> Sequence[Action]:
    """What follows from a task's part; `cast.why` becomes its reason."""
    key = TaskKey(want.workload.name, group.name, index)
    task = tasks.get(key)
    if cast.part is Part.KEEP or (task is None and cast.part is not Part.HOLD):
        return _keep(want, group, key, task, now, cast.why)
    if task is None or cast.part is Part.HOLD:
        return _hold(want, group, key, task, now, cast.why)
    match cast.part:
        case Part.BEGIN:
            return (Note(_revive(want, group, task, now, cast.why)),)
        case Part.YIELD:
            return (Note(replace(task, yields_at=now, reason=cast.why)),)
        case Part.RETURN:
            return (Note(replace(task, yields_at=0.0, reason=cast.why)),)
        case Part.DRAIN:
            return (_end(task, group, now, task.reason),) if task.ending is not Cause.NONE else ()
        case Part.AGAIN if task.phase is Phase.WAITING:
            return (Note(replace(task, not_before=max(cast.until, task.not_before), reason=cast.why)),)
        case Part.AGAIN:
            task = replace(task, not_before=cast.until)
            return (_end(task, group, now, cast.why, Cause.GROUP),)
        case Part.END:
            return _remove(want, task, now, cast.why)
        case _:
            assert_never(cast.part)


def _keep(want: Want, group: Group, key: TaskKey, task: Task | None, now: float, why: str = "") -> Sequence[Action]:
    if 0 < group.replace.until <= now:
        never = task or replace(_fresh(want, group, key, now), reason="it was never started")
        return _after_until(group, never, now)
    if task is None:
        if want.paused:
            return ()
        fresh = _fresh(want, group, key, now)
        return (_submit(want, group, fresh, now, f"first attempt: {why}" if why else "first attempt"),)
    if task.phase in RUNNING or task.phase is Phase.PENDING:
        return _keep_live(want, group, task, now)
    return _keep_idle(want, group, task, now)


def _hold(want: Want, group: Group, key: TaskKey, task: Task | None, now: float, why: str) -> Sequence[Action]:
    """It must not begin yet, and says why; all else goes on."""
    if 0 < group.replace.until <= now:
        return _keep(want, group, key, task, now)
    if task is not None and task.phase is Phase.STOPPED:
        return (Note(_revive(want, group, task, now, why)),)
    task, said = task or _fresh(want, group, key, now), f"{PAUSED}{why}" if want.paused else why
    return () if task.reason == said else (Note(replace(task, reason=said)),)


def _fresh(want: Want, group: Group, key: TaskKey, now: float) -> Task:
    return Task(key, group.backend or want.workload.backend, generation=want.generation, since=now)


def _after_until(group: Group, task: Task, now: float) -> Sequence[Action]:
    """Its time is over: what runs is asked to end, and nothing is begun again."""
    if task.phase in FINAL:
        return ()
    if task.phase is Phase.WAITING:
        return (Note(move(task, Event.STOP, now, f"{TIME_OVER}; {task.reason}" if task.reason else TIME_OVER)),)
    if task.phase is Phase.STOPPING:
        if task.ending is not Cause.NONE:
            return (Note(replace(task, ending=Cause.NONE)),)
        return _insist(task, now)
    return (_end(task, group, now, TIME_OVER),)


def _keep_live(want: Want, group: Group, task: Task, now: float) -> Sequence[Action]:
    if not want.paused:
        if task.ending is not Cause.NONE:
            return (_end(task, group, now, task.reason, task.ending),)
        if task.restart_mark < want.mark(task.key):
            return (_end(task, group, now, "the user wants it restarted", Cause.USER),)
        if task.never and task.phase is Phase.PENDING:
            return (_end(task, group, now, f"never: {task.never}", Cause.SCHEDULER),)
    return (Note(replace(task, generation=want.generation)),) if task.generation < want.generation else ()


def _keep_idle(want: Want, group: Group, task: Task, now: float) -> Sequence[Action]:
    match task.phase:
        case Phase.WAITING:
            return _keep_waiting(want, group, task, now)
        case Phase.SUBMITTING:
            return (Submit(task, again=True),) if now >= task.not_before else ()
        case Phase.STOPPING:
            return _insist(task, now)
        case Phase.STOPPED | Phase.FAILED | Phase.DONE:
            why = "wanted again" if task.phase is Phase.STOPPED else "restarted on request"
            is_asked = task.generation < want.generation or task.restart_mark < want.mark(task.key)
            return (Note(_revive(want, group, task, now, why)),) if is_asked else ()
        case Phase.PENDING | Phase.STARTING | Phase.READY | Phase.UNHEALTHY:
            return ()
        case _:
            assert_never(task.phase)


def _keep_waiting(want: Want, group: Group, task: Task, now: float) -> Sequence[Action]:
    if want.paused:
        is_told = task.reason.startswith(PAUSED)
        return () if is_told else (Note(replace(task, reason=f"{PAUSED}{task.reason}")),)
    if now < task.not_before and task.restart_mark >= want.mark(task.key):
        return ()
    return (_submit(want, group, task, now, f"attempt {task.attempt + 1}: {task.reason.removeprefix(PAUSED)}"),)


def _submit(want: Want, group: Group, task: Task, now: float, reason: str) -> Submit:
    attempt = task.attempt + 1
    standing, why = _choose_pool(group, task, now)
    intended = move(
        task,
        Event.SUBMIT,
        now,
        f"{reason} ({why})" if why else reason,
        attempt=attempt,
        token=make_token(task.key, attempt, want.workload.uid),
        submitted_at=now,
        native="",
        seq=-1,
        not_before=now,
        node="",
        exit_code=None,
        generation=want.generation,
        started_at=0.0,
        last_seen=0.0,
        released=False,
        never="",
        limit_at=0.0,
        requeues=0,
        ending=Cause.NONE,
        pool=standing.pool,
        pool_refusals=standing.refusals,
        pool_failures=standing.failures,
        pool_left_at=standing.left_at,
        restart_mark=want.mark(task.key),
        yields_at=0.0,
        # Begun again by the user: it may be meant to start from nothing.
        progress=task.progress if task.restart_mark >= want.mark(task.key) else 0.0,
        metrics=task.metrics if task.restart_mark >= want.mark(task.key) else {},
        avoids=AVOIDS_NOTHING,
    )
    return Submit(intended)


def _choose_pool(group: Group, task: Task, now: float) -> tuple[Standing, str]:
    standing = Standing(task.pool, task.pool_refusals, task.pool_failures, task.pool_left_at)
    names = [pool.name for pool in group.pools]
    if group.failover.hedge and len(names) > 1:
        return replace(standing, pool="", left_at=0.0), f"all of {', '.join(names)} are asked at once"
    if len(names) <= 1:  # nothing to choose, nothing to tell
        return replace(standing, pool=names[0] if names else "", left_at=0.0), ""
    rule = group.failover
    return next_pool(
        names, standing, now, retry_per_pool=rule.retry_per_pool, reset_to_preferred_s=rule.reset_to_preferred_s
    )


def _revive(want: Want, group: Group, task: Task, now: float, reason: str) -> Task:
    return move(
        task, Event.REVIVE, now, reason, failures=0, not_before=rules.revived_at(group, task, now),
        generation=want.generation, ready_since=0.0, quick_failures=0, pool_refusals=0, pool_failures=0, pool_nevers=0,
        progress=0.0, metrics={}, may_avoid=AVOIDS_ALL, restart_mark=want.mark(task.key),
    )  # fmt: skip


def _remove(want: Want, task: Task, now: float, why: str = "") -> Sequence[Action]:
    reason = why or ("scaled down" if want.running else want.note or TAKEN_DOWN)
    if task.phase is Phase.STOPPING:
        if task.ending is not Cause.NONE:
            # It was to be begun again; now it is not wanted any more.
            return (Note(replace(task, ending=Cause.NONE, reason=reason)),)
        return _insist(task, now)
    if task.phase in LIVE:
        return (_end(task, want.workload.group(task.key.group), now, reason),)
    # A task that has ended is kept although it is surplus: its attempts go on counting when it is wanted again.
    if task.phase is Phase.WAITING:
        return (Note(move(task, Event.STOP, now, reason)),)
    return ()


def _end(task: Task, group: Group, now: float, reason: str, ending: Cause = Cause.NONE) -> Cancel:
    """Ask the allocation to end; with `ending` it is begun again."""
    kill_at = now + group.kill_grace_s + KILL_AGAIN_S
    ready_since = task.ready_since if ending is not Cause.NONE else 0.0
    return Cancel(move(task, Event.STOP, now, reason, kill_at=kill_at, ready_since=ready_since, ending=ending))


def _insist(task: Task, now: float) -> Sequence[Action]:
    if now < task.kill_at:
        return ()
    return (Cancel(replace(task, kill_at=now + KILL_AGAIN_S), force=True),)


def next_due(tasks: Mapping[TaskKey, Task], now: float, want: Want | None = None) -> float | None:
    """Seconds until the clock alone can make `decide` say something new; None: only a fact can.

    That a task was silent for too long is such a fact: only a look at the backend can tell, and the loop looks in time.
    """
    is_paused = want is not None and want.paused and want.running
    phases = (Phase.STOPPING, Phase.SUBMITTING) if is_paused else (Phase.STOPPING, Phase.SUBMITTING, Phase.WAITING)
    tasks = together.levelled(want, tasks) if want is not None else tasks
    moving = [task for task in tasks.values() if task.phase in phases]
    if want is not None and (gates := rules.held(want, tasks) | together.held(want, tasks)):
        moving = [task for task in moving if task.key not in gates]
    times = [task.kill_at if task.phase is Phase.STOPPING else task.not_before for task in moving]
    if want is not None and want.running:
        times += _ends_of_time(want, tasks)
        changes = (handover.next_change(want, tasks, now), assemble.next_change(want, tasks, now))
        times += [change for change in changes if change is not None]
    return max(0.0, min(times) - now) if times else None


def _ends_of_time(want: Want, tasks: Mapping[TaskKey, Task]) -> list[float]:
    """When `until` of a group comes that has something to end."""
    untils = {group.name: group.replace.until for group in want.workload.groups if group.replace.until > 0}
    if not untils:
        return []
    going = {key.group for key, task in tasks.items() if task.phase not in FINAL and task.phase is not Phase.STOPPING}
    return [until for name, until in untils.items() if name in going]
