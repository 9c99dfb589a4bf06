"""What the end of an allocation makes of its task: its goal, a new attempt, or given up. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuda.backends.base import CHILD_ENDED, Ending, Life, Observed
from remuda.base.units import show_duration
from remuda.plan.model import Role
from remuda.policy.backoff import backoff_s
from remuda.store.rows import Evidence
from remuda.supervise.failures.causes import Verdict, classify
from remuda.supervise.model import AVOIDS_ALL, AVOIDS_NOTHING, RUNNING, Allocation, Cause, Event, Phase, Task, move
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from remuda.plan.model import Group

_AGAINST_POOL = frozenset({Cause.NODE, Cause.SCHEDULER, Cause.UNKNOWN, Cause.PREEMPTION})
"""Ends that may lie in the pool; the program's own, a person's and the time limit's are the same everywhere."""

_NO_FAULT_OF_SERVER = frozenset({Cause.NODE, Cause.SCHEDULER, Cause.PREEMPTION})
"""Ends that say nothing against a server: another node may carry it, however often that is needed."""

_CLOCKS_DIFFER_S = 60.0
"""So far others' words of when something began and ended are believed beyond what this host saw itself."""

_TELLING = frozenset({Role.SCRIPT, Role.RANK})
"""Roles whose numbers say how far the work is. What others counted says nothing once they have ended."""

_OF_FIRST = frozenset({"no-gpu", "gpu-broken"})
_WORDS = re.compile(r"[^\w.-]+")


def after_end(task: Task, group: Group, seen: Observed, now: float) -> Task:
    """The allocation of `task` is no more."""
    ran_s = _ran_s(task, seen, now)
    verdict = _starved(judge(task, group, seen), task, group, seen, ran_s)
    exit_code = seen.exit_code if seen.exit_code is not None else task.exit_code
    numbers = (seen.metrics or task.metrics) if group.role in _TELLING else {}
    over: dict[str, Any] = {
        "ready_since": 0.0, "url": kept_url(task, group), "pid": 0, "http_status": 0, "restarts": 0,
        "not_before": task.not_before if task.ending is Cause.GROUP else 0.0, "limit_at": 0.0, "yields_at": 0.0,
        "never": "", "ending": Cause.NONE,
        "exit_code": exit_code, "cause": verdict.cause, "metrics": numbers, "ports": {},
    }  # fmt: skip
    if task.phase is Phase.STOPPING and task.ending is Cause.NONE:
        return move(task, Event.ENDED_OK, now, f"{task.reason}; ended" if task.reason else "ended", **over)
    known = replace(task, **over)
    has_goal = verdict.success and group.replace.policy != "always"
    if has_goal and (task.phase in RUNNING or task.phase in (Phase.PENDING, Phase.STOPPING)):
        event = Event.REACHED if task.phase is Phase.STOPPING else Event.ENDED_OK
        return replace(move(known, event, now, verdict.reason), failures=0, quick_failures=0)
    if verdict.final and task.phase is not Phase.SUBMITTING:
        return move(known, Event.CANCELLED, now, verdict.reason)
    if task.phase is Phase.STOPPING and task.ending is Cause.SCHEDULER:
        return after_never(move(known, Event.ENDED_AGAIN, now, verdict.reason), group, now)
    too_short = _too_short(task, group, verdict, seen)
    if too_short and task.phase is not Phase.STOPPING:
        return after_never(move(known, Event.ENDED_BAD, now, too_short), group, now)
    return _after_failure(known, group, verdict, now, ran_s, healthy_since=task.ready_since)


def kept_url(task: Task, group: Group) -> str:
    """Of an allocation that is no more: others were told where a service is, so it is to come back there."""
    return task.url if group.role.stays else ""


def _too_short(task: Task, group: Group, verdict: Verdict, seen: Observed) -> str:
    """Why no attempt there can do anything before it is told to end, in a sentence; empty where one can.

    It takes two in a row without progress: the limit of one may be somebody's change of that very job.
    """
    if not task.quick_failures:
        return ""
    before = group.watch.warn_before_s if group.watch is not None else 0.0
    limit = task.limit_at - (seen.started_at or task.started_at)
    if verdict.cause is not Cause.TIME_LIMIT or not task.limit_at or not 0 < limit <= before:
        return ""
    where = f" in {task.pool}" if task.pool else ""
    return (
        f"its time limit{where} is {show_duration(limit)}, and {show_duration(before)} before that it is told to end: "
        f"an attempt ends as soon as it begins"
    )


