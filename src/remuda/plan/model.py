"""The workload: groups of tasks that some backend runs and the supervisor keeps running.

Everything a backend or the supervisor needs is in here, resolved; nothing looks back at the spec. It is stored as JSON
in the database, so fields are added with defaults and never change meaning.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from remuda.plan.kinds import Kind
from remuda.specs.places import in_images, is_here
from remuda.wire.child import (
    ADDRESS,
    CONTAINER_MARK,
    FILES_MARK,
    HOST_MARK,
    INDEX_MARK,
    MEETING_PORT_MARK,
    NODE_MARK,
    PORT_MARK,
    HealthProbe,
    RestartRule,
    address_mark,
    named_mark,
)
from remuda.wire.spread import NodeSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ADDRESS", "BOOTSTRAP", "CONTAINER_MARK", "FILES_MARK", "HOST_MARK", "INDEX_MARK", "MEETING_PORT_MARK",
    "NODE_MARK", "PORT_MARK", "Command", "Endpoint", "Failover", "Front", "Group", "HealthProbe", "Kind", "Listen",
    "NodePolicy", "NodeSpan", "Pack", "Pool", "Replace", "Resources", "RestartRule", "Role", "Seat", "Secret",
    "Succession", "Watch", "Workload", "address_mark", "named_mark",
]  # fmt: skip


BOOTSTRAP: Final = "bootstrap"
"""Name of the port at which a prefill server hands its cache over."""
PortName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")]
PortNumber = Annotated[int, Field(ge=0, lt=65536)]
FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$")]


class Frozen(BaseModel):
    """Base of all plan documents: immutable, unknown fields refused."""

    model_config = ConfigDict(defer_build=True, frozen=True, extra="forbid")


class Role(StrEnum):
    """What the tasks of a group are for."""

    REPLICA = "replica"
    ROUTER = "router"
    DRIVER = "driver"
    SCRIPT = "script"
    RELAY = "relay"
    PREFILL = "prefill"
    DECODE = "decode"
    RANK = "rank"
    RECORDER = "recorder"
    SERVICE = "service"
    GATE = "gate"
    FRONTEND = "frontend"

    @property
    def serves(self) -> bool:
        """The model runs in it, and a router sends it requests, or its part of them."""
        return self in (Role.REPLICA, Role.PREFILL, Role.DECODE)

    @property
    def answers(self) -> bool:
        """It answers a whole request, so it can be asked without a router."""
        return self is Role.REPLICA

    @property
    def routes(self) -> bool:
        """It passes requests on to others."""
        return self in (Role.ROUTER, Role.RELAY, Role.FRONTEND)

    @property
    def stays(self) -> bool:
        """Others of its workload are told its address, so it comes back there; no client asks it."""
        return self is Role.SERVICE

    @property
    def works(self) -> bool:
        """It does what the workload is for: it is what a user counts, scales and restarts."""
        return not self.routes and self is not Role.GATE


class Secret(Frozen):
    """Where a secret is, never its value."""

    file: str = ""
    env: str = ""
    secret: str = ""
    """`NAME/KEY` of a Secret of Kubernetes, which nobody here reads."""


class Command(Frozen):
    """A program to run, exactly as it is started.

    In `argv` and `env` values `PORT_MARK` and `HOST_MARK` stand for the port and address that are chosen on the node,
    `named_mark(NAME)` for further ports, in `env` values `INDEX_MARK` for the task's number, `MEETING_PORT_MARK` for
    the port where tasks of one attempt meet.
    `address_mark(NAME)` stands for HOST:PORT of a service, wherever in the group.
    """

    argv: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    secret_env: dict[str, Secret] = Field(default_factory=dict)
    cwd: str = ""
    files: dict[FileName, str] = Field(default_factory=dict)
    """Name -> text of what it reads when it starts, with the same marks; they lie where `FILES_MARK` says."""
    needs: dict[str, str] = Field(default_factory=dict)
    """Absolute paths that must be there on the node -> what each is: without them nothing is started."""
    outside: bool = False
    """The server is started by the scheduler, so it is no descendant of the node program."""
    image: str = ""
    """Container image that it runs in, a file or a registry's; its backend starts it there. Empty: none."""
    mounts: tuple[str, ...] = ()
    """Absolute paths that are in the image what they are outside, or `OUTSIDE:INSIDE`."""
    step_args: tuple[str, ...] = ()
    """More words for the scheduler's own step that starts the image, where one does."""
    ranks: int = 0
    """Ranks of an MPI program, which one step of the scheduler's starts over all nodes; the first serves. 0: none."""
    workdir: str = ""
    """Where it starts in the image; empty: where the image says."""


