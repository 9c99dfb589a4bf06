"""What a fact makes of a task: observations, reports and answers come in, the changed task goes out. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuda.backends.base import Ending, Life, Observed
from remuda.base.units import show_duration
from remuda.policy.failover import is_pool_done, is_round_over
from remuda.supervise.failures.ends import after_end, after_never, kept_url, retry_or_give_up, short_wait_s
from remuda.supervise.model import AVOIDS_ALL, LIVE, RUNNING, Cause, Event, Phase, Task, move

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.model import Group
    from remuda.supervise.failures.liveness import Silent
    from remuda.wire.report import Report

UNANSWERED = "no answer from the backend, asking again: "
"""Before the backend's own words, in the reason of a task that is being submitted."""
_AGAIN_S = 5.0
"""Before a backend that did not answer is asked for the same submission again."""
_SURELY_PENDING_S = 60.0
"""A scheduler that does not count requeues is believed that a running task is pending after so long a silence."""
_KILLED_S = 30.0
"""A node that lives has killed what it was told to kill so long after the grace."""
GPU = "gpu_"
"""Begins the names of a task's numbers that its recorder tells."""
_STEP = "progress_step"
"""In the numbers of a report: how far the script says that it is; of a batch job, rows that are done."""
_NO_REPORT_S = 60.0
"""A task without probe that runs for so long and never reported is taken for ready, unless its silence is watched."""


def accepted(task: Task, native: str, now: float) -> Task:
    """The backend has the allocation, under the name `native`."""
    if task.phase is not Phase.SUBMITTING:
        return replace(task, native=native or task.native)
    return replace(move(task, Event.ACCEPTED, now, "handed to the backend"), native=native, pool_refusals=0)


def refused(task: Task, group: Group, reason: str, now: float, *, permanent: bool = False) -> Task:
    """The backend refused the submission for good. It counts as a failure once every pool has refused.

    What is `permanent` is not asked of the same pool again, and ends the task once every pool has said so.
    """
    if task.phase is not Phase.SUBMITTING:
        return task
    if permanent:
        where = f" by {task.pool}" if task.pool else ""
        waiting = replace(task, token="", native="")
        return after_never(move(waiting, Event.REFUSED, now, f"refused{where}: {reason}"), group, now)
    rule, names = group.failover, [pool.name for pool in group.pools]
    refusals = task.pool_refusals + 1
    where = f" by {task.pool}" if task.pool else ""
    waiting = replace(task, pool_refusals=refusals, token="", native="", pool_nevers=0)
    waiting = move(waiting, Event.REFUSED, now, f"refused{where}: {reason}")
    if is_round_over(names, refusals, retry_per_pool=rule.retry_per_pool, hedge=rule.hedge):
        return retry_or_give_up(replace(waiting, failures=task.failures + 1), group, now)
    if is_pool_done(refusals, retry_per_pool=rule.retry_per_pool):
        return replace(waiting, not_before=now)
    return replace(waiting, not_before=now + short_wait_s(waiting, group))


def put_off(task: Task, reason: str, now: float) -> Task:
    """It cannot be submitted now, or nobody knows whether it was: stay, and ask again under the same token."""
    return replace(task, not_before=now + _AGAIN_S, reason=reason)


def released(task: Task) -> Task:
    """The backend was told that the allocation may start."""
    return replace(task, released=True) if task.phase is Phase.PENDING or task.phase in RUNNING else task


def observed(task: Task, group: Group, seen: Observed, now: float, *, silent_s: float | None = None) -> Task:
    """Take in one answer of the backend.

    Args:
        task: as known.
        group: its group.
        seen: the answer.
        now: seconds, on this machine's clock.
        silent_s: how long nothing was heard of it while somebody listened; None: ever since its times say so.
    """
    if task.phase not in LIVE:
        return task
    if seen.life in (Life.ENDED, Life.GONE):
        return after_end(task, group, seen, now)
    if task.phase is Phase.SUBMITTING:
        task = accepted(task, seen.native, now)
    if task.phase is Phase.STOPPING:
        return replace(task, node=seen.node or task.node)
    task = _details(task, group, seen)
    if seen.life is Life.PENDING:
        return _pending(task, group, seen, now)
    return _running(task, group, seen, now, silent_s)


def _details(task: Task, group: Group, seen: Observed) -> Task:
    pool = seen.pool if any(seen.pool == pool.name for pool in group.pools) else task.pool
    # What is not held was released, by us or by a person; if a person holds it later, that is meant.
    released_now = task.released or not seen.held
    node = seen.node or task.node
    if (node, pool, released_now, seen.limit_at or task.limit_at) != (
        task.node, task.pool, task.released, task.limit_at
    ):  # fmt: skip
        return replace(task, node=node, pool=pool, released=released_now, limit_at=seen.limit_at or task.limit_at)
    return task


