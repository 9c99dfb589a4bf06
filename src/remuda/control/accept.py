"""How the host takes new workloads: what they bring along is written first, then they are recorded, all or none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.control import rundirs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from remuda.control.service import Service, Start
    from remuda.control.views import WorkloadView


async def accept(service: Service, starts: Sequence[Start], *, again: bool = False) -> list[WorkloadView]:
    """Write the files of new workloads beside the loop, and record them.

    Args:
        service: the host's use cases.
        starts: what is asked for.
        again: one that is up already and asks for the same is the answer, so a command that was killed can be typed
            again.

    Raises:
        Conflict: one of them is up, or named twice; a port or the GPUs are taken.
        InputError: a name cannot be one, there is no such backend, or a file cannot be written.
        Either way nothing is left of what was written.
    """
    async with service.accepting:  # two that ask for the same at once get the same
        if again and (view := service.same(starts[0].workload)) is not None:
            return [view]
        for start in starts:
            service.check_new(start.workload, start.spec)
        names = [start.workload.name for start in starts]
        before = [want.workload for name in names if (want := service.supervisor.wants.get(name)) is not None]
        written: list[Path] = []
        try:
            written = await asyncio.to_thread(rundirs.write, [start.workload for start in starts])
            bare = [replace(start, workload=start.workload.model_copy(update={"files": {}})) for start in starts]
            views = [service.create(bare[0].workload, bare[0].spec)] if again else service.create_many(bare)
        except BaseException:
            await asyncio.to_thread(rundirs.unwrite, written)
            for start in starts:
                rundirs.discard(start.workload)
            raise
        for old in before:  # what an earlier life of its name alone had
            rundirs.clear(old)
        return views
