"""One dataclass per table, with plain types; a field is named as its column.

Times are seconds since the epoch, 0 for never. JSON documents are text here: what they mean is the caller's business.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """What a user asked to keep running, and whether it shall run now. Primary key: `name`."""

    name: str
    uid: str
    kind: str
    backend: str
    plan: str
    """JSON of `plan.Workload`."""
    spec: str = ""
    """As the user wrote it, resolved; for `describe`."""
    running: bool = True
    """The intent: false means take it down."""
    generation: int = 1
    """Rises with every change of intent."""
    counts: str = "{}"
    """JSON object: count by group, where it differs from the plan."""
    created_at: float = 0.0
    changed_at: float = 0.0
    note: str = ""
    phase: str = ""
    """Cached summary of its tasks, for lists."""
    paused: bool = False
    """Leave alone what runs, begin nothing new."""
    restart_mark: int = 0
    """Rises when what runs shall be begun again, too."""
    ends_at: float = 0.0
    """When its lifetime is over, 0 for never."""
    used_at: float = 0.0
    """When its endpoint was last known to be used; it moves on while nobody could have used it."""
    usage: str = ""
    """What the counters said then, so that a later host knows whether it was used since."""
    group_marks: str = "{}"
    """JSON object: as `restart_mark`, by group that was asked for alone."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One task as last known. Primary key: `workload`, `group_name`, `idx`. Fields as `supervise.model.Task`."""

    workload: str
    group_name: str
    idx: int
    backend: str
    phase: str
    attempt: int = 0
    since: float = 0.0
    token: str = ""
    native: str = ""
    failures: int = 0
    not_before: float = 0.0
    ready_since: float = 0.0
    kill_at: float = 0.0
    cause: str = ""
    reason: str = ""
    node: str = ""
    url: str = ""
    http_status: int = 0
    pid: int = 0
    restarts: int = 0
    exit_code: int | None = None
    seq: int = -1
    last_seen: float = 0.0
    metrics: str = "{}"
    """JSON object: number by name."""
    generation: int = 0
    submitted_at: float = 0.0
    started_at: float = 0.0
    released: bool = False
    never: str = ""
    limit_at: float = 0.0
    requeues: int = 0
    ending: str = ""
    pool: str = ""
    pool_refusals: int = 0
    pool_failures: int = 0
    pool_nevers: int = 0
    pool_left_at: float = 0.0
    quick_failures: int = 0
    restart_mark: int = 0
    yields_at: float = 0.0
    loaded_at: float = 0.0
    progress: float = 0.0
    avoids: int = 0
    may_avoid: int = 2
    ports: str = "{}"
    """JSON object: number by name."""


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """One allocation of a task, kept after its end. Primary key: `token`."""

    token: str
    workload: str
    group_name: str
    idx: int
    attempt: int
    backend: str
    native: str = ""
    node: str = ""
    submitted_at: float = 0.0
    started_at: float = 0.0
    ended_at: float = 0.0
    state: str = ""
    exit_code: int | None = None
    signal: int = 0
    cause: str = ""
    reason: str = ""
    evidence: str = ""
    """Last log lines or the like: why the cause is what it is."""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a workload's story: what happened or was decided, with its reason. Never changed."""

    at: float
    workload: str
    kind: str = ""
    """`move`, `intent`, `backend`, `endpoint` or `bug`."""
    reason: str = ""
    task: str = ""
    """`group/index`, empty for the workload as a whole."""
    attempt: int = 0
    phase: str = ""
    data: str = "{}"
    """JSON object."""
    id: int = 0
    """Given by the database, rising; ignored when written."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation that speaks against a node or one of its devices, until it expires."""

    node: str
    at: float
    kind: str
    weight: float = 1.0
    cluster: str = ""
    """Name of the backend whose node it is."""
    device: str = ""
    workload: str = ""
    token: str = ""
    detail: str = ""
    expires_at: float = 0.0
    boot: str = ""
    """Id of the node's boot in which it was seen; empty where that is not known."""
    id: int = field(default=0, compare=False)
    """Given by the database; ignored when written."""


@dataclass(slots=True)  # not frozen: thousands are made for one list
class JobRow:
    """One batch job, script or benchmark, of whoever runs it. Primary key: `id`. New fields go to the end."""

    id: str
    what: str = ""
    """Job class, script, or what is measured."""
    state: str = ""
    """WAITING, RUNNING, DONE, FAILED, STOPPED, or LOST: its process was killed; the same command resumes."""
    done: int | None = None
    """Rows; None where it has none, or says nothing yet."""
    failed: int | None = None
    """Rows with an error."""
    total: int | None = None
    rate: float = 0.0
    """Rows per second, now or over all of it."""
    created_at: float = 0.0
    output: str = ""
    reason: str = ""
    kind: str = "batch"
    """`batch`, `script` or `benchmark`."""
    detached: bool = False
    swarm: str = ""
    input: str = ""
    backend: str = ""
    """Where its driver runs: `local`, `slurm`; empty for jobs of the foreground."""
    native: str = ""
    """The scheduler's own name of the driver: its job id."""
    node: str = ""
    attempt: int = 0
    pid: int = 0
    """Of the process that asks the rows."""
    told: str = "{}"
    """JSON object: how far it said last that it is."""
    outcome: str = "{}"
    """JSON object: its last word."""
    started_at: float = 0.0
    heartbeat_at: float = 0.0
    ended_at: float = 0.0

    @property
    def progress(self) -> dict[str, Any]:
        """What it said last of how far it is."""
        return dict(json.loads(self.told))

    @property
    def summary(self) -> dict[str, Any]:
        """What it came to; empty before its end."""
        return dict(json.loads(self.outcome).get("summary") or {})

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        known = asdict(self) | {"progress": self.progress, "summary": self.summary}
        known |= {name: str(json.loads(self.outcome).get(name, "")) for name in ("error", "hint")}
        return {name: value for name, value in known.items() if name not in ("told", "outcome")}


WHOLE = tuple(item.name for item in fields(JobRow))
BRIEF = WHOLE[:10]
"""Fields of a job that lists show."""


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """Many workloads that the host brings up, at most `bound` at once. Primary key: `name`."""

    name: str
    kind: str = ""
    document: str = ""
    """File that it was read from."""
    bound: int = 1


@dataclass(frozen=True, slots=True)
class CampaignItemRow:
    """One workload of a campaign, and what has become of it. Primary key: `campaign`, `idx`."""

    campaign: str
    idx: int
    name: str = ""
    """Of the workload; recorded before that is created."""
    address: str = ""
    """Of all that was asked: another one is another question."""
    plan: str = ""
    """JSON of what is to be created."""
    state: str = "waiting"
    outcome: str = ""
    reason: str = ""
    uid: str = ""
    """Of what runs or ran; empty before it is created."""
    is_ours: bool = True
    """Created by this campaign; others are not taken down."""
    points: str = ""
    """What comes of it: the id of its job; empty where it has none."""
    keeps: bool = False
    """It stays up when its job has ended."""
    queue_timeout_s: float = 0.0
    """How long it may wait for its first start; 0: for ever."""
    wait_s: float = 600.0
    """From its first start to the endpoint's answer."""
    since: float = 0.0
    """When the state began."""
    started_at: float = 0.0
    """When something of it was first seen running; 0 before."""


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """Who may write. There is one row, `id` 1, from the first migration on."""

    id: int
    owner: str
    """For people: `pid N on NODE`; empty while nobody holds it."""
    node: str
    pid: int
    start: str
    boot: str
    fence: int
    """Rises with every change of hands, never falls."""
    expires_at: float
    renewed_at: float
