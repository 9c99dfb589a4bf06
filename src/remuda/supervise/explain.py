"""Why a workload is as it is, in sentences, from recorded facts. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from remuda.base.units import show_counted, show_duration
from remuda.supervise.groups import handover, rules
from remuda.supervise.model import LIVE, RUNNING, Allocation, Phase, Task, Want
from remuda.supervise.summary import ENDED, PAUSED, current, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.backends.base import TaskKey
    from remuda.plan.model import Group
    from remuda.store.rows import Evidence, StoryLine

_LAST_ENDS = 3
_LAST_LINES = 12


def explain(
    want: Want,
    tasks: Mapping[TaskKey, Task],
    story: Sequence[StoryLine],
    ends: Sequence[Allocation],
    unreachable: str,
    now: float,
    evidence: Sequence[Evidence] = (),
    *,
    only: TaskKey | None = None,
) -> list[str]:
    """Tell how it is, what each task does and why, what ended and why, and the last lines of the story.

    Args:
        want: the intent.
        tasks: all tasks of the workload.
        story: its lines, oldest first.
        ends: its allocations, oldest first.
        unreachable: what the backend did not answer, empty when it does.
        now: seconds since the epoch.
        only: the task that is asked about; None: all.
        evidence: against nodes, unexpired; what this workload gave, or what keeps it from a node, is told.

    Returns:
        Lines of text; indented ones belong to the one above.
    """
    summary = summarise(want, tasks)
    ready = "" if summary.phase in ENDED else f": {summary.ready} of {summary.wanted} ready"
    if want.workload.is_array and ready:
        ready += f", {sum(one.phase is Phase.DONE for one in tasks.values())} done"
    text = [f"{want.workload.name} is {summary.phase}{ready}"]
    if summary.reason:
        text.append(f"  because {summary.reason}")
    if want.ends_at and want.running:
        text.append(f"  its lifetime is over in {show_duration(max(0.0, want.ends_at - now))}")
    if want.paused:
        text.append(f"  {PAUSED}")
    if unreachable:
        text.append(
            f"  the backend {want.workload.backend} does not answer ({unreachable}); nothing is concluded from that"
        )
    for key in _told(want, tasks) if only is None else [only]:
        text += _about(want, tasks[key], now, summary.reason)
        told = [*handover.tell(want, tasks[key], tasks, now), *rules.tell(want, tasks[key], tasks)]
        text += [f"  {line}" for line in told]
    text += _about_nodes(want, story, evidence, now)
    past = [end for end in ends if end.ended_at][-_LAST_ENDS:]
    if past:
        text.append(f"what ended last (times in {_zone(now)}):")
    for end in past:
        text += _about_end(end)
    if story:
        text.append(f"story (times in {_zone(now)}):")
    text += [f"  {_clock(line.at)}  {line.task or '-':<12} {line.phase or line.kind:<11} {line.reason}"
             for line in story[-_LAST_LINES:]]  # fmt: skip
    return text


def _zone(now: float) -> str:
    return time.strftime("%Z", time.localtime(now))


def _told(want: Want, tasks: Mapping[TaskKey, Task]) -> list[TaskKey]:
    """Tasks that there is something to say of: of an array neither those that are done nor those without a place."""
    keys, held = sorted(current(want, tasks)), rules.held(want, tasks)
    quiet = {key for key in keys if key in held or tasks[key].phase is Phase.DONE} if want.workload.is_array else ()
    return [key for key in keys if key not in quiet]


def _about(want: Want, task: Task, now: float, told: str) -> list[str]:
    """What one task does and why; a reason that was told is not told again."""
    where = f" on {task.node}" if task.node else ""
    first = f"{task.key.group}/{task.key.index}: {task.phase} for {show_duration(max(0.0, now - task.since))}{where}"
    lines = [first + (f", attempt {task.attempt}" if task.attempt > 1 else "")]
    if task.reason and task.reason != told:
        lines.append(f"  {task.reason}")
    if task.pool and task.phase in LIVE:
        lines.append(f"  {_why_pool(want.workload.group(task.key.group), task)}")
    if task.requeues:
        times = "once" if task.requeues == 1 else f"{task.requeues} times"
        lines.append(f"  the scheduler put it back into its queue {times}")
    if task.limit_at and task.phase in RUNNING:
        lines.append(f"  its time limit ends it in {show_duration(max(0.0, task.limit_at - now))}")
    if task.phase is Phase.WAITING and task.not_before > now and not want.paused:
        failures = show_counted(task.failures, "failure")
        lines.append(f"  next attempt in {show_duration(task.not_before - now)}, after {failures}")
    return lines


def _why_pool(group: Group, task: Task) -> str:
    verb = "runs in" if task.phase in RUNNING else "was asked of"
    if group.failover.hedge and len(group.pools) > 1:
        return f"{verb} {task.pool}; all of {', '.join(pool.name for pool in group.pools)} were asked at once"
    if len(group.pools) <= 1:
        return f"{verb} {task.pool}"
    if not task.pool_left_at:
        return f"{verb} {task.pool}, the preferred pool"
    since = _clock(task.pool_left_at)
    return f"{verb} {task.pool}; the preferred pool {group.pools[0].name} was left at {since}"


def _about_nodes(want: Want, story: Sequence[StoryLine], evidence: Sequence[Evidence], now: float) -> list[str]:
    told = [line for line in story if line.kind == "nodes"]
    lines = [f"nodes, when it was last submitted: {told[-1].reason}"] if told else []
    mine = [item for item in evidence if item.workload == want.workload.name]
    if mine:
        lines.append("its evidence against nodes:")
    for item in mine:
        device = f" on {item.device}" if item.device else ""
        left = show_duration(max(0.0, item.expires_at - now))
        lines.append(f"  {_clock(item.at)}  {item.node}: {item.kind}{device}, counts {item.weight:g}, for {left} more")
    return lines


def _about_end(end: Allocation) -> list[str]:
    code = f"exit code {end.exit_code}"
    said = [f"cause: {end.cause}"] * bool(end.cause) + [code] * (end.exit_code is not None and code not in end.reason)
    more = f" ({', '.join(said)})" if said else ""
    lines = [f"  {_clock(end.ended_at)}  {end.key.group}/{end.key.index} attempt {end.attempt}: {end.reason}{more}"]
    return lines + [f"      | {line}" for line in end.evidence.splitlines()[-5:]]


def _clock(at: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))
