"""The nouns of a rehearsal: the job, the cluster, what strikes it, and where the time went."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from remuda.plan.model import Watch

if TYPE_CHECKING:
    from remuda.plan.model import Workload

HOUR_S = 3600.0
DAY_S = 86400.0


class Hazard(StrEnum):
    """What interrupts a job."""

    CRASH = "crash"
    """The node is gone; the scheduler notices after a while."""
    GPU = "gpu"
    """A GPU fault that the program's output names; the program ends."""
    HANG = "hang"
    """A GPU fault that nothing names; all ranks stand still."""
    NETWORK = "network"
    """A passing fault between nodes; the program ends, no node is to blame."""
    MAINTENANCE = "maintenance"
    """The site takes the node out, with a warning."""
    SOFTWARE = "software"
    """A bug of the program or of what it uses; it goes well from the last checkpoint on."""
    PREEMPTION = "preemption"
    """The scheduler wants the nodes for somebody else, with a warning."""
    TIME_LIMIT = "time-limit"
    """The job's own; comes by itself and is in no trace."""


BREAKS_NODE = frozenset({Hazard.CRASH, Hazard.GPU, Hazard.HANG, Hazard.MAINTENANCE})
"""Kinds after which the node may need repair."""
WARNED = frozenset({Hazard.MAINTENANCE, Hazard.PREEMPTION, Hazard.TIME_LIMIT})
"""Kinds before which the program is told and saves its state."""


@dataclass(frozen=True, slots=True, order=True)
class Strike:
    """One interruption that comes, whatever the job does."""

    at: float
    """Seconds since the begin."""
    node: int
    """Index of the node; -1: the job itself, wherever it runs."""
    kind: Hazard
    repair_s: float = 0.0
    """How long the node is away. 0: it works again at once."""
    notice_s: float = 0.0
    """After a GPU fault: until the site's own checks take the node out. Until then it looks well and is not."""
    named: bool = True
    """Whether the end of a job on several nodes tells that it was this one."""


@dataclass(frozen=True, slots=True)
class Job:
    """The run that is rehearsed, as far as it decides how its time is spent. Durations in seconds."""

    nodes: int
    gpus: int
    """Of each node."""
    checkpoint_every: float
    """Work between two checkpoints."""
    checkpoint_cost: float
    """Standstill for each."""
    restart_cost: float
    """From the start of an attempt until it goes on where it was."""
    time_limit: float
    """Of one attempt; 0: none."""
    warn_before: float
    """How long before its limit, or a preemption, the program is told; 0: it is not."""
    progress_stall: float
    """Standstill for so long is taken for a hang; 0: never."""
    heartbeat_s: float
    """Silence of the program beside the script that is taken for its end; 0: never."""
    gpu_check: bool
    kill_grace: float