class Listen(Frozen):
    """The port that a task serves on."""

    port: int = 0
    """Preferred; 0 lets the node choose."""
    fixed: bool = False
    """`port` or failure. Otherwise the first free one from `port` on."""
    public: bool = False
    """Listen on all addresses of the node instead of loopback."""


class Replace(Frozen):
    """New allocations by the supervisor, after one has ended."""

    policy: Literal["always", "on-failure", "never"] = "always"
    """`always`: the task shall run for ever. `on-failure`: ending with code 0 is its goal."""
    max_failures: int = 5
    """Consecutive failures before the task is given up; a healthy stretch sets the count back."""
    backoff_initial_s: float = 5.0
    backoff_max_s: float = 300.0
    heal_after_s: float = 600.0
    quick_s: float = 0.0
    """The crash-loop brake: an allocation that failed by its own fault within so long of its start failed quickly.
    0 switches the brake off."""
    quick_limit: int = 3
    """So many quick failures in a row, and the task is given up, whatever `max_failures` says."""
    until: float = 0.0
    """Seconds since the epoch after which nothing is begun again and what runs is asked to end. 0: no such time."""
    keep_s: float = 0.0
    """Of a plan: how long after it was accepted that is."""
    user_cancel: Literal["replace", "stop"] = "replace"
    """`stop`: an allocation that a person cancelled with the scheduler's own tools is the end of the task."""

    @property
    def has_goal(self) -> bool:
        """Whether ending with code 0 is what the task is for; a server has no such goal."""
        return self.policy != "always"

    def begun(self, now: float) -> Replace:
        """The same for what was accepted at `now`, seconds since the epoch."""
        return self.model_copy(update={"until": now + self.keep_s if self.keep_s else 0.0, "keep_s": 0.0})


class Pool(Frozen):
    """One place of several where a task may run: on Slurm, a partition with what it needs."""

    name: str
    """Unique in its group; on Slurm the partition's name."""
    place: dict[str, str] = Field(default_factory=dict)
    """What differs from the workload's `place` there, e.g. `{"partition": "a100", "qos": "low"}`."""


class Failover(Frozen):
    """How a task moves between the pools of its group, the first being the preferred one."""

    retry_per_pool: int = 2
    """Failures in one pool before the next is tried; refused submissions and failed allocations count apart."""
    reset_to_preferred_s: float = 3600.0
    """After so long away, the next allocation is asked of the preferred pool again."""
    hedge: bool = False
    """Ask all pools at once; the first that can start it has it."""


class NodePolicy(Frozen):
    """What evidence against nodes does to the tasks of a group."""

    exclude: bool = True
    """Keep away from nodes that the ledger speaks against."""
    ttl_s: float = 43200.0
    """How long evidence of these tasks against a node lasts."""
    limit: int = 64
    """Most nodes that are excluded at once."""


class Watch(Frozen):
    """What the node program does for a script beyond starting it. Fields as `remuda.wire.child.RunWatch`."""

    heartbeat_interval_s: float = 30.0
    heartbeat_grace_s: float = 90.0
    """An allocation that runs and gave no sign of life for an interval and this is taken for hung. 0: never."""
    progress_stall_s: float = 0.0
    """No progress (the progress file, or where there is none the output) for so long: hung. 0: never."""
    gpu_check: bool = True
    """Look before the start whether the GPUs that were given are visible and work."""
    scan_log: bool = True
    """Look for lines that tell of faulty hardware."""
    warn_signal: str = "TERM"
    """Sent to the script when its time limit is near."""
    warn_before_s: float = 90.0
    """How long before. 0: not at all."""


class Succession(Frozen):
    """How the tasks of a group outlive the time limit of their allocations, see `Workload.lifetime_s`."""

    lead_s: float = 0.0
    """A successor is asked for so long before the time limit ends the one before: queue and start must fit."""
    drain_s: float = 600.0
    """Longest time between a successor that is ready and the end of the one before, which answers what it has begun."""
    follows_queue: bool = False
    """Ask earlier than `lead_s` where the queue was seen to be long, see `supervise.groups.handover.lead_s`."""


class Resources(Frozen):
    """What one task needs."""

    gpus: int = 0
    """On each node."""
    gpu_type: str = ""
    """As the scheduler names it; empty: any."""
    cpus: int = 0
    threads_per_core: int = 0
    """Hardware threads to use of each core; 0: the scheduler's own."""
    mem_bytes: int = 0
    """On each node; 0: what the scheduler gives."""
    mem_field: str = ""
    """What sets `mem_bytes`: a field of the document or an option; empty: nothing that has a name."""
    whole_nodes: bool = False
    """All CPUs and all memory of its nodes, which nobody else uses meanwhile."""
    nodes: int = 1
    time_limit_s: float = 0.0


