"""The state of a whole workload, from its tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from remuda.backends.base import TaskKey
from remuda.supervise.groups import handover, rules
from remuda.supervise.model import FINAL, GIVEN_UP, LIVE, TAKEN_DOWN, TIME_OVER, Cause, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.plan.model import Group, Role, Workload

PAUSED = "paused: what runs keeps running, nothing is restarted until `remuda unpause`"
UP = frozenset({"RUNNING", "DEGRADED"})
"""Phases of a workload whose endpoint may be announced."""
ENDED = frozenset({"DONE", "FAILED", "STOPPED", "DOWN"})
"""Phases in which nothing is ready any more, nor will be."""
_OF_ITS_TASK = {Phase.UNHEALTHY: "UNHEALTHY", Phase.STOPPING: "RESTARTING"}
"""What the phase of an only task is called, where a workload is shown to be what that is."""


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """One workload in one line."""

    phase: str
    """PENDING, WAITING, STARTING, RUNNING, DEGRADED, FAILED, DONE, STOPPED, PAUSED, STOPPING or DOWN; of a run also
    UNHEALTHY or RESTARTING."""
    ready: int
    """Serving tasks (or, where there are none, all tasks) that are ready."""
    wanted: int
    reason: str = ""
    """Why it is not RUNNING, DONE or DOWN."""


def summarise(want: Want, tasks: Mapping[TaskKey, Task]) -> WorkloadSummary:
    """Say how the workload is."""
    if not want.running:
        return _unwanted(want, tasks)
    serving = _serving(want)
    wanted = sum(want.count(group.name) for group in serving)
    if (ender := rules.ender(want, tasks)) is not None:
        return _ended_with(want, tasks, ender, wanted)
    tasks = current(want, tasks)
    members = [one for group in serving for one in _members(want, group, tasks)]
    mine = [member[0] for member in members]
    ready = _count_ready(members)
    over = _over(want, mine, wanted)
    if over is not None:
        return over
    if want.paused and not any(task.phase in LIVE for task in tasks.values()):
        return WorkloadSummary("PAUSED", 0, wanted, _why(mine) or "nothing is started until it is unpaused")
    fronts = _fronts(want, tasks)
    lost = _lost_service(want, tasks)
    if failure := _failure(want, mine, fronts, wanted) or _never_up(lost, ready):
        return WorkloadSummary("FAILED", ready, wanted, failure)
    if going := _by_itself(want, mine, ready, wanted):
        return going
    by_role = _counted(want, serving, tasks).values()
    enough = ready >= wanted or (is_first_enough(want) and all(one or not all_ for one, all_ in by_role))
    unready = next((front for front in fronts if not _is_passed(want, front)), None)
    if enough and unready is None and ready:
        missed = [*mine, lost] if lost is not None else mine
        is_whole = ready >= wanted and lost is None
        return WorkloadSummary("RUNNING" if is_whole else "DEGRADED", ready, wanted, "" if is_whole else _why(missed))
    if want.workload.is_its_task and mine and mine[0].phase in _OF_ITS_TASK:
        return WorkloadSummary(_OF_ITS_TASK[mine[0].phase], ready, wanted, _why(mine))
    if any(task.phase in (Phase.STARTING, Phase.READY, Phase.UNHEALTHY) for task in tasks.values()):
        return WorkloadSummary("STARTING", ready, wanted, _why(mine) or (unready.reason if unready else ""))
    waits = len(mine) >= wanted > 0 and all(task.phase is Phase.WAITING and task.attempt for task in mine)
    return WorkloadSummary("WAITING" if waits else "PENDING", ready, wanted, _why(mine))


def _ended_with(want: Want, tasks: Mapping[TaskKey, Task], ender: Task, wanted: int) -> WorkloadSummary:
    """The summary of what ends, or has ended, with one of its groups."""
    if left := sum(task.phase in LIVE for task in tasks.values()):
        return WorkloadSummary("STOPPING", 0, wanted, f"{rules.over(want, tasks)}; {_still(left)}")
    phase = {Phase.DONE: "DONE", Phase.STOPPED: "STOPPED"}.get(ender.phase, "FAILED")
    return WorkloadSummary(phase, 0, wanted, "" if phase == "DONE" else _sentence(ender))


def _failure(want: Want, mine: list[Task], fronts: list[Task], wanted: int) -> str:
    """Why nothing can come of it any more; empty where something can. A gang and a pack need all of their tasks."""
    for front in fronts:
        if front.phase is Phase.FAILED:
            return f"the {want.workload.group(front.key.group).role} failed: {front.reason}"
    failed = [task for task in mine if task.phase is Phase.FAILED]
    is_over = len(mine) >= wanted and all(task.phase in FINAL for task in mine)
    packed = [task for task in failed if want.workload.pack_of(task.key.group) is not None]
    if packed or want.workload.kind.traits.needs_all or (want.workload.has_parts and is_over):
        return _sentence((packed or failed)[0]) if failed else ""
    return failed[0].reason or "it failed" if failed and len(failed) >= wanted else ""


def _lost_service(want: Want, tasks: Mapping[TaskKey, Task]) -> Task | None:
    """A service that others come after and that is not ready: what is up may serve on, but nobody new finds it."""
    awaited = {name for group in want.workload.groups for name in group.after}
    services = [group for group in want.workload.groups if group.role.stays and group.name in awaited]
    mine = (_foremost(want, tasks, group) for group in services)
    return next((task for task in mine if task.phase not in (Phase.READY, Phase.DONE)), None)


def _never_up(lost: Task | None, ready: int) -> str:
    return _sentence(lost) if lost is not None and lost.phase is Phase.FAILED and not ready else ""


def _by_itself(want: Want, mine: list[Task], ready: int, wanted: int) -> WorkloadSummary | None:
    """The summary of what goes on though not all of it is ready: who is done, or has no place yet, is not missed."""
    if want.workload.has_parts and ready:
        failure = _why([task for task in mine if task.phase is Phase.FAILED])
        return WorkloadSummary("DEGRADED" if failure else "RUNNING", ready, wanted, failure)
    is_gang = want.workload.kind.traits.needs_all
    return _training(want.workload.groups[0], mine, ready, wanted) if is_gang else None


def _training(ranks: Group, mine: list[Task], ready: int, wanted: int) -> WorkloadSummary | None:
    """The summary of a gang that trains: who is done is not missed, and a quorum goes on without the others."""
    done = sum(task.phase is Phase.DONE for task in mine)
    missing = wanted - done - ready
    if not ready or ready + done < (ranks.quorum or wanted):
        return None
    return WorkloadSummary("DEGRADED" if missing else "RUNNING", ready, wanted, _why(mine) if missing else "")


def _unwanted(want: Want, tasks: Mapping[TaskKey, Task]) -> WorkloadSummary:
    """The summary of what was taken down, by a person or by the host."""
    left = sum(task.phase in LIVE for task in tasks.values())
    serving = _serving(want) if left else []
    ready = _count_ready(one for group in serving for one in _members(want, group, tasks))
    if want.has_failed:
        planned = sum(want.planned(group.name) for group in _serving(want))
        return WorkloadSummary("FAILED", ready, planned, want.note.removeprefix(GIVEN_UP))
    why = "" if want.note == TAKEN_DOWN else want.note
    said = [why, _still(left) if left else ""]
    return WorkloadSummary("STOPPING" if left else "DOWN", ready, 0, "; ".join(filter(None, said)))


def _still(left: int) -> str:
    return "1 task still ends" if left == 1 else f"{left} tasks still end"


def by_role(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[Role, tuple[int, int]]:
    """Of each role that works: how many tasks are ready, and how many shall be, in the order of the groups."""
    return _counted(want, [group for group in want.workload.groups if group.role.works], current(want, tasks))


def _counted(want: Want, groups: Iterable[Group], tasks: Mapping[TaskKey, Task]) -> dict[Role, tuple[int, int]]:
    found: dict[Role, tuple[int, int]] = {}
    for group in groups:
        ready, wanted = found.get(group.role, (0, 0))
        more = _count_ready(_members(want, group, tasks))
        found[group.role] = (ready + more, wanted + want.count(group.name))
    return found


def _serving(want: Want) -> list[Group]:
    groups = want.workload.groups
    return [group for group in groups if group.role.serves] or list(groups)


def _count_ready(members: Iterable[Sequence[Task]]) -> int:
    return sum(any(task.phase is Phase.READY for task in member) for member in members)


def _members(want: Want, group: Group, tasks: Mapping[TaskKey, Task]) -> list[list[Task]]:
    """The members of a group that were begun, each with all its tasks, the one that stands for it first."""
    slots = (handover.members(want.workload, group, slot, tasks) for slot in want.slots(group.name))
    return [slot for slot in slots if slot]


def is_first_enough(want: Want) -> bool:
    """Whether one ready replica is enough for the endpoint: as the document says, or once it was announced."""
    endpoint = want.workload.endpoint
    return endpoint is not None and (endpoint.ready == "first" or want.announced)


def _over(want: Want, mine: list[Task], wanted: int) -> WorkloadSummary | None:
    """The summary of what has ended by itself, by the clock or by a person's hand, though it is still wanted."""
    if not wanted or len(mine) < wanted:
        return None
    if all(task.phase is Phase.DONE for task in mine):
        return WorkloadSummary("DONE", 0, wanted)
    stopped = [task for task in mine if task.phase is Phase.STOPPED]
    if stopped and all(task.phase in (Phase.DONE, Phase.STOPPED) for task in mine):
        by_person = [task for task in stopped if task.cause is Cause.USER and not task.reason.startswith(TIME_OVER)]
        if by_person:
            return WorkloadSummary("STOPPED", 0, wanted, _sentence(by_person[0]))
        if all(task.reason.startswith(TIME_OVER) for task in stopped):
            return WorkloadSummary(want.workload.kind.traits.after_time, 0, wanted, _sentence(stopped[0]))
    return None