def _starved(verdict: Verdict, task: Task, group: Group, seen: Observed, ran_s: float) -> Verdict:
    """`verdict`, permanent where its memory killed it before any progress: the next attempt would end like it.

    Whoever tells of no progress and has no probe has made some when it ran longer than the longest wait.
    """
    if seen.ending is not Ending.OUT_OF_MEMORY or verdict.cause is not Cause.APPLICATION:
        return verdict
    has_run_long = group.probe is None and ran_s >= group.replace.backoff_max_s > 0
    if has_run_long or task.progress > 0 or seen.metrics.get("progress_step", 0.0) > 0:
        return verdict
    field = group.resources.mem_field
    what = f"`{field}`" if field else "the memory of its job"
    return replace(verdict, permanent=True, reason=f"{verdict.reason}; raise {what}")


def judge(task: Task, group: Group, seen: Observed) -> Verdict:
    """Why the allocation of `task` ended: as seen, or as the supervisor itself ended it."""
    if task.phase is not Phase.STOPPING or task.ending is Cause.NONE:
        return classify(seen, group)
    is_put_back = task.ending is Cause.GROUP and group.assemble_s > 0  # with 0, too: it was not whole
    if seen.life is Life.ENDED and seen.exit_code == 0 and seen.native_state == CHILD_ENDED and not is_put_back:
        return classify(seen, group)
    if task.ending in (Cause.NODE, Cause.UNKNOWN):
        watch = group.watch
        grace = watch.heartbeat_interval_s + watch.heartbeat_grace_s if watch else group.silence_s
        why = f"gave no sign of life for more than {show_duration(grace)}"
        if task.ending is Cause.UNKNOWN:
            return Verdict(Cause.UNKNOWN, f"{why}, while others on its node did")
        return Verdict(Cause.NODE, why, evidence=(Evidence("", 0.0, "silent", detail=why),))
    if task.ending is Cause.SCHEDULER:
        away = " away from the nodes that it avoids" if task.avoids else ""
        return Verdict(
            Cause.SCHEDULER, f"{task.pool or 'the scheduler'} will never start it{away}: {task.never}", counts=False
        )
    why = task.reason if task.ending is Cause.GROUP else "ended to be restarted"
    return Verdict(task.ending, why, counts=False)


def after_never(waiting: Task, group: Group, now: float) -> Task:
    """The next pool is asked. When all have said so, waiting for ever would help nobody.

    Of an attempt that was told to keep away from nodes it is not believed: those may be the only ones. It is asked for
    again with less to avoid, first without what the ledger concluded, then without a person's bans.
    """
    if waiting.avoids > AVOIDS_NOTHING:
        less = waiting.avoids - 1
        avoiding = "only nodes that a person banned" if less else "no node"
        again = f"{waiting.reason}; it avoids {avoiding} from now on"
        return replace(waiting, avoids=AVOIDS_NOTHING, may_avoid=less, not_before=now, reason=again)
    nevers = waiting.pool_nevers + 1
    if group.failover.hedge or nevers >= max(1, len(group.pools)):
        return move(replace(waiting, pool_nevers=nevers), Event.GIVE_UP, now, waiting.reason)
    failures = max(1, group.failover.retry_per_pool)
    return replace(waiting, pool_nevers=nevers, pool_failures=failures, not_before=now, may_avoid=AVOIDS_ALL)


def _ran_s(task: Task, seen: Observed, now: float) -> float:
    """How long it ran, as well as that is known. The clocks of others count only where ours says that they can."""
    if seen.ran_s > 0:
        return seen.ran_s
    began = task.started_at or task.submitted_at or now
    at_most = max(0.0, now - began)
    said = (seen.ended_at or now) - (seen.started_at or began)
    return said if 0 <= said <= at_most + _CLOCKS_DIFFER_S else at_most


