"""How the host takes new workloads: what they bring along is written first, then they are recorded, all or none."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remuda.base.errors import InputError
from remuda.look import run_dirs
from remuda.plan.compile import secret_folder
from remuda.plan.front import CONTROL_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.host.service import NewWorkload, Service
    from remuda.plan.model import Workload
    from remuda.views.workloads import WorkloadView


async def accept(service: Service, starts: Sequence[NewWorkload], *, again: bool = False) -> list[WorkloadView]:
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
        if again and (view := service.same(starts[0].workload, starts[0].spec)) is not None:
            return [view]
        for start in starts:
            service.check_new(start.workload, start.spec)
        names = [start.workload.name for start in starts]
        before = [want.workload for name in names if (want := service.supervisor.wants.get(name)) is not None]
        written: list[Path] = []
        try:
            written = await asyncio.to_thread(run_dirs.write, [start.workload for start in starts])
            bare = [replace(start, workload=start.workload.model_copy(update={"files": {}})) for start in starts]
            views = [service.create(bare[0].workload, bare[0].spec)] if again else service.create_many(bare)
        except BaseException:
            await asyncio.to_thread(run_dirs.unwrite, written)
            for start in starts:
                run_dirs.discard(start.workload)
            raise
        for old in before:  # what an earlier life of its name alone had
            run_dirs.clear(old)
        return views


def with_secrets(workload: Workload, values: Mapping[str, str]) -> Workload:
    """The workload with the files of its secrets, and the key that changes its router, to be written with its others.

    Args:
        workload: as it is handed over.
        values: by name of the variable.

    Raises:
        InputError: a name cannot be one of a variable.
    """
    has_key = workload.endpoint is not None and workload.endpoint.api_key is not None
    if not has_key and not any(group.command.secret_env for group in workload.groups):
        return workload
    folder = Path(secret_folder(workload.run_dir, workload.uid))
    if wrong := [name for name in values if not name.isidentifier()]:
        raise InputError(f"{wrong[0]!r} is not the name of a variable", where="secrets")
    found = {str(folder / name): value for name, value in values.items()}
    if not (folder / CONTROL_KEY).exists():  # written by a command of an earlier version
        found[str(folder / CONTROL_KEY)] = secrets.token_urlsafe(24)
    return workload.model_copy(update={"files": {**workload.files, **found}})