def current(want: Want, tasks: Mapping[TaskKey, Task]) -> dict[TaskKey, Task]:
    """Tasks that matter: those that are planned, and surplus ones that have not ended yet."""
    groups = [(group, slot) for group in want.workload.groups for slot in want.slots(group.name)]
    holders = {task.key for group, slot in groups if (task := handover.holder(want.workload, group, slot, tasks))}
    return {
        key: task
        for key, task in tasks.items()
        if key in holders or task.phase in LIVE or (task.phase is Phase.WAITING and want.running)
    }


def _fronts(want: Want, tasks: Mapping[TaskKey, Task]) -> list[Task]:
    """What stands before the replicas: the router, the relay where there is one, and the gate until it was passed.

    A gate that looks once more, because there are more workers now, takes nothing down that serves.
    """
    endpoint = want.workload.endpoint
    gate = endpoint.gate if endpoint and not want.announced else ""
    names = [name for name in (endpoint.router, endpoint.relay, gate) if name] if endpoint else []
    fronts = [_foremost(want, tasks, want.workload.group(name)) for name in names]
    if endpoint is not None and endpoint.behind:
        mine = [task for key, task in sorted(tasks.items()) if key.group == endpoint.behind]
        best = sorted(mine, key=lambda task: (task.phase is not Phase.READY, task.phase is Phase.FAILED))
        fronts.append(best[0] if best else _foremost(want, tasks, want.workload.group(endpoint.behind)))
    return fronts


