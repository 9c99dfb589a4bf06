"""After the end of a workload: what a backend still runs under its name, which the supervisor knows nothing of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remuda.backends.base import read_token
from remuda.control.views import View
from remuda.supervise.loop import all_ended

if TYPE_CHECKING:
    from remuda.backends.base import Stray
    from remuda.supervise.loop import Supervisor


class StrayView(View):
    """One allocation that was found by its name."""

    token: str
    task: str
    """`group/index`."""
    backend: str
    native: str
    """The backend's own name of it: job id, or pids with commas between them."""
    state: str
    """The backend's own word, raw."""
    node: str
    since: float
    home: str
    """State directory from which it was started; empty where nothing tells."""


def stray_view(stray: Stray, backend: str) -> StrayView:
    """The view of one."""
    parts = read_token(stray.token)
    return StrayView(
        token=stray.token, task=f"{parts.group}/{parts.index}", backend=backend, native=stray.native,
        state=stray.native_state, node=stray.node, since=stray.since, home=stray.home,
    )  # fmt: skip


async def sweep(supervisor: Supervisor, name: str, *, force: bool) -> list[StrayView]:
    """Ask what is left of a workload that is down to end, and say what that was: empty means that nothing is left.

    Empty, too, while the workload is wanted or still ends: that is the supervisor's to do.

    Args:
        supervisor: with the workload and its backends.
        name: of the workload.
        force: kill instead of asking.

    Raises:
        BackendUnreachable: no answer; nothing is known.
    """
    want = supervisor.wants[name]
    tasks = supervisor.tasks(name)
    if want.running or not all_ended(tasks.values()):
        return []
    found: list[StrayView] = []
    for place in sorted({want.workload.backend, *(task.backend for task in tasks.values())}):
        backend = supervisor.backends[place]
        for stray in await backend.list_all():
            parts = read_token(stray.token)
            if (parts.workload, parts.uid) != (name, want.workload.uid):
                continue
            if supervisor.wants.get(name) is not want:
                return found  # it was brought up again meanwhile
            await backend.remove(stray, force=force)
            found.append(stray_view(stray, place))
    return found
