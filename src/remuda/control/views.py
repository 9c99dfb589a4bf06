"""What faces show: the same data for tables, JSON and the API. The OpenAPI document is made from these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from remuda.supervise.summary import current, summarise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.backends.base import TaskKey
    from remuda.supervise.model import Allocation, Line, Task, Want


class View(BaseModel):
    """Base of all views."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


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
    """`running`, `waiting` requests, `prompt_tokens`, `generated_tokens`; empty where the task does not tell."""


class RouterView(View):
    """What the router tells of itself."""

    url: str
    members: list[str]
    """Replicas that it sends to."""
    stats: dict[str, float]


class WorkloadView(View):
    """One workload."""

    name: str
    uid: str
    """New with every creation of the name."""
    kind: str
    backend: str
    phase: str
    """PENDING, STARTING, RUNNING, DEGRADED, FAILED, DONE, STOPPING or DOWN."""
    ready: int
    wanted: int
    reason: str
    endpoint: str
    """`http://host:port`, empty where there is none."""
    model: str
    api_key_file: str
    """Where the key is that the endpoint asks for; empty when it asks for none."""
    created_at: float
    run_dir: str
    unreachable: str
    """What the backend did not answer; empty when it does."""
    labels: dict[str, str]
    tasks: list[TaskView]
    router: RouterView | None = None


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
    allocations: list[AllocationView]


class HostView(View):
    """The host process."""

    pid: int
    node: str
    version: str
    home: str
    database: str
    started_at: float
    fence: int
    """Number of its lease: it rises with every host that takes over."""
    workloads: int
    live_tasks: int
    reports: dict[str, int]


def workload_view(want: Want, tasks: Mapping[TaskKey, Task], *, created_at: float, unreachable: str) -> WorkloadView:
    """The view of one workload."""
    summary = summarise(want, tasks)
    workload = want.workload
    endpoint = workload.endpoint
    return WorkloadView(
        name=workload.name,
        uid=workload.uid,
        kind=workload.kind.value,
        backend=workload.backend,
        phase=summary.phase,
        ready=summary.ready,
        wanted=summary.wanted,
        reason=summary.reason,
        endpoint=f"http://{endpoint.host}:{endpoint.port}" if endpoint else "",
        model=endpoint.model if endpoint else "",
        api_key_file=endpoint.api_key.file if endpoint and endpoint.api_key else "",
        created_at=created_at,
        run_dir=workload.run_dir,
        unreachable=unreachable,
        labels=workload.labels,
        tasks=[task_view(want, tasks[key]) for key in sorted(current(want, tasks))],
    )


def task_view(want: Want, task: Task) -> TaskView:
    """The view of one task."""
    return TaskView(
        task=f"{task.key.group}/{task.key.index}",
        role=want.workload.group(task.key.group).role.value,
        phase=task.phase.value,
        attempt=task.attempt,
        since=task.since,
        reason=task.reason,
        node=task.node,
        url=task.url,
        http_status=task.http_status,
        pid=task.pid,
        restarts=task.restarts,
        failures=task.failures,
        exit_code=task.exit_code,
        cause=task.cause.value,
        last_seen=task.last_seen,
        not_before=task.not_before,
        metrics=dict(task.metrics),
    )


def line_view(line: Line) -> LineView:
    """The view of one line."""
    return LineView(
        id=line.id, at=line.at, kind=line.kind, task=line.task, attempt=line.attempt, phase=line.phase,
        reason=line.reason,
    )  # fmt: skip


def allocation_view(item: Allocation) -> AllocationView:
    """The view of one allocation."""
    return AllocationView(
        token=item.token,
        task=f"{item.key.group}/{item.key.index}",
        attempt=item.attempt,
        node=item.node,
        submitted_at=item.submitted_at,
        ended_at=item.ended_at,
        exit_code=item.exit_code,
        signal=item.signal,
        cause=item.cause.value,
        reason=item.reason,
        evidence=item.evidence,
    )
