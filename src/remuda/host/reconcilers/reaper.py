"""Takes workloads down: when their lifetime is over, when nobody has asked them for long, when they have failed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from remuda.base.units import show_duration
from remuda.plan.lasting import COUNTING
from remuda.plan.model import Front
from remuda.serving.usage import Reading, Use, by_replicas, by_router, taken_in, use_of
from remuda.supervise.groups.rules import over
from remuda.supervise.model import GIVEN_UP
from remuda.supervise.reconciler import Due, Moment, Reconciler
from remuda.supervise.summary import UP, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import TaskKey
    from remuda.host.service import Service
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


def over_for(at: Moment) -> str:
    """Why a workload that is wanted is to end, used or not; empty while it is not."""
    if not at.want.workload.kind.traits.has_one_task:
        summary = summarise(at.want, at.tasks)
        if summary.phase == "FAILED" and not over(at.want, at.tasks):
            # What failed as a whole must not go on holding nodes, GPUs and ports with the parts that did not.
            return f"{GIVEN_UP}{summary.reason}"
    is_over = at.want.ends_at and at.now >= at.want.ends_at
    return f"its lifetime of {show_duration(at.want.workload.lifetime_s)} is over" if is_over else ""


class Reaper(Reconciler[str, str | Use]):
    """Looks at each workload's clock and counters, and records the intent *down* with its reason, as a person would."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, Watched] = {}

    def due(self, at: Moment) -> Due[str, str | Use]:
        """Why a workload is to end, or what is to be recorded of its use."""
        workload, name, ends_at = at.want.workload, at.want.workload.name, at.want.ends_at
        if not at.want.running:
            self._known.pop(name, None)
            return Due()
        if why := over_for(at):
            return Due({name: why})
        pause = ends_at - at.now if ends_at else None
        if workload.idle_timeout_s <= 0 or workload.endpoint is None:
            return Due(again_s=pause)
        known, reading = self._watched(at.want, at.tasks, at.now)
        if reading is not None and reading.at - known.use.at >= workload.idle_timeout_s:
            return Due({name: f"idle for {show_duration(workload.idle_timeout_s)}: nothing was asked of its endpoint"})
        is_old = known.use != known.saved and at.now - known.saved_at >= _SAVE_S
        return Due({name: known.use} if is_old else {}, _LOOK_S if pause is None else min(pause, _LOOK_S))

    def act(self, actions: Mapping[str, str | Use]) -> None:
        """Take it down, or record how it was used."""
        journal = self._service.journal
        for name, action in actions.items():
            if isinstance(action, str):
                self._service.down(name, action)
            else:
                journal.store.note_usage(journal.fence, name, used_at=action.at, usage=action.mark())
                saved_at = self._service.clock.now()
                self._known[name] = replace(self._known[name], saved=action, saved_at=saved_at)

    def _watched(self, want: Want, tasks: Mapping[TaskKey, Task], now: float) -> tuple[Watched, Reading | None]:
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
        self._known[name] = known
        return known, reading

    def _recorded(self, want: Want, now: float) -> Watched:
        """What an earlier host recorded; else it counts as used now."""
        row = self._service.journal.store.workload(want.workload.name)
        use = use_of(min(row.used_at, now) or now, row.usage)
        clock = self._service.clock
        saved = use if row.used_at else Use(0.0)
        return Watched(use, want.generation, now, saved, 0.0, clock.offset, clock.missed())

    def _read(self, want: Want, tasks: Mapping[TaskKey, Task]) -> Reading | None:
        """The counters of the routers where they tell, else those of the replicas."""
        workload, counts_itself = want.workload, (want.workload.front or Front()).router in COUNTING
        if workload.endpoint is None or not workload.endpoint.router or not counts_itself:
            return by_replicas(workload, tasks.values())
        view = self._service.routers.get(workload.name)
        if view is None or any("requests" not in item.stats for item in (view, *view.beside)):
            return None
        routers = (view, *view.beside)
        counts = {item.url: (item.stats["requests"], item.stats.get("running", 0.0)) for item in routers}
        return by_router(counts, min(item.counted_at for item in routers), tasks.values())
