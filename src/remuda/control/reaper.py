"""Takes workloads down: when their lifetime is over, when nobody has asked them for long, when they have failed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.base.units import show_duration
from remuda.plan.lasting import COUNTING
from remuda.plan.model import Front
from remuda.serving.usage import Reading, Use, by_replicas, by_router, taken_in, use_of
from remuda.supervise.model import GIVEN_UP
from remuda.supervise.rules import over
from remuda.supervise.summary import UP, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import TaskKey
    from remuda.control.service import Service
    from remuda.supervise.model import Task, Want

_LOOK_S: Final = 15.0
"""Between two looks at the counters."""
_SAVE_S: Final = 60.0
"""Between two records of when an endpoint was used: a host that is killed in between takes it for used a bit later."""


@dataclass(frozen=True)
class Watched:
    """What is known of one workload."""

    use: Use
    generation: int
    looked_at: float
    saved: Use
    saved_at: float
    offset: float
    """Of the host's clock."""
    missed_s: float
    """Of all gaps in the host's turns."""

    def moved(self, offset: float, missed_s: float) -> Watched:
        """The same after the clock was set, and after a gap, in which nobody could ask either."""
        by, gap_s = offset - self.offset, missed_s - self.missed_s
        return replace(
            self, use=replace(self.use, at=self.use.at + by + gap_s), looked_at=self.looked_at + by,
            saved_at=self.saved_at + by, offset=offset, missed_s=missed_s,
        )  # fmt: skip


class Reaper:
    """Looks at each workload's clock and counters, and records the intent *down* with its reason, as a person would."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, Watched] = {}

    async def step(self, want: Want, tasks: Mapping[TaskKey, Task]) -> float | None:
        """Look; seconds until the next look."""
        workload, now = want.workload, self._service.clock.now()
        if not want.running:
            self._known.pop(workload.name, None)
            return None
        if not workload.kind.traits.has_one_task:
            summary = summarise(want, tasks)
            if summary.phase == "FAILED" and not over(want, tasks):
                # What failed as a whole must not go on holding nodes, GPUs and ports with the parts that did not.
                self._service.down(workload.name, f"{GIVEN_UP}{summary.reason}")
                return None
        if want.ends_at and now >= want.ends_at:
            self._service.down(workload.name, f"its lifetime of {show_duration(workload.lifetime_s)} is over")
            return None
        pauses = [want.ends_at - now] if want.ends_at else []
        if workload.idle_timeout_s > 0 and workload.endpoint is not None:
            used = self._used(want, tasks, now)
            counted_at = used[1].at if used[1] is not None else 0.0
            if counted_at - used[0].at >= workload.idle_timeout_s:
                for_s = show_duration(workload.idle_timeout_s)
                self._service.down(workload.name, f"idle for {for_s}: nothing was asked of its endpoint")
                return None
            pauses.append(_LOOK_S)
        return min(pauses, default=None)

    def _used(self, want: Want, tasks: Mapping[TaskKey, Task], now: float) -> tuple[Use, Reading | None]:
        """When it was last used, and the reading from which that is known; None where nothing can be read now."""
        name = want.workload.name
        clock = self._service.clock
        known = (self._known.get(name) or self._recorded(want, now)).moved(clock.offset, clock.missed())
        use, reading = known.use, None
        if known.generation != want.generation:
            use = replace(use, at=now)
        if summarise(want, tasks).phase not in UP:
            # Nobody can ask it: that time does not count.
            use = replace(use, at=min(now, use.at + max(0.0, now - known.looked_at)))
        elif (reading := self._read(want, tasks)) is not None:
            use = taken_in(use, replace(reading, at=min(reading.at, now)))
        known = replace(known, use=use, generation=want.generation, looked_at=now)
        if use != known.saved and now - known.saved_at >= _SAVE_S:
            self._save(name, use)
            known = replace(known, saved=use, saved_at=now)
        self._known[name] = known
        return use, reading

    def _recorded(self, want: Want, now: float) -> Watched:
        """What an earlier host recorded; else it counts as used now."""
        row = self._service.journal.store.workload(want.workload.name)
        use = use_of(min(row.used_at, now) or now, row.usage)
        clock = self._service.clock
        saved = use if row.used_at else Use(0.0)
        return Watched(use, want.generation, now, saved, 0.0, clock.offset, clock.missed())

    def _save(self, name: str, use: Use) -> None:
        journal = self._service.journal
        journal.store.note_usage(journal.fence, name, used_at=use.at, usage=use.mark())

    def _read(self, want: Want, tasks: Mapping[TaskKey, Task]) -> Reading | None:
        """The counters of the routers where they tell, else those of the replicas."""
        workload = want.workload
        if workload.endpoint is None or not workload.endpoint.router or not self._has_counting_router(want):
            return by_replicas(workload, tasks.values())
        view = self._service.routers.get(workload.name)
        if view is None or any("requests" not in item.stats for item in (view, *view.beside)):
            return None
        routers = (view, *view.beside)
        counts = {item.url: (item.stats["requests"], item.stats.get("running", 0.0)) for item in routers}
        return by_router(counts, min(item.counted_at for item in routers), tasks.values())

    def _has_counting_router(self, want: Want) -> bool:
        return (want.workload.front or Front()).router in COUNTING
