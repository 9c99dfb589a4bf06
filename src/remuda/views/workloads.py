"""What faces show: the same data for tables, JSON and the API. The OpenAPI document is made from these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from remuda.backends.base import TaskKey
from remuda.plan.run import MODE, SOURCE
from remuda.supervise.facts import GPU
from remuda.supervise.groups.handover import holder
from remuda.supervise.model import LIVE, Phase, Task
from remuda.supervise.summary import PAUSED, by_role, current, front_group, summarise
from remuda.wire.fields import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from remuda.plan.model import Workload
    from remuda.store.rows import StoryLine
    from remuda.supervise.model import Allocation, Want


class View(BaseModel):
    """Base of all views."""

    model_config = ConfigDict(defer_build=True, extra="forbid")


class TaskView(View):
    """One task."""

    task: str
    """`group/index`."""
    role: str
    phase: str
    attempt: int
    since: float
    """When the phase began, seconds since the epoch."""
    reason: str
    node: str
    url: str
    http_status: int
    """Of the last health probe, 0 for no answer."""
    pid: int
    restarts: int
    """In place, within this attempt."""
    failures: int
    """Consecutive failed attempts."""
    exit_code: int | None
    cause: str
    last_seen: float
    """Of the newest report, seconds since the epoch; 0 for never."""
    not_before: float
    """No new attempt before this time; 0 for no wait."""
    metrics: dict[str, float]
    """`running`, `waiting` requests; `prompt_tokens`, `generated_tokens` in all; `tokens_per_s`,
    `prompt_tokens_per_s` between its last two reports. Each where the task tells."""
    native: str
    """The backend's own name of the allocation: job id, folder."""
    pool: str
    """Pool that it was asked of, or runs in."""
    started_at: float
    limit_at: float
    never: str
    """Why it will never start as it is, empty otherwise."""
    ports: dict[str, int] = {}
    """Further ports that it asked for, by name."""
    yields_at: float = 0.0
    """Since when it only finishes what it has begun, because its successor serves; 0 if it does not yield."""


class RouterView(View):
    """What the router tells of itself."""

    url: str
    members: list[str]
    """Replicas that it sends to."""
    stats: dict[str, float]
    counted_at: float = 0.0
    """When `stats` were taken, seconds since the epoch."""
    beside: list[RouterView] = []
    """Other routers of the workload: its successor that settles in, or the one before that finishes."""

    def told(self, url: str) -> bool:
        """Whether the router at that address was told of a replica."""
        return any(view.url == url and view.members for view in (self, *self.beside))


class RoleView(View):
    """How many tasks of one role there are."""

    role: str
    ready: int
    wanted: int


class RunView(View):
    """What there is to say of a supervised run."""

    mode: str
    """`run_once` or `indefinite`."""
    script: str
    """As the user named it."""
    job_id: str
    """The scheduler's own name of the current attempt; empty on this machine."""
    state: str
    """The workload's phase."""
    pool: str
    """Partition that the current attempt was asked of, or runs in."""
    pools: list[str]
    """Where it may run, best first."""
    node: str
    attempt: int
    restarts: int
    """Attempts after the first, and restarts by the scheduler itself."""
    heartbeat_at: float
    """Last sign of life of the current attempt, seconds since the epoch; 0 for none yet."""
    started_at: float
    """When the current attempt was first seen running, 0 before."""
    limit_at: float
    """When its time limit ends it, 0 if unknown."""
    keep_until: float
    """When an indefinite run ends, 0 for never."""
    progress: dict[str, float]
    """What the script told last: `step`, `total` and its own numbers; empty when it tells nothing."""
    cause: str
    """Why the attempt before ended."""
    never: str
    """Why the scheduler will never start it as it is, empty otherwise."""


class WorkloadView(View):
    """One workload."""

    name: str
    uid: str
    """New with every creation of the name."""
    kind: str
    backend: str
    phase: str
    """PENDING, WAITING (for its next attempt), STARTING, RUNNING, DEGRADED, PAUSED, DONE, STOPPED, STOPPING, DOWN, or
    FAILED, which it stays until it is taken down or brought up again; the host ends what is left of it. Of a run also
    UNHEALTHY (no heartbeat) or RESTARTING."""
    ready: int
    wanted: int
    reason: str
    endpoint: str
    """`http://host:port`, empty where there is none; on a cluster, until the task in front of it runs."""
    model: str
    api_key_file: str
    """Where the key is that the endpoint asks for; empty when it asks for none."""
    created_at: float
    run_dir: str
    unreachable: str
    """What the backend did not answer; empty when it does."""
    labels: dict[str, str]
    tasks: list[TaskView]
    ends_at: float = 0.0
    """When its lifetime is over and it is taken down, seconds since the epoch; 0: never."""
    paused: bool = False
    """What runs is left alone, nothing new is begun."""
    announced: bool = False
    """Its endpoint was up since it was brought up."""
    load: dict[str, float] = {}
    """Of all replicas that answer: `running`, `waiting` requests, `tokens_per_s`; each where one of them tells."""
    roles: list[RoleView] = []
    """Of each role that works; `ready` and `wanted` above are of those that serve."""
    router: RouterView | None = None
    run: RunView | None = None
    """Only of a supervised run."""


class LineView(View):
    """One line of a workload's story."""

    id: int
    at: float
    kind: str
    task: str
    attempt: int
    phase: str
    reason: str