def _is_passed(want: Want, front: Task) -> bool:
    """Whether one that stands before the replicas is ready; the gate has to end well."""
    endpoint = want.workload.endpoint
    is_gate = endpoint is not None and front.key.group == endpoint.gate
    return front.phase is (Phase.DONE if is_gate else Phase.READY)


def _foremost(want: Want, tasks: Mapping[TaskKey, Task], group: Group) -> Task:
    task = handover.holder(want.workload, group, 0, tasks)
    return task or Task(TaskKey(want.workload.name, group.name, 0), want.workload.backend, reason="not started yet")


def front_group(workload: Workload) -> Group:
    """The group that has the endpoint's address: the relay, else the router, else the only replica."""
    endpoint = workload.endpoint
    name = (endpoint.relay or endpoint.router) if endpoint else ""
    return workload.group(name or next(group.name for group in workload.groups if group.role.serves))


def _why(tasks: list[Task]) -> str:
    """The reason that a person wants first: what failed, else what waits, else what starts."""
    order = (Phase.FAILED, Phase.UNHEALTHY, Phase.WAITING, Phase.PENDING, Phase.STARTING)
    for phase in order:
        for task in tasks:
            if task.phase is phase and task.reason:
                return _sentence(task)
    return ""


def _sentence(task: Task) -> str:
    return f"{task.key.group}/{task.key.index}: {task.reason}"
