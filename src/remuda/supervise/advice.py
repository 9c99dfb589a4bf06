"""What a user may do next, by what has happened. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from remuda.base.hostlist import compress_numbers
from remuda.supervise.model import Cause, Phase
from remuda.supervise.summary import ENDED, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Allocation, Task, Want

_FAULTS: Final = frozenset({Cause.APPLICATION, Cause.NODE, Cause.UNKNOWN})
_OFTEN: Final = 3
"""Ends on one node that make it a suspect."""


def advise(want: Want, tasks: Mapping[TaskKey, Task], ends: Sequence[Allocation], unreachable: str = "") -> list[str]:
    """Sentences with a command each, the likeliest to help first; none where all is well.

    Args:
        want: the intent.
        tasks: all tasks of the workload.
        ends: its allocations that have ended, oldest first.
        unreachable: what the backend did not answer, empty when it does.
    """
    return list(dict.fromkeys(_advice(want, tasks, ends, unreachable)))


def _advice(want: Want, tasks: Mapping[TaskKey, Task], ends: Sequence[Allocation], unreachable: str) -> Iterator[str]:
    name, phase = want.workload.name, summarise(want, tasks).phase
    if want.paused and want.running:
        yield f"resume it: remuda unpause {name}"
    if unreachable:
        yield "see what the host and the scheduler say: remuda doctor"
    if phase in ENDED and phase != "FAILED":
        return
    bad = [end for end in ends if end.cause in _FAULTS]
    if phase == "FAILED" or (bad and bad[-1] is ends[-1] and not _is_well(tasks)):
        yield from _of_failures(want, bad)
    if phase == "FAILED":
        failed = sorted(key for key, task in tasks.items() if task.phase is Phase.FAILED)
        first = next(iter(failed), None)
        which = f" {compress_numbers(key.index for key in failed)}" if want.workload.is_array else ""
        task = f" --task {first.group}/{first.index}" if first is not None and len(tasks) > 1 else ""
        yield f"read what it wrote last: remuda logs {name}{task} -n 50"
        yield f"restart it once that is fixed: remuda restart {name}{which}"


def _is_well(tasks: Mapping[TaskKey, Task]) -> bool:
    return all(task.phase in (Phase.READY, Phase.DONE) for task in tasks.values())


def _of_failures(want: Want, bad: Sequence[Allocation]) -> Iterator[str]:
    """What the last failure, and where the last ones were, speaks for."""
    last = bad[-1] if bad else None
    words = f"{last.reason} {last.evidence}".lower() if last is not None else ""
    is_run = want.workload.kind.traits.has_settings
    if "cuda" in words and "out of memory" in words:
        more = "ask for one with more (--min-vram 80)" if is_run else "give each replica more GPUs"
        yield f"it does not fit its GPU: {more}, or make it smaller"
    elif "out of memory" in words or "more memory than it had asked for" in words:
        field = "--mem 64GB" if is_run else "`mem` of its backend"
        yield f"it needs more memory than it asks for: raise {field}"
    for node, count in Counter(end.node for end in bad[-2 * _OFTEN :] if end.node).most_common(1):
        others = {end.node for end in bad} - {node}
        if count >= _OFTEN and not want.workload.is_here:
            than = "and elsewhere, too" if others else "and nowhere else"
            yield f"it failed {count} times on {node} {than}: remuda nodes ban {node} --ttl 12h"