def job_of(
    workload: Workload, *, checkpoint_every: float, checkpoint_cost: float = 0.0, restart_cost: float = 0.0
) -> Job:
    """What a planned run of one group says, and what only rehearsals ask for."""
    group = workload.groups[0]
    watch = group.watch or Watch(heartbeat_grace_s=0.0, gpu_check=False)
    return Job(
        nodes=group.resources.nodes,
        gpus=group.resources.gpus,
        checkpoint_every=checkpoint_every,
        checkpoint_cost=checkpoint_cost,
        restart_cost=restart_cost,
        time_limit=group.resources.time_limit_s,
        warn_before=watch.warn_before_s,
        progress_stall=watch.progress_stall_s,
        heartbeat_s=watch.heartbeat_interval_s + watch.heartbeat_grace_s if watch.heartbeat_grace_s else 0.0,
        gpu_check=watch.gpu_check,
        kill_grace=group.kill_grace_s,
    )


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What no trace and no document says. Each is printed with the result, and each can be changed."""

    people_h: float = 4.0
    """Mean hours until a person notices that a job has ended, or can never start, and types it again."""
    slurmd_timeout_s: float = 300.0
    """Until the scheduler takes a silent node for dead (Slurm's SlurmdTimeout)."""
    requeue_delay_s: float = 120.0
    """Before a requeued job may start (Slurm waits for credentials to expire)."""
    nccl_timeout_s: float = 1800.0
    """After which a program whose ranks wait for each other ends by itself."""
    exit_s: float = 30.0
    """From a fault that is noticed at once until the program has ended on all nodes."""
    poll_s: float = 15.0
    """Between two looks at the scheduler."""
    queue_s: float = 60.0
    """Mean wait in the queue when enough nodes are free (exponential)."""
    notice_s: float = 300.0
    """Until the site's checks find a broken GPU and take its node out."""
    sticky_share: float = 0.5
    """GPU faults that stay until the node is repaired; the others are gone with the program."""
    hang_share: float = 0.1
    """GPU faults that end nothing and let all ranks wait."""
    repair_h: float = 24.0
    """Mean hours of a repair (exponential)."""
    maintenance_h: float = 4.0
    """Mean hours of a planned or unplanned maintenance of one node (exponential)."""
    named_share: float = 0.0
    """Ends of a job on several nodes that tell which of them was to blame. Otherwise its first node is blamed, because
    that is the one that the scheduler's answer and the program beside the script know."""
    preemptions_per_day: float = 0.0
    """Of the job, while it runs."""
    lemon_share: float = 0.0
    """Nodes that fail again and again, repaired or not."""
    lemon_factor: float = 1.0
    """How many times more often they fail than the others; the rate of the whole cluster stays."""


@dataclass(frozen=True, slots=True)
class InterruptionRates:
    """How often what interrupts a job, as published."""

    name: str
    source: str
    per_node_day: dict[Hazard, float]
    """Mean over all nodes, in interruptions per node and day of a job that uses them."""
    lemon_share: float = 0.0
    lemon_factor: float = 1.0
    published: float = 0.0
    """Effective training time that is published with it, 0 if none."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a rehearsal needs; the same for each policy."""

    workload: Workload
    """The run as it is planned for the real supervisor; one group of one task."""
    job: Job
    nodes: int
    """Of the cluster; those that the job does not use are spare."""
    days: float
    assumptions: Assumptions = Assumptions()

    @property
    def wall_s(self) -> float:
        """How long is rehearsed."""
        return self.days * DAY_S


class Hours(StrEnum):
    """Where the wall time went."""

    USEFUL = "useful"
    """Work that was kept."""
    CHECKPOINT = "checkpoint"
    """Standstill while state was saved."""
    LOST = "lost work"
    """Done, and done again after a restart."""
    DETECTION = "detection"
    """From the fault until somebody or something knew, and the job had ended."""
    BACKOFF = "backoff"
    """Until the next submission."""
    QUEUE = "queue"
    """From the submission to the start, waiting for repaired nodes included."""
    STARTUP = "start-up"
    PEOPLE = "people"
    """Waiting for a person."""


@dataclass(slots=True)
class PolicyOutcome:
    """What one policy made of one scenario. Spans follow each other without a gap from 0 to the end."""

    policy: str
    wall_s: float
    spent: dict[Hours, float] = field(default_factory=lambda: dict.fromkeys(Hours, 0.0))
    """Seconds."""
    restarts: Counter[str] = field(default_factory=Counter)
    """Interruptions by kind."""
    attempts: int = 0
    given_up: int = 0
    """How often the policy gave the run up and a person had to begin it again."""
    repeat_offences: int = 0
    """Interruptions by a node that had interrupted the run before."""
    excluded_peak: int = 0
    points: list[tuple[float, float]] = field(default_factory=lambda: [(0.0, 0.0)])
    """Progress: (seconds since the begin, useful seconds so far)."""
    until: float = 0.0
    """End of the last span."""

    def spend(self, what: Hours, until: float) -> None:
        """The time from the end of the last span to `until` was that; cut at the end of the rehearsal.

        Raises:
            ValueError: backwards.
        """
        until = min(until, self.wall_s)
        if until < self.until:
            raise ValueError(f"{what} ends at {until}, before {self.until}")
        self.spent[what] += until - self.until
        self.until = until

    def work(self, job: Job, until: float, *, saved: bool) -> None:
        """The same for a stretch of work that ended at `until`; `saved`: with its state written just before."""
        begin, until = self.until, min(until, self.wall_s)
        length = until - begin
        cycle = job.checkpoint_every + job.checkpoint_cost
        # A hair more, so that a stretch of exactly n cycles is not taken for n - 1.
        done = math.floor(length / cycle + 1e-9)
        useful, standing = (done * job.checkpoint_every, done * job.checkpoint_cost) if done else (0.0, 0.0)
        rest = max(0.0, length - useful - standing)
        if saved:
            kept = max(0.0, min(rest, job.checkpoint_every))
            useful, standing, rest = useful + kept, standing + rest - kept, 0.0
        self.points.append((begin, self.spent[Hours.USEFUL]))
        self.spent[Hours.USEFUL] += useful
        self.spent[Hours.CHECKPOINT] += standing
        self.spent[Hours.LOST] += rest
        self.points += [(max(begin, until - rest), self.spent[Hours.USEFUL]), (until, self.spent[Hours.USEFUL])]
        self.until = until

    @property
    def effective(self) -> float:
        """Share of the wall time in which work was done that was kept."""
        return self.spent[Hours.USEFUL] / self.wall_s if self.wall_s else 0.0
