"""What a fact makes of a task: observations, reports and answers come in, the changed task goes out. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import Life, Observed
from remuda.policy.backoff import backoff_s
from remuda.supervise.causes import Verdict, classify
from remuda.supervise.model import LIVE, RUNNING, Event, Phase, Task, move

if TYPE_CHECKING:
    from remuda.plan.model import Group
    from remuda.wire.report import Report

_AGAIN_S = 5.0
"""Before a backend that did not answer is asked for the same submission again."""


def accepted(task: Task, native: str, now: float) -> Task:
    """The backend has the allocation, under the name `native`."""
    if task.phase is not Phase.SUBMITTING:
        return replace(task, native=native or task.native)
    return replace(move(task, Event.ACCEPTED, now, "handed to the backend"), native=native)


def refused(task: Task, group: Group, reason: str, now: float) -> Task:
    """The backend refused the submission for good; it counts as a failure."""
    if task.phase is not Phase.SUBMITTING:
        return task
    failures = task.failures + 1
    waiting = move(replace(task, failures=failures, token="", native=""), Event.REFUSED, now, f"refused: {reason}")
    return _retry_or_give_up(waiting, group, now)


def unanswered(task: Task, reason: str, now: float) -> Task:
    """Nobody knows whether the backend took the submission: stay, and ask again under the same token."""
    return replace(task, not_before=now + _AGAIN_S, reason=f"no answer from the backend, asking again: {reason}")


def observed(task: Task, group: Group, seen: Observed, now: float) -> Task:
    """Take in one answer of the backend."""
    if task.phase not in LIVE:
        return task
    if seen.life in (Life.ENDED, Life.GONE):
        return ended(task, group, seen, now)
    if task.phase is Phase.SUBMITTING:
        task = accepted(task, seen.native, now)
    if seen.node and seen.node != task.node:
        task = replace(task, node=seen.node)
    if seen.life is Life.PENDING and task.phase is Phase.PENDING:
        return move(task, Event.SEEN_PENDING, now, seen.reason)
    if seen.life is Life.RUNNING and task.phase is Phase.PENDING:
        return move(task, Event.SEEN_RUNNING, now, "running, not ready yet")
    return task


def reported(task: Task, report: Report, now: float) -> Task:
    """Take in one report of the node program; a stale one or one of another allocation changes nothing."""
    if report.token != task.token or report.seq <= task.seq or task.phase not in LIVE:
        return task
    task = replace(
        task,
        seq=report.seq,
        last_seen=max(task.last_seen, min(report.at, now)),
        node=report.node or task.node,
        url=report.url,
        pid=report.pid,
        http_status=report.http_status,
        restarts=report.restarts,
        exit_code=report.exit_code,
        metrics=report.metrics or task.metrics,
    )
    if task.phase is Phase.SUBMITTING:
        task = accepted(task, task.native, now)
    return _by_state(task, report, now)


def _by_state(task: Task, report: Report, now: float) -> Task:
    if task.phase is Phase.STOPPING or report.state in ("stopping", "exited"):
        return task
    if report.state == "ready":
        if task.phase is Phase.READY:
            return task
        why = report.reason or "answers its health probe"
        return replace(move(task, Event.PROBE_OK, now, why), ready_since=task.ready_since or now)
    if report.state == "unhealthy":
        if task.phase in (Phase.PENDING, Phase.STARTING):
            task = move(task, Event.PROBE_OK, now, report.reason)
        if task.phase is Phase.READY:
            task = replace(move(task, Event.PROBE_LATE, now, report.reason), ready_since=0.0)
        return replace(task, reason=report.reason or task.reason)
    if task.phase is Phase.PENDING:
        return move(task, Event.SEEN_RUNNING, now, report.reason or "running, not ready yet")
    if task.phase in (Phase.READY, Phase.UNHEALTHY):
        return replace(move(task, Event.RESTARTING, now, report.reason), ready_since=0.0)
    return replace(task, reason=report.reason or task.reason)


def ended(task: Task, group: Group, seen: Observed, now: float) -> Task:
    """The allocation is no more: to its goal, to a new attempt, or given up."""
    verdict = classify(seen)
    known = replace(
        task,
        ready_since=0.0,
        url="",
        pid=0,
        http_status=0,
        restarts=0,
        metrics={},
        exit_code=seen.exit_code if seen.exit_code is not None else task.exit_code,
        cause=verdict.cause,
        not_before=0.0,
    )
    if task.phase is Phase.STOPPING:
        return move(known, Event.ENDED_OK, now, f"{task.reason}; ended" if task.reason else "ended")
    rule = group.replace
    if verdict.success and rule.policy != "always" and task.phase in RUNNING | {Phase.PENDING}:
        return replace(move(known, Event.ENDED_OK, now, verdict.reason), failures=0)
    return _after_failure(known, group, verdict, now, healthy_since=task.ready_since)


def _after_failure(task: Task, group: Group, verdict: Verdict, now: float, *, healthy_since: float) -> Task:
    rule = group.replace
    healed = healthy_since > 0 and now - healthy_since >= rule.heal_after_s
    failures = (0 if healed else task.failures) + (1 if verdict.counts else 0)
    waiting = move(replace(task, failures=failures), Event.ENDED_BAD, now, verdict.reason)
    if verdict.permanent or rule.policy == "never":
        why = verdict.reason if verdict.permanent else f"{verdict.reason}; it is not to be replaced"
        return move(waiting, Event.GIVE_UP, now, why)
    return _retry_or_give_up(waiting, group, now)


def _retry_or_give_up(task: Task, group: Group, now: float) -> Task:
    rule = group.replace
    if task.failures >= rule.max_failures:
        times = "1 failure" if task.failures == 1 else f"{task.failures} failures, the last"
        why = f"given up after {times}: {task.reason}"
        return move(task, Event.GIVE_UP, now, why)
    wait = backoff_s(max(1, task.failures), rule.backoff_initial_s, rule.backoff_max_s, key=str(task.key))
    return replace(task, not_before=now + wait)


def healed(task: Task, group: Group, now: float) -> Task:
    """A task that was healthy long enough gets its failures back."""
    stretch = now - task.ready_since if task.ready_since else 0.0
    if task.failures and task.phase is Phase.READY and stretch >= group.replace.heal_after_s:
        return replace(task, failures=0)
    return task
