"""The joules of a swarm's replicas in the window of a load, from the recordings beside them."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from remuda.base.disk.paths import state_paths
from remuda.base.errors import RemudaError
from remuda.base.ids import api_path
from remuda.bench.judging.energy import Sampled
from remuda.client.recordings import profiler
from remuda.plan.model import Role, Workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.bench.judging.measures import Window
    from remuda.profile import Recorded

_LATE_S: Final = 4.0
"""A recorder writes once a second: so long is waited for the end of the window."""


def recorded_by(swarm: str) -> tuple[Callable[[Window], list[Sampled]], int] | None:
    """What reads the joules of a swarm, and how many GPUs its replicas have; None where they are not recorded."""
    from remuda.client.http import connect

    plan = Workload.model_validate(connect().get(api_path(swarm, "spec"))["plan"])
    groups = [group for group in plan.groups if group.role is Role.REPLICA and group.record_interval_s > 0]
    if not groups:
        return None
    return lambda window: sampled(swarm, window), sum(group.count * group.resources.gpus for group in groups)


def sampled(swarm: str, window: Window) -> list[Sampled]:
    """The GPUs of a swarm's replicas in a window of CLOCK_MONOTONIC, on whichever node; those that were recorded."""
    from remuda import profile

    offset = time.time_ns() - time.monotonic_ns()
    begin, end = ((at + offset) // 1000 for at in (window.start, window.end))
    deadline = time.monotonic() + _LATE_S
    while True:
        found = [folder for folder in profiler.beside(state_paths().workloads, swarm) if _is_of(folder, begin)]
        try:
            recorded = profile.read(*found, attempt_of=profiler.attempt_of)
        except RemudaError:
            return []
        if recorded.end_us >= end or time.monotonic() > deadline:
            return _gpus(recorded.within(begin, end), begin, end)
        time.sleep(0.5)


def _is_of(folder: Path, begin_us: int) -> bool:
    """Whether its recorder lived when the window began."""
    status = profiler.status_of(folder)
    return status is not None and status.at * 1e6 >= begin_us


def _gpus(recorded: Recorded, begin: int, end: int) -> list[Sampled]:
    from remuda.profile import analyse

    rows = {(row.node, row.uuid): row for row in analyse(recorded).gpus}
    return [_one(track, rows[track.node, track.gpu.uuid].use.is_shared, begin, end) for track in recorded.tracks]


def _one(track: Any, is_shared: bool, begin: int, end: int) -> Sampled:
    """A track cut to the window. Its samples end within a period of the edges: that is added at its mean power."""
    from remuda.profile import counters

    times = [begin, *map(int, track.times), end]
    gap = max(after - before for before, after in pairwise(times)) / 1e6
    span = (int(track.times[-1]) - int(track.times[0])) / 1e6
    whole = (end - begin) / 1e6 / span if span > 0 else 0.0
    told = counters.energy(track)
    bare = {name: values for name, values in track.values.items() if name != "energy"}
    power = counters.energy(replace(track, values=bare))
    return Sampled(
        float(told.joules[-1]) * whole if told.source != counters.NOTHING and whole else None,
        float(power.joules[-1]) * whole if power.source == counters.POWER and whole else None,
        gap, told.restarts > 0, is_shared,
    )  # fmt: skip