class AllocationView(View):
    """One allocation, past or present."""

    token: str
    task: str
    attempt: int
    node: str
    submitted_at: float
    ended_at: float
    exit_code: int | None
    signal: int
    cause: str
    reason: str
    evidence: str


class ExplainView(View):
    """Why a workload is as it is."""

    name: str
    text: list[str]
    advice: list[str] = []
    """What its user may do next, a sentence each."""
    allocations: list[AllocationView]


class HostView(View):
    """The host process."""

    pid: int
    node: str
    version: str
    python: str = ""
    """Its interpreter."""
    home: str
    database: str
    started_at: float
    fence: int
    """Number of its lease: it rises with every host that takes over."""
    workloads: int
    live_tasks: int
    reports: dict[str, int]
    slurm_conf: str = ""
    """SLURM_CONF of its environment: which cluster it asks; empty where that is not set."""
    kubeconfig: str = ""
    """KUBECONFIG of its environment, likewise."""
    note: str = ""
    """What its user should know without having asked; empty: nothing."""
    fleet: dict[str, Any] = {}
    """The fleet whose head it is, with its nodes; empty where it is none."""


def workload_view(want: Want, tasks: Mapping[TaskKey, Task], *, created_at: float, unreachable: str) -> WorkloadView:
    """The view of one workload."""
    summary = summarise(want, tasks)
    workload = want.workload
    endpoint = workload.endpoint
    roles = by_role(want, tasks).items()
    return WorkloadView(**alike(WorkloadView, want, summary, workload) | {
        "kind": workload.kind.value,
        "reason": summary.reason or (PAUSED if want.paused and want.running else ""),
        "endpoint": endpoint_url(workload, tasks),
        "model": endpoint.model if endpoint else "",
        "api_key_file": endpoint.api_key.file if endpoint and endpoint.api_key else "",
        "created_at": created_at,
        "unreachable": unreachable,
        "labels": workload.facts,
        "tasks": [task_view(want, tasks[key]) for key in sorted(current(want, tasks))],
        "load": load_of(want, tasks.values()),
        "roles": [RoleView(role=role.value, ready=ready, wanted=wanted) for role, (ready, wanted) in roles],
        "run": run_view(want, tasks, summary.phase),
    })  # fmt: skip


def load_of(want: Want, tasks: Iterable[Task]) -> dict[str, float]:
    """What its replicas do together, those that answer."""
    serving = {group.name for group in want.workload.groups if group.role.serves}
    found: dict[str, float] = {}
    for task in tasks:
        if task.key.group in serving and task.phase is Phase.READY:
            for name in ("running", "waiting", "tokens_per_s"):
                if name in task.metrics:
                    found[name] = round(found.get(name, 0.0) + task.metrics[name], 3)
    return found


def endpoint_url(workload: Workload, tasks: Mapping[TaskKey, Task]) -> str:
    """Where the workload answers: where the plan says, else where the task in front of it says that it is."""
    endpoint = workload.endpoint
    if endpoint is None:
        return ""
    if endpoint.host:
        return f"http://{endpoint.host}:{endpoint.port}"
    task = holder(workload, front_group(workload), 0, tasks)
    return task.url.rstrip("/") if task is not None and task.phase in (Phase.READY, Phase.UNHEALTHY) else ""


def task_view(want: Want, task: Task) -> TaskView:
    """The view of one task."""
    known = alike(TaskView, task) | {"phase": task.phase.value, "cause": task.cause.value}
    role = want.workload.group(task.key.group).role.value
    return TaskView(task=f"{task.key.group}/{task.key.index}", role=role, **known)


def run_view(want: Want, tasks: Mapping[TaskKey, Task], phase: str) -> RunView | None:
    """The view of a run, `phase` being the workload's; None for other workloads."""
    workload = want.workload
    if not workload.is_its_task:
        return None
    group = workload.groups[0]
    task = tasks.get(TaskKey(workload.name, group.name, 0)) or Task(TaskKey(workload.name, group.name, 0), "")
    return RunView(**alike(RunView, task) | {
        "mode": workload.labels.get(MODE, "run_once"),
        "script": workload.labels.get(SOURCE, ""),
        "job_id": task.native if not workload.is_here else "",
        "state": phase,
        "pools": [pool.name for pool in group.pools],
        "restarts": max(0, task.attempt - 1) + task.requeues,
        "heartbeat_at": task.last_seen if task.phase in LIVE else 0.0,
        "keep_until": group.replace.until,
        "progress": _progress(task),
        "cause": task.cause.value,
    })  # fmt: skip


def _progress(task: Task) -> dict[str, float]:
    """The script's numbers, `step` and `total` first."""
    own = {name: number for name, number in task.metrics.items() if not name.startswith(("progress_", GPU))}
    known = {name: task.metrics[f"progress_{name}"] for name in ("step", "total") if f"progress_{name}" in task.metrics}
    return {**known, **own}


def line_view(line: StoryLine) -> LineView:
    """The view of one line."""
    return LineView(**alike(LineView, line))


def allocation_view(item: Allocation) -> AllocationView:
    """The view of one allocation."""
    known = alike(AllocationView, item) | {"cause": item.cause.value}
    return AllocationView(task=f"{item.key.group}/{item.key.index}", **known)
