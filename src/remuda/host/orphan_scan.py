"""After the end of a workload: what a backend still runs under its name, which the supervisor knows nothing of."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import read_token
from remuda.base.errors import RemudaError
from remuda.supervise.loop import all_ended
from remuda.supervise.model import LIVE
from remuda.supervise.summary import summarise
from remuda.views.workloads import View

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from remuda.backends.base import Stray, TaskKey
    from remuda.supervise.loop import Supervisor
    from remuda.supervise.model import Task, Want

_AT_ONCE = 50
_LOOK_AGAIN_S = 0.02


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


class LeftView(View):
    """One task that has not ended."""

    task: str
    """`group/index`."""
    native: str
    pid: int
    node: str


class EndingView(View):
    """How a workload stands that is to end."""

    name: str
    phase: str
    """DOWN when nothing of it runs or is wanted, also of what has FAILED; else as in `WorkloadView`. Empty where there
    is none of that name any more."""
    over: bool = False
    """Nothing of it is left, and whoever runs its tasks was asked."""
    reason: str = ""
    silence: str = ""
    """What does not answer, so that nobody can say whether something is left."""
    left: tuple[LeftView, ...] = ()
    strays: tuple[StrayView, ...] = ()
    """What was left under its name when it was down; it was asked to end."""


def stray_view(stray: Stray, backend: str) -> StrayView:
    """The view of one."""
    parts = read_token(stray.token)
    return StrayView(
        token=stray.token, task=f"{parts.group}/{parts.index}", backend=backend, native=stray.native,
        state=stray.native_state, node=stray.node, since=stray.since, home=stray.home,
    )  # fmt: skip


async def sweep(supervisor: Supervisor, name: str, *, force: bool) -> list[StrayView]:
    """`sweep_all` for one.

    Raises:
        BackendUnreachable: no answer; nothing is known.
    """
    found = (await sweep_all(supervisor, [name], force=[name] if force else []))[name]
    if isinstance(found, RemudaError):
        raise found
    return found


async def sweep_all(
    supervisor: Supervisor, names: Sequence[str], *, force: Collection[str] = ()
) -> dict[str, list[StrayView] | RemudaError]:
    """Ask what is left of workloads that are down to end, and say what that was: empty means that nothing is left.

    Empty, too, while one is wanted or still ends: that is the supervisor's to do. Each backend is asked once.

    Args:
        supervisor: with the workloads and their backends.
        names: of the workloads.
        force: those of which everything is killed instead of asked.

    Returns:
        What was found, by name, or why nobody can say.
    """
    wants = {name: supervisor.wants[name] for name in names}
    places = {name: _places(want, supervisor.tasks(name)) for name, want in wants.items()}
    found: dict[str, list[StrayView] | RemudaError] = {name: [] for name in names}
    for place in sorted({place for some in places.values() for place in some}):
        mine = {want.workload.uid: name for name, want in wants.items() if place in places[name]}
        try:
            strays = _of(await supervisor.backends[place].list_all(), mine)
        except RemudaError as error:
            found |= dict.fromkeys(mine.values(), error)
            continue
        # One that was brought up again meanwhile is left alone.
        strays = [(name, stray) for name, stray in strays if supervisor.wants.get(name) is wants[name]]
        ends = (supervisor.backends[place].remove(stray, force=name in force) for name, stray in strays)
        for (name, stray), outcome in zip(strays, await asyncio.gather(*ends, return_exceptions=True), strict=True):
            before = found[name]
            if isinstance(outcome, RemudaError):
                found[name] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            elif not isinstance(before, RemudaError):
                before.append(stray_view(stray, place))
    return found


async def endings(
    supervisor: Supervisor,
    names: Sequence[str],
    *,
    swept: bool = False,
    told: bool = True,
    wait_s: float = 0.0,
    force: Collection[str] = (),
) -> list[EndingView]:
    """How workloads that are to end stand: one look for all of them, however many.

    Args:
        supervisor: with the workloads and their backends.
        names: of the workloads; those that there are not have ended.
        swept: ask backends what is left of those that are down while others still end, too. Without, they are asked
            when all are down. Nothing is called over before.
        told: tell of those that still end, too, and not only of those that are down.
        wait_s: answer when all are down, or after so long.
        force: those of which what is left is killed.
    """
    await _until_down(supervisor, names, wait_s)
    down = [name for name in names if _is_down(supervisor, name)]  # at one moment: they are swept together
    down_set, views = set(down), dict[str, EndingView]()
    wanted = [name for name in names if told or name in down_set or name not in supervisor.wants]
    for number, name in enumerate(wanted):
        views[name] = _ending(supervisor, name)
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)  # the host has other things to do, too
    is_due = down and (swept or all(name in down_set or name not in supervisor.wants for name in names))
    for name, found in (await sweep_all(supervisor, down, force=force) if is_due else {}).items():
        if isinstance(found, RemudaError):
            views[name] = views[name].model_copy(update={"silence": str(found)})
        else:
            views[name] = views[name].model_copy(update={"strays": tuple(found), "over": not found})
    return list(views.values())


def _is_down(supervisor: Supervisor, name: str) -> bool:
    want = supervisor.wants.get(name)
    return want is not None and not want.running and all_ended(supervisor.tasks(name).values())


async def _until_down(supervisor: Supervisor, names: Sequence[str], limit_s: float) -> None:
    """Wait until nothing is left of any, as far as the supervisor knows. Costs the same for one and for thousands."""
    ends_at = time.monotonic() + limit_s
    for name in names:
        while name in supervisor.wants and not _is_down(supervisor, name):
            if time.monotonic() >= ends_at:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)


def _ending(supervisor: Supervisor, name: str) -> EndingView:
    want = supervisor.wants.get(name)
    if want is None:  # somebody has removed it meanwhile, which needs it to be down
        return EndingView(name=name, phase="", over=True)
    tasks = supervisor.tasks(name)
    summary = summarise(want, tasks)
    left = tuple(
        LeftView(task=f"{key.group}/{key.index}", native=task.native, pid=task.pid, node=task.node)
        for key, task in sorted(tasks.items())
        if task.phase in LIVE
    )
    silence = supervisor.unreachable.get(want.workload.backend, "")
    phase = "DOWN" if _is_down(supervisor, name) else summary.phase
    return EndingView(name=name, phase=phase, reason=summary.reason, silence=silence, left=left)


def _places(want: Want, tasks: Mapping[TaskKey, Task]) -> set[str]:
    """Backends that may run something of a workload which nobody wants and of which no task is left.

    What was done had ended by itself, and its backend has said so.
    """
    is_done = summarise(replace(want, running=True), tasks).phase == "DONE"
    if want.running or not all_ended(tasks.values()) or is_done:
        return set()
    return {want.workload.backend, *(task.backend for task in tasks.values())}


def _of(strays: Sequence[Stray], names: Mapping[str, str]) -> list[tuple[str, Stray]]:
    """Those of the workloads with these uids, with the workload's name."""
    parts = [(read_token(stray.token), stray) for stray in strays]
    return [(part.workload, stray) for part, stray in parts if names.get(part.uid) == part.workload]