class Group(Frozen):
    """The tasks of one role."""

    name: str
    role: Role
    count: int
    command: Command
    resources: Resources = Resources()
    listen: Listen | None = None
    ports: dict[PortName, PortNumber] = Field(default_factory=dict)
    """Of the ports that its command names, those that a document fixes: taken on the node, or it fails there."""
    probe: HealthProbe | None = None
    """None: a task is ready as soon as it runs."""
    restart: RestartRule = RestartRule()
    replace: Replace = Replace()
    kill_grace_s: float = 10.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Of the node program."""
    metrics_path: str = ""
    pools: tuple[Pool, ...] = ()
    """Where its tasks may run, best first; empty: where the workload's `place` says."""
    failover: Failover = Failover()
    nodes: NodePolicy = NodePolicy()
    watch: Watch | None = None
    """None: no heartbeat, GPU check and log scan; for groups with a probe."""
    backend: str = ""
    """Type of the backend of its tasks, where it is another than the workload's."""
    scan_log: bool = False
    """For groups with a probe: lines of output that tell of broken hardware speak against the node."""
    fatal_lines: tuple[str, ...] = ()
    """With `scan_log`: regular expressions of lines after which a task that is not ready yet never will be."""
    silence_s: float = 0.0
    """A task of which nothing is heard for so long, while others of its backend are, is begun again elsewhere. 0: it is
    not listened for."""
    together: bool = False
    """Its tasks share one fate, with those of all groups that say so: they begin, fail and begin again together."""
    spread: NodeSpan | None = None
    """None: a task is on one node, or starts its own processes on the others."""
    succession: Succession | None = None
    """None: an allocation that its time limit ends is replaced after its end."""
    record_interval_s: float = 0.0
    """Its GPUs are recorded beside each task, so long between two samples. 0: they are not."""
    indices: tuple[int, ...] = ()
    """Of an array: those that its user named, rising, one for each task. Empty: those from 0 on."""
    at_most: int = 0
    """So many of its tasks have begun and not ended at any time. 0: all of them may."""
    quorum: int = 0
    """Of a gang: with so many ranks it goes on, degraded, while others come back. 0: with all of them."""
    assemble_s: float = 0.0
    """Of tasks with a quorum that a scheduler starts one by one: when too many are in its queue for so long while some
    run, all give back what they hold. 0: never."""
    after: tuple[str, ...] = ()
    """Groups that must be ready before a task of this one has its first attempt, and that end after it. Where the
    endpoint is `ready` with the first, one task of a group that serves is enough."""

    def slots(self, count: int) -> Sequence[int]:
        """Indices of its members, where it has `count`."""
        return self.indices or range(count)

    def at_once(self, count: int) -> int:
        """How many of its tasks may be there at a time, where it has `count`."""
        return min(count, self.at_most or count)

    def place_of(self, index: int) -> int:
        """Number of the place that a task takes, where places are no more than `at_most`."""
        position = self.indices.index(index) if self.indices else index
        return position % self.at_most if self.at_most else position


class Endpoint(Frozen):
    """The stable address of a swarm or deployment."""

    host: str = "127.0.0.1"
    """Empty: the node that the router (or the only replica) runs on, at the port that it found free there."""
    port: int = 0
    """With a `host`, fixed when the workload is created: routers, replicas and hosts come and go behind it."""
    router: str = ""
    """Name of the router's group; empty: the address is that of the only replica."""
    model: str = ""
    """Model name that requests carry."""
    ready: Literal["first", "all"] = "first"
    """The endpoint is announced when the first, or when all replicas answer."""
    wait_s: float = 600.0
    """How long `up` waits for that."""
    api_key: Secret | None = None
    """Bearer token that the endpoint asks for."""
    relay: str = ""
    """Name of the group, on the host's machine, that keeps the address while routers come and go; empty: none."""
    behind: str = ""
    """Name of the group that the router sends to, where that is none that serves: frontends that find their workers."""
    gate: str = ""
    """Name of the group whose task looks whether it serves indeed, and ends well before it is announced."""


class Front(Frozen):
    """What stands behind an endpoint, for everything that talks to it."""

    router: str = "smg"
    """Router that membership is told to: `smg`, `nginx`, `dynamo`; `none` where there is none."""
    engine: str = ""
    """Engine of the servers."""
    model: str = ""
    """Model as the document names it."""
    frontend: str = ""
    """Frontend of a deployment, as the document names it."""
    discovery: str = ""
    """Folder by which the parts of a deployment find each other; empty: another way."""
    is_here: bool = False
    """Router and drivers are processes of the host's machine, which its servers are not."""