def _pending(task: Task, group: Group, seen: Observed, now: float) -> Task:
    reason = seen.reason
    if seen.held:
        who = "a person" if task.released else "the supervisor until it is recorded"
        reason = f"held by {who}" + (f" ({seen.reason})" if seen.reason else "")
    if seen.never:
        reason = f"never: {seen.never}"
    if task.phase is Phase.PENDING:
        if seen.never == task.never and (not reason or reason == task.reason):
            return task
        return move(replace(task, never=seen.never), Event.SEEN_PENDING, now, reason)
    heard_at = max(task.last_seen, task.started_at, task.since)
    if seen.requeues <= task.requeues and now - heard_at < _SURELY_PENDING_S:
        return task  # the answer is older than the report that said that it runs
    again = f"put back into the queue by the scheduler: {reason}" if reason else "put back into the queue"
    waiting = move(task, Event.REQUEUED, now, again)
    return replace(
        waiting, requeues=max(seen.requeues, task.requeues + 1), started_at=0.0, ready_since=0.0, limit_at=0.0,
        yields_at=0.0, node="", url=kept_url(task, group), pid=0, http_status=0, restarts=0, ending=Cause.NONE,
    )  # fmt: skip


def _running(task: Task, group: Group, seen: Observed, now: float, silent_s: float | None) -> Task:
    if seen.requeues > task.requeues:  # it was pending in between, unseen
        task = replace(task, requeues=seen.requeues, started_at=now)
    if not task.started_at or task.never or task.pool_nevers:
        task = replace(task, started_at=task.started_at or now, never="", pool_nevers=0, may_avoid=AVOIDS_ALL)
    if task.phase is Phase.PENDING:
        task = move(task, Event.SEEN_RUNNING, now, "running, not ready yet")
    if task.phase is Phase.STARTING and group.probe is None and task.seq < 0 and seen.report is None:
        task = _ready_without_report(task, group, seen, now)
    said = f"{task.backend}: "
    if seen.mute and task.seq < 0 and task.phase is Phase.STARTING and group.probe is not None:
        task = replace(task, reason=seen.mute)
    if seen.reason and task.phase in RUNNING and task.ending is Cause.NONE:
        task = replace(task, reason=f"{said}{seen.reason}")
    elif task.reason.startswith(said):
        task = replace(task, reason="runs")
    if silent_s is None:
        silent_s = now - max(task.last_seen, task.started_at)
    return _with_silence(task, group, seen, silent_s)


def _ready_without_report(task: Task, group: Group, seen: Observed, now: float) -> Task:
    """Where no report can come, running is all that can be known."""
    watched = _grace_s(group) > 0
    if seen.unread:
        why = "runs; its reports cannot be read"
    elif not watched and now - task.started_at >= _NO_REPORT_S:
        why = "runs; no report has come"
    else:
        return task
    return replace(move(task, Event.PROBE_OK, now, why), ready_since=task.ready_since or now)


def _with_silence(task: Task, group: Group, seen: Observed, silent_s: float) -> Task:
    """Whether it gave no sign of life for too long. Concluded only here: the backend just said that it runs."""
    grace = _grace_s(group)
    is_silent = grace > 0 and not seen.unread and silent_s > grace
    if is_silent and task.ending is Cause.NONE:
        return replace(task, ending=Cause.NODE, reason=f"no sign of life for {show_duration(silent_s)}")
    if not is_silent and task.ending is Cause.NODE:
        return replace(task, ending=Cause.NONE, reason="gives signs of life again")
    return task


def missed(task: Task, silent_s: float, now: float) -> Task:
    """Nothing was heard of it, while others were: nothing is sent to it until it is heard again."""
    if task.phase is not Phase.READY:
        return task
    why = f"nothing heard of it for {show_duration(silent_s)}, while others are heard"
    return replace(move(task, Event.PROBE_LATE, now, why), ready_since=0.0)


def lost(task: Task, seen: Observed, silent: Silent | None) -> Task:
    """It is begun again, elsewhere if nobody on its node is heard. Its backend, just asked, must say that it runs."""
    if silent is None:
        again = task.ending is Cause.UNKNOWN and task.phase in RUNNING
        return replace(task, ending=Cause.NONE, reason="gives signs of life again") if again else task
    if task.phase not in RUNNING or seen.life is not Life.RUNNING or seen.unread or task.ending is not Cause.NONE:
        return task
    cause = Cause.UNKNOWN if silent.node_is_heard else Cause.NODE
    return replace(task, ending=cause, reason=f"no sign of life for {show_duration(silent.for_s)}")