def _after_failure(
    task: Task, group: Group, verdict: Verdict, now: float, ran_s: float, *, healthy_since: float
) -> Task:
    rule = group.replace
    has_run_long = ran_s >= rule.backoff_max_s > 0
    if healthy_since > 0 and now - healthy_since >= rule.heal_after_s:
        task = replace(task, failures=0, quick_failures=0, pool_failures=0)
    is_server = group.role.serves or group.role.routes or group.role.stays
    counts = verdict.counts and not (is_server and verdict.cause in _NO_FAULT_OF_SERVER)
    task = replace(
        task,
        failures=task.failures + counts,
        quick_failures=_quick_failures(task, group, verdict, ran_s),
        pool_failures=task.pool_failures + (verdict.cause in _AGAINST_POOL),
        pool_nevers=0,
    )
    event = Event.ENDED_AGAIN if task.phase is Phase.STOPPING else Event.ENDED_BAD
    waiting = move(task, event, now, verdict.reason)
    if verdict.permanent:
        return move(waiting, Event.GIVE_UP, now, verdict.reason)
    if verdict.cause in (Cause.USER, Cause.GROUP) and event is Event.ENDED_AGAIN:
        return replace(waiting, not_before=max(now, waiting.not_before))
    if rule.policy == "never":
        return move(waiting, Event.GIVE_UP, now, f"{verdict.reason}; it is not to be replaced")
    if verdict.counts and not counts:
        # One node after the other may be broken: it waits longer each time, and is never given up for that.
        wait = backoff_s(max(1, waiting.pool_failures), rule.backoff_initial_s, rule.backoff_max_s, key=str(task.key))
        return replace(waiting, not_before=now + wait)
    if not counts and not (verdict.cause is Cause.TIME_LIMIT and _is_braked(waiting, group)):
        return replace(waiting, not_before=now + short_wait_s(waiting, group))
    after = retry_or_give_up(waiting, group, now)
    if has_run_long and after.phase is Phase.WAITING:
        # Waiting longer and longer is for what fails at once; this ran longer than the longest wait.
        return replace(after, not_before=now + short_wait_s(after, group))
    return after


def _quick_failures(task: Task, group: Group, verdict: Verdict, ran_s: float) -> int:
    """Only the program's own failures count, and only one that ran longer breaks the row.

    So do attempts that were shorter than the warning before their time limit: nothing else would ever end them.
    """
    if group.replace.quick_s > 0 and ran_s < group.replace.quick_s:
        before = group.watch.warn_before_s if group.watch is not None else 0.0
        is_short = verdict.cause is Cause.TIME_LIMIT and ran_s < before
        return task.quick_failures + (verdict.cause is Cause.APPLICATION or is_short)
    return 0


def _is_braked(task: Task, group: Group) -> bool:
    return 0 < group.replace.quick_limit <= task.quick_failures


def retry_or_give_up(task: Task, group: Group, now: float) -> Task:
    """A WAITING task after one more failure: it waits for its next attempt, or is FAILED."""
    rule = group.replace
    if _is_braked(task, group):
        within = show_duration(rule.quick_s)
        what = "its time limit ended it" if task.cause is Cause.TIME_LIMIT else "it failed"
        why = f"given up: {what} {task.quick_failures} times within {within} of its start; {task.reason}"
        return move(task, Event.GIVE_UP, now, why)
    if task.failures >= rule.max_failures:
        times = "1 failure" if task.failures == 1 else f"{task.failures} failures, the last"
        return move(task, Event.GIVE_UP, now, f"given up after {times}: {task.reason}")
    wait = backoff_s(max(1, task.failures), rule.backoff_initial_s, rule.backoff_max_s, key=str(task.key))
    return replace(task, not_before=now + wait)


def short_wait_s(task: Task, group: Group) -> float:
    """Seconds before what was nobody's failure is tried again: the first step of the backoff, however often."""
    return backoff_s(1, group.replace.backoff_initial_s, group.replace.backoff_max_s, key=f"{task.key}:{task.attempt}")


def end_of(task: Task, after: Task, seen: Observed, now: float) -> Allocation:
    """What is kept of an allocation that ended: `task` before, `after` it was taken in."""
    return replace(
        Allocation(**alike(Allocation, task)),
        node=seen.node or task.node,
        ended_at=seen.ended_at or now,
        exit_code=seen.exit_code,
        signal=seen.signal,
        cause=after.cause,
        reason=seen.reason or after.reason,
        evidence=seen.evidence,
        started_at=seen.started_at or task.started_at,
    )


def evidence_of(task: Task, group: Group, seen: Observed, now: float) -> list[Evidence]:
    """What the end of the allocation says against a node: where it ran on several, against the one that is named."""
    if task.phase is Phase.STOPPING and task.ending is Cause.NONE:
        return []
    return [
        replace(
            item,
            node=node,
            at=now,
            cluster=task.backend,
            workload=task.key.workload,
            token=task.token,
            expires_at=now + group.nodes.ttl_s,
        )
        for item in judge(task, group, seen).evidence
        if (node := _culprit(item, seen) if seen.nodes else seen.node or task.node)
    ]


def _culprit(item: Evidence, seen: Observed) -> str:
    """Which of several nodes one piece of evidence speaks against: the only one that it names, else nobody.

    The node program, which tests GPUs, runs on the first one.
    """
    if item.kind in _OF_FIRST:
        return seen.node
    words = {word for full in _WORDS.split(item.detail) for word in (full.rstrip("."), full.partition(".")[0])}
    found = [name for name in seen.nodes if name in words]
    return found[0] if len(found) == 1 else ""
