"""What one round of the loop has to write down."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from remuda.store.rows import StoryLine

if TYPE_CHECKING:
    from remuda.backends.base import TaskKey
    from remuda.store.rows import Evidence
    from remuda.supervise.model import Allocation, Task

#: Fields whose change is worth a write; the others are seen again with the next report, and when something is to be
#: killed is counted anew by a host that comes later, because it asks again.
_MATERIAL = attrgetter(
    "phase", "attempt", "generation", "token", "native", "failures", "not_before", "ready_since",
    "cause", "reason", "node", "url", "pid", "restarts", "exit_code", "started_at", "released", "never", "limit_at",
    "requeues", "ending", "pool", "pool_refusals", "pool_failures", "pool_nevers", "pool_left_at", "quick_failures",
    "restart_mark", "yields_at", "avoids", "may_avoid", "ports",
)  # fmt: skip


class Changes:
    """Tasks that changed, ends of allocations, lines of stories; what could not be written is added to what comes."""

    def __init__(self) -> None:
        self.tasks: set[TaskKey] = set()
        self.allocations: list[Allocation] = []
        self.lines: list[StoryLine] = []
        self.evidence: list[Evidence] = []

    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.tasks or self.allocations or self.lines or self.evidence)

    def note(self, before: Task | None, after: Task, now: float) -> None:
        """Keep a changed task; a new phase is a line of its story."""
        if before is not None and before.phase is after.phase and _MATERIAL(before) == _MATERIAL(after):
            return
        self.tasks.add(after.key)
        is_told = before is not None and bool(before.yields_at) is bool(after.yields_at)
        if before is None or before.phase is not after.phase or before.attempt != after.attempt or not is_told:
            task = f"{after.key.group}/{after.key.index}"
            self.lines.append(
                StoryLine(now, after.key.workload, "move", after.reason, task, after.attempt, after.phase.value)
            )

    def add(self, later: Changes) -> None:
        """Take in what came after these."""
        self.tasks |= later.tasks
        self.allocations += later.allocations
        self.lines += later.lines
        self.evidence += later.evidence