def given_up(task: Task, group: Group, seen: Observed, now: float) -> Observed:
    """The answer, as if a server that was ended for the silence of its node had ended, where only that node could say.

    A scheduler may take minutes to give the node up. Whatever runs on there writes nothing, and is asked nothing.
    """
    is_lost = task.phase is Phase.STOPPING and task.ending is Cause.NODE and task.last_seen < task.since
    is_over = seen.lingers and not seen.unread and now >= task.since + group.kill_grace_s + _KILLED_S
    if is_lost and is_over and group.role.serves and not group.together:
        return replace(seen, life=Life.ENDED, ending=Ending.NODE_FAILED, reason="its node does not say how it ended")
    return seen


def _grace_s(group: Group) -> float:
    """After how long a silence it is taken for hung, 0: never."""
    watch = group.watch
    return watch.heartbeat_interval_s + watch.heartbeat_grace_s if watch and watch.heartbeat_grace_s > 0 else 0.0


def reported(task: Task, report: Report, now: float, *, since: float = 0.0) -> Task:
    """Take in one report of the node program; a stale one or one of another allocation changes nothing.

    Args:
        task: as known.
        report: what came.
        now: seconds, on this machine's clock.
        since: when it was surely not there yet; bounds the time of a node whose clock is behind.
    """
    if report.token != task.token or task.phase not in LIVE or not _is_newer(task, report):
        return task
    task = replace(
        task,
        seq=report.seq,
        last_seen=max(task.last_seen, since, min(report.at, now)),
        node=report.node or task.node,
        url=report.url or task.url,
        ports=report.ports,
        pid=report.pid,
        http_status=report.http_status,
        restarts=report.restarts,
        exit_code=report.exit_code,
        metrics=_numbers(task, report),
        loaded_at=max(since, min(report.at, now)) if report.metrics else task.loaded_at,
    )
    task = _progressed(task, report.metrics.get(_STEP, 0.0))
    if task.phase is Phase.SUBMITTING:
        task = accepted(task, task.native, now)
    if task.phase in RUNNING | {Phase.PENDING} and not task.started_at:
        task = replace(task, started_at=now, never="", pool_nevers=0, may_avoid=AVOIDS_ALL)
    return _by_state(task, report, now)


def _numbers(task: Task, report: Report) -> Mapping[str, float]:
    """What it tells of itself, and under `gpu_…` what its GPUs do together, where they are recorded."""
    own = report.metrics or task.metrics
    if not report.gpus and not report.recording:
        return own
    return {**{name: own[name] for name in own if not name.startswith(GPU)}, **of_gpus(report.gpus)}


def of_gpus(gpus: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Figures of several GPUs as one: mean % busy, and the sums of memory in bytes and of power in watts.

    What one of them does not tell is not known of all.
    """
    scales = {"busy": 1 / max(1, len(gpus)), "memory": 1.0, "memory_bytes": 1.0, "power": 1e-3}
    known = {}
    for name, scale in scales.items():
        values = [float(gpu[name]) for gpu in gpus if gpu.get(name) is not None]
        if len(values) == len(gpus):
            known[f"{GPU}{name}"] = round(sum(values) * scale, 3)
    return {f"{GPU}count": float(len(gpus)), **known} if gpus else {}


def _progressed(task: Task, step: float) -> Task:
    """Who is farther than ever before fails in no loop: it gets its failures back. Getting as far again is nothing."""
    if step <= task.progress:
        return task
    return replace(task, progress=step, failures=0, quick_failures=0, pool_failures=0)


def loaded(task: Task, metrics: Mapping[str, float], now: float) -> Task:
    """Take in what somebody else counted for the task: of a router, the requests that it has not answered yet."""
    return replace(task, metrics={**task.metrics, **metrics}, loaded_at=now) if task.phase in RUNNING else task


def _is_newer(task: Task, report: Report) -> bool:
    if report.seq > task.seq:
        return True
    # A requeued allocation may count from the beginning again: the first report since it began anew is taken, also one
    # that comes before its backend was seen to run it.
    if not task.requeues:
        return False
    if report.start < 0:  # nobody counts its starts; what is late was written before what was heard last
        return report.at > task.last_seen
    return report.start >= task.requeues and (not task.started_at or task.last_seen < task.started_at)


def _by_state(task: Task, report: Report, now: float) -> Task:
    if task.phase is Phase.STOPPING or report.state in ("stopping", "exited"):
        return task
    if report.state == "ready":
        task = replace(task, progress=max(task.progress, 1.0)) if report.url else task
        if task.phase is Phase.READY:
            return task
        why = report.reason or ("answers its health probe" if report.http_status else "runs")
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


def healed(task: Task, group: Group, now: float) -> Task:
    """A task that was healthy long enough gets its failures back."""
    stretch = now - task.ready_since if task.ready_since else 0.0
    if task.phase is not Phase.READY or stretch < group.replace.heal_after_s:
        return task
    if not (task.failures or task.quick_failures or task.pool_failures):
        return task
    return replace(task, failures=0, quick_failures=0, pool_failures=0)
