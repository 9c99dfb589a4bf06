"""Why a workload is as it is, in sentences, from recorded facts. Pure."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from remuda.base.units import show_duration
from remuda.supervise.model import Allocation, Line, Phase, Task, Want
from remuda.supervise.summary import current, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.backends.base import TaskKey

_LAST_ENDS = 3
_LAST_LINES = 12


def explain(
    want: Want,
    tasks: Mapping[TaskKey, Task],
    story: Sequence[Line],
    ends: Sequence[Allocation],
    unreachable: str,
    now: float,
) -> list[str]:
    """Tell how it is, what each task does and why, what ended and why, and the last lines of the story.

    Args:
        want: the intent.
        tasks: all tasks of the workload.
        story: its lines, oldest first.
        ends: its allocations, oldest first.
        unreachable: what the backend did not answer, empty when it does.
        now: seconds since the epoch.

    Returns:
        Lines of text; indented ones belong to the one above.
    """
    summary = summarise(want, tasks)
    text = [f"{want.workload.name} is {summary.phase}: {summary.ready} of {summary.wanted} ready"]
    if summary.reason:
        text.append(f"  because {summary.reason}")
    if unreachable:
        text.append(
            f"  the backend {want.workload.backend} does not answer ({unreachable}); nothing is concluded from that"
        )
    for key in sorted(current(want, tasks)):
        text += _about(tasks[key], now)
    past = [end for end in ends if end.ended_at][-_LAST_ENDS:]
    if past:
        text.append("what ended last:")
    for end in past:
        text += _about_end(end)
    if story:
        text.append("story:")
    text += [f"  {_clock(line.at)}  {line.task or '-':<12} {line.phase or line.kind:<11} {line.reason}"
             for line in story[-_LAST_LINES:]]  # fmt: skip
    return text


def _about(task: Task, now: float) -> list[str]:
    where = f" on {task.node}" if task.node else ""
    first = f"{task.key.group}/{task.key.index}: {task.phase} for {show_duration(max(0.0, now - task.since))}{where}"
    lines = [first + (f", attempt {task.attempt}" if task.attempt > 1 else "")]
    if task.reason:
        lines.append(f"  {task.reason}")
    if task.phase is Phase.WAITING and task.not_before > now:
        lines.append(f"  next attempt in {show_duration(task.not_before - now)}, after {task.failures} failures")
    return lines


def _about_end(end: Allocation) -> list[str]:
    code = "" if end.exit_code is None else f", exit code {end.exit_code}"
    what = f"{end.key.group}/{end.key.index} attempt {end.attempt}"
    lines = [f"  {_clock(end.ended_at)}  {what}: {end.reason} (cause: {end.cause or 'none'}{code})"]
    return lines + [f"      | {line}" for line in end.evidence.splitlines()[-5:]]


def _clock(at: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(at))
