"""Our own policy: the real `decide`, facts, causes and ledger, fed with what an invented cluster would tell them."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from remuda.backends.base import CHILD_ENDED, Ending, Life, Node, Observed, TaskKey
from remuda.rehearsal.model import HOUR_S, Hazard, Hours, PolicyOutcome
from remuda.rehearsal.rules import attempted, look_at
from remuda.rehearsal.world import World, end_of
from remuda.supervise import decide as deciding
from remuda.supervise import facts
from remuda.supervise.failures import ledger
from remuda.supervise.failures.ends import judge
from remuda.supervise.model import FINAL, RUNNING, Phase, Task, Want
from remuda.wire import exit as node_exit
from remuda.wire.fault import NODE, TRANSIENT, Fault
from remuda.wire.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from remuda.rehearsal.model import Scenario, Strike
    from remuda.rehearsal.rules import Throws
    from remuda.rehearsal.world import AllocationEnd, Interruption, Taken
    from remuda.store.rows import Evidence

_SHORTEST_S = 0.01
"""Between two looks, as in the real loop."""


def live_ours(scenario: Scenario, strikes: Sequence[Strike], throws: Throws, *, tick_s: float = 0.0) -> PolicyOutcome:
    """The whole time under the real supervisor.

    Args:
        scenario: what is rehearsed.
        strikes: what comes over the cluster.
        throws: waits in queues and for people.
        tick_s: look so often although nothing happens; 0: jump from one event to the next. The outcome is the same.
    """
    run = _OurRun(scenario, strikes, throws)
    now = 0.0
    while now < scenario.wall_s:
        run.think(now)
        coming = min(run.next_event(), now + max(_SHORTEST_S, run.due_s(now)), now + (tick_s or math.inf))
        now = min(coming, scenario.wall_s)
        if tick_s:
            run.look(now)
        run.happen(now)
    run.outcome.spend(run.waits, scenario.wall_s)
    return run.outcome


class _OurRun:
    """The run, what the supervisor knows of it, and what is to happen to it."""

    def __init__(self, scenario: Scenario, strikes: Sequence[Strike], throws: Throws) -> None:
        self.scenario, self.throws = scenario, throws
        self.world = World(scenario, strikes)
        self.outcome = PolicyOutcome("remuda", scenario.wall_s)
        self.want = Want(scenario.workload, running=True, generation=1)
        self.group = scenario.workload.groups[0]
        self.key = TaskKey(scenario.workload.name, self.group.name, 0)
        self.tasks: dict[TaskKey, Task] = {}
        self.evidence: list[Evidence] = []
        self.waits = Hours.BACKOFF
        self._nodes = [Node(f"n{index}", "idle", usable=True) for index in range(scenario.nodes)]
        self._offenders: set[int] = set()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0
        self._silent_from = math.inf

    # Time

    def next_event(self) -> float:
        """When something happens next."""
        return self._events[0][0] if self._events else math.inf

    def due_s(self, now: float) -> float:
        """Seconds until the clock alone can make the supervisor do something."""
        due = deciding.next_due(self.tasks, now, self.want)
        return math.inf if due is None else due

    def happen(self, now: float) -> None:
        """Let everything happen that is due."""
        while self._events and self._events[0][0] <= now:
            heapq.heappop(self._events)[2](now)

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (when, self._count, act))

    # Supervisor

    def _seen(self, now: float) -> dict[TaskKey, Task]:
        """Tasks with their signs of life.

        Those that come until the next event are known beforehand, so that time can jump there.
        """
        alive_until = min(self._silent_from, max(now, self.next_event()))
        return {
            key: replace(task, last_seen=max(task.last_seen, alive_until)) if task.phase in RUNNING else task
            for key, task in self.tasks.items()
        }

    def think(self, now: float) -> None:
        """Decide, and do what is decided."""
        self.tasks = self._seen(now)
        for action in deciding.decide(self.want, self.tasks, now):
            self.tasks[action.task.key] = action.task
            if action.task.key != self.key:
                self._beside(action, now)
            elif isinstance(action, deciding.Submit):
                self._submit(action.task, now)
        task = self.tasks.get(self.key)
        if task is not None and task.phase in FINAL and self.waits is not Hours.PEOPLE:
            self.outcome.given_up += task.phase is Phase.FAILED
            self.waits = Hours.PEOPLE
            self._at(now + self.throws.wait_s("people", self.scenario.assumptions.people_h * HOUR_S), self._revive)

    def _beside(self, action: deciding.Action, now: float) -> None:
        """A task of another group: it is ready after its time in the queue, and nothing ever happens to it."""
        key, group = action.task.key, self.want.workload.group(action.task.key.group)
        if isinstance(action, deciding.Cancel):
            self.tasks[key] = facts.observed(action.task, group, Observed(Life.ENDED, exit_code=0), now)
        elif isinstance(action, deciding.Submit):
            self.tasks[key] = facts.accepted(action.task, f"job-{key}-{action.task.attempt}", now)
            ready = look_at(now + self.throws.wait_s("queue", self.scenario.assumptions.queue_s),
                            self.scenario.assumptions.poll_s)  # fmt: skip
            self._at(ready, lambda at: self._serves(action.task, at))

    def _serves(self, submitted: Task, now: float) -> None:
        task = self.tasks[submitted.key]
        if task.token == submitted.token:
            self.tasks[task.key] = facts.reported(task, _ready(task, "n0", now), now)

    def _revive(self, now: float) -> None:
        del now
        self.want = replace(self.want, generation=self.want.generation + 1)

    def look(self, now: float) -> None:
        """One answer of a backend that has nothing new to tell."""
        task = self.tasks.get(self.key)
        if task is not None and task.phase in RUNNING:
            seen = Observed(Life.RUNNING, native=task.native, node=task.node)
            self.tasks[self.key] = facts.healed(facts.observed(task, self.group, seen, now), self.group, now)

    # Backend

    def _submit(self, task: Task, now: float) -> None:
        outcome = self.outcome
        outcome.spend(self.waits, now)
        self.waits = Hours.QUEUE
        excluded = self._excluded(now)
        outcome.excluded_peak = max(outcome.excluded_peak, len(excluded))
        self.tasks[self.key] = facts.accepted(task, f"job-{task.attempt}", now)
        ready = now + self.throws.wait_s("queue", self.scenario.assumptions.queue_s)
        start, taken = self.world.start(ready, excluded)
        outcome.spend(Hours.QUEUE, start)
        if taken is None:
            return
        fate = self.world.run(start, taken, checks_gpu=self.scenario.job.gpu_check)
        attempted(outcome, self.scenario, start, fate, self._offenders)
        self.waits = Hours.DETECTION
        end = end_of(fate, self.scenario.job, self.scenario.assumptions, watches=True)
        poll_s = self.scenario.assumptions.poll_s
        running = look_at(start, poll_s)
        self._at(running, lambda at: self._running(taken, fate, at))
        if fate.kind is not None:
            self._at(max(running, look_at(end.at, poll_s)), lambda at: self._ended(start, taken, fate, end, at))

    def _excluded(self, now: float) -> frozenset[int]:
        self.evidence = [item for item in self.evidence if item.expires_at > now]
        nodes = list(self._nodes)
        for node in self.world.away(now):
            nodes[node] = replace(nodes[node], state="down", usable=False)
        found = ledger.judge(
            self.evidence, now, cluster=self.scenario.workload.backend, candidates=nodes, pools=(),
            needed=self.scenario.job.nodes, policy=self.group.nodes,
        )  # fmt: skip
        return frozenset(int(one.node[1:]) for one in found.excluded)

    def _running(self, taken: Taken, fate: Interruption, now: float) -> None:
        task = self.tasks[self.key]
        node = f"n{taken.first}"
        task = facts.observed(task, self.group, Observed(Life.RUNNING, native=task.native, node=node), now)
        self.tasks[self.key] = facts.reported(task, _ready(task, node, now), now)
        if fate.kind is Hazard.CRASH and fate.node == taken.first:
            self._silent_from = max(now, fate.at)
            unheard = self._silent_from + self.scenario.job.heartbeat_s + _SHORTEST_S
            if self.scenario.job.heartbeat_s:
                self._at(look_at(unheard, self.scenario.assumptions.poll_s), self.look)

    def _ended(self, start: float, taken: Taken, fate: Interruption, end: AllocationEnd, now: float) -> None:
        self.outcome.spend(Hours.DETECTION, now)
        self.waits = Hours.BACKOFF
        task = self.tasks[self.key]
        seen = _answer(task, taken, fate, end, ran_s=max(0.0, fate.at - start))
        lasts = now + self.group.nodes.ttl_s
        for item in judge(task, self.group, seen).evidence:
            known = replace(item, node=seen.node, at=now, expires_at=lasts, cluster=task.backend)
            self.evidence.append(replace(known, workload=self.key.workload, token=task.token))
        self.tasks[self.key] = facts.observed(task, self.group, seen, now)
        self._silent_from = math.inf


def _ready(task: Task, node: str, now: float) -> Report:
    return Report(
        token=task.token, attempt=task.attempt, seq=task.seq + 1, at=now, state="ready", node=node, url="", pid=1,
        reason="runs",
    )  # fmt: skip


def _answer(task: Task, taken: Taken, fate: Interruption, end: AllocationEnd, *, ran_s: float) -> Observed:
    """What the backend says of an allocation that has ended so."""
    # A node that is down can be seen; whose GPU failed is known only where the output or the only node says so.
    is_known = fate.named or fate.kind is Hazard.CRASH or taken.first == taken.last
    node = f"n{fate.node if is_known and fate.node >= 0 else taken.first}"
    nodes = () if is_known else (f"n{taken.first}", f"n{taken.last}")
    said = Observed(
        Life.ENDED, native=task.native, node=node, nodes=nodes, ended_at=end.at, ran_s=ran_s, ending=end.ending
    )
    if end.ending is not Ending.NONE:
        return said
    if fate.checked:
        return replace(said, exit_code=node_exit.GPU_BROKEN, ran_s=0.0)
    if end.stalled:
        return replace(said, exit_code=node_exit.STALLED)
    fault = {
        Hazard.GPU: Fault(NODE, "xid-79", "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus", "0000:3b:00"),
        Hazard.HANG: Fault(TRANSIENT, "nccl-watchdog", "Watchdog caught collective operation timeout"),
        Hazard.NETWORK: Fault(TRANSIENT, "nccl-remote", "ncclRemoteError"),
    }.get(fate.kind) if fate.kind is not None else None  # fmt: skip
    return replace(said, exit_code=1, native_state=CHILD_ENDED, faults=(fault,) if fault is not None else ())