class Seat(Frozen):
    """Where one task of a pack runs."""

    group: str
    index: int
    node: int
    """Ordinal of its node in the job; `place` is its number there, `gpu` the first of its GPUs there."""
    place: int
    gpu: int = 0


class Pack(Frozen):
    """Tasks that share one allocation over one or more nodes: all of them begin, or none does."""

    nodes: int
    seats: tuple[Seat, ...]
    tasks: int = 1
    """Of Slurm, on each node: so many times what the cluster gives to one by default."""
    per_node: int = 0
    """Of older plans; not used."""


class Workload(Frozen):
    """What a user asked to keep running."""

    name: str
    kind: Kind
    uid: str
    """Random, new with every creation: tokens of an earlier workload of the same name never match."""
    backend: str
    """Type of the backend: `local`, `slurm`, …"""
    place: dict[str, object] = Field(default_factory=dict)
    """The backend's own settings (partition, account, …), as its spec has them."""
    groups: tuple[Group, ...]
    endpoint: Endpoint | None = None
    run_dir: str
    """Absolute directory for everything its tasks write."""
    spec_file: str = ""
    """Where the user wrote it, for messages."""
    labels: dict[str, str] = Field(default_factory=dict)
    front: Front | None = None
    """None: it has no endpoint."""
    folder: str = ""
    """Absolute directory that says what was asked and what was started; empty: none."""
    files: dict[str, str] = Field(default_factory=dict)
    """Absolute path -> text of what the host writes when it accepts it, before the first attempt; the record does not
    keep it. A path that ends with `/` is a folder."""
    digest: str = ""
    """Of what the user said: two workloads with equal digests ask for the same, however it is rendered."""
    lifetime_s: float = 0.0
    """Successors follow each other for so long after it was brought up; then it is taken down. 0: no successors."""
    idle_timeout_s: float = 0.0
    """Time without a request to its endpoint after which it is taken down. 0: never."""
    ends_with: str | None = None
    """Name of the group whose end, well or not, is the end of the workload; it is never replaced."""
    pack: Pack | None = None
    """Its tasks, or those of some of its groups, are one allocation; None: each has its own."""

    @model_validator(mode="before")
    @classmethod
    def _lift(cls, data: Any) -> Any:
        """Facts that records of earlier versions have among the labels."""
        labels = data.get("labels") if isinstance(data, dict) else None
        if not labels or data.get("front") is not None or data.get("endpoint") is None:
            return data
        named = {name: labels[name] for name in Front.model_fields if name in labels}
        return {**data, "front": named, "folder": labels.get("directory", "")}

    def pack_of(self, group: str) -> Pack | None:
        """The pack that the tasks of a group are in; None: each has an allocation of its own."""
        return self.pack if self.pack is not None and any(seat.group == group for seat in self.pack.seats) else None

    @property
    def facts(self) -> dict[str, str]:
        """The labels, and of the front and the folder what is known, for views."""
        front = self.front.model_dump(exclude_defaults=True, exclude={"is_here"}) if self.front else {}
        router = {"router": self.front.router} if self.front is not None else {}
        return {**self.labels, **front, **router, **({"directory": self.folder} if self.folder else {})}

    @property
    def is_array(self) -> bool:
        """Whether its tasks do the same for different indices, and none of them is missed once it is done."""
        return bool(self.groups[0].indices)

    @property
    def has_parts(self) -> bool:
        """Whether what runs of it goes on though other tasks of it have ended, well or not."""
        return self.is_array or self.kind.traits.has_parts

    @property
    def is_its_task(self) -> bool:
        """Whether it is shown to be what its only task is."""
        return self.kind.traits.is_its_task and not self.is_array

    @property
    def ends_by_itself(self) -> bool:
        """Whether it has an end of its own: that of one of its groups, or of all that it does."""
        return self.ends_with is not None or self.kind.traits.has_one_task or self.kind.traits.needs_all

    @property
    def is_here(self) -> bool:
        """Whether its tasks are processes of the host's machine."""
        return is_here(self.backend)

    @property
    def is_asked_here(self) -> bool:
        """Whether what asks its servers, router and drivers, is on the host's machine, wherever they are."""
        return self.is_here or in_images(self.backend) or (self.front is not None and self.front.is_here)

    def group(self, name: str) -> Group:
        """The group of that name.

        Raises:
            KeyError: there is none.
        """
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)
