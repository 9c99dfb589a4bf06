"""Random lives of tasks: whatever happens, the supervisor keeps its promises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.supervise.build import group, key, report, want

from remuda.backends.base import Ending, Handle, Life, Observed, TaskKey
from remuda.plan.model import Failover, Pool, Replace, Watch
from remuda.supervise import facts
from remuda.supervise.decide import Cancel, Note, Submit, decide, next_due
from remuda.supervise.model import FINAL, LIVE, Cause, Phase, Task, Want

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from remuda.supervise.decide import Action

COUNT = 3
ENDINGS = {"preempted": Ending.PREEMPTED, "timed-out": Ending.TIME_LIMIT, "cancelled": Ending.CANCELLED,
           "node-failed": Ending.NODE_FAILED}  # fmt: skip
OVER = frozenset({"failed", "done", *ENDINGS})
"""What an allocation that is over did; a silent one is still "running"."""
HAPPENINGS = ["vanishes", "requeued", "stubborn", "held", "never", *sorted(OVER)]


class World(RuleBasedStateMachine):
    """A backend that may lose answers, end anything at any time, and a host that may die between any two steps."""

    together = False
    """Whether the tasks share one fate."""
    assemble_s = 0.0
    """After how long all that run are put back because others are in the queue."""

    @initialize(
        policy=st.sampled_from(["always", "on-failure", "never"]),
        pools=st.integers(0, 3),
        watched=st.booleans(),
        hedge=st.booleans(),
    )
    def begin(self, policy: str, pools: int, watched: bool, hedge: bool) -> None:
        rule_ = Replace(
            policy=policy, max_failures=3, backoff_initial_s=5, backoff_max_s=40, heal_after_s=100, quick_s=30,
            user_cancel="stop" if pools else "replace",
        )  # fmt: skip
        self.group = group(count=COUNT, replace=rule_).model_copy(
            update={
                "together": self.together,
                "assemble_s": self.assemble_s,
                "pools": tuple(Pool(name=name) for name in "abc"[:pools]),
                "watch": Watch(heartbeat_interval_s=30, heartbeat_grace_s=60) if watched else None,
                "failover": Failover(hedge=hedge),
            }
        )
        self.requeues: dict[str, int] = {}
        self.want: Want = want(self.group)
        self.tasks: dict[TaskKey, Task] = {}
        self.now = 1000.0
        self.living: dict[str, str] = {}
        """token -> what the allocation does; the truth that the supervisor does not see"""
        self.made: list[str] = []
        self.submissions: list[str] = []
        self.seq = 0
        self.refusing = False

    # What the supervisor does

    @rule(crash=st.booleans(), silent=st.booleans())
    def step(self, crash: bool, silent: bool) -> None:
        """Decide and record; then act, unless the host is killed in between or the backend is silent."""
        actions = decide(self.want, self.tasks, self.now)
        keys = [action.task.key for action in actions]
        assert len(keys) == len(set(keys))
        self._check_that_none_begins_alone(actions)
        for action in actions:
            self.tasks[action.task.key] = action.task
        if crash:
            return
        for action in actions:
            if isinstance(action, Submit):
                self._submit(action, silent=silent)
            elif isinstance(action, Cancel) and not silent:
                self._cancel(action)

    def _check_that_none_begins_alone(self, actions: Sequence[Action]) -> None:
        """Where they share one fate: all of them or none, with one new number and one history."""
        begun = {action.task.key: action.task for action in actions if isinstance(action, Submit) and not action.again}
        if self.together and begun:
            assert set(begun) == {key(index) for index in range(self.want.count("replica"))}
            assert len({(task.attempt, task.failures, task.quick_failures, task.pool) for task in begun.values()}) == 1
            assert all(task.attempt > known.attempt for task in begun.values() for known in self.tasks.values()
                       if known.key in begun)  # fmt: skip

    def _submit(self, action: Submit, *, silent: bool) -> None:
        token = action.task.token
        current = self.tasks[action.task.key]
        assert action.again or token not in self.made, "two allocations of one name"
        if token not in self.made:
            self.made.append(token)
            self.living[token] = "pending"
        if self.refusing and not silent and self.living.get(token) == "pending":
            del self.living[token]
            self.tasks[current.key] = facts.refused(current, self.group, "no", self.now)
        elif silent:
            self.tasks[current.key] = facts.put_off(current, "timed out", self.now)
        else:
            self.tasks[current.key] = facts.accepted(current, Handle(token).native, self.now)

    def _cancel(self, action: Cancel) -> None:
        token = action.task.token
        if action.force or self.living.get(token) != "stubborn":
            self.living.pop(token, None)
        if token not in self.made:
            self.made.append(token)  # the backend keeps it from starting later

    @rule()
    def observe(self) -> None:
        for task in list(self.tasks.values()):
            if task.phase in LIVE and task.phase is not Phase.SUBMITTING:
                state = self.living.get(task.token, "unknown")
                life = Life.GONE if state == "unknown" else Life.RUNNING
                if state in ("pending", "held", "never"):
                    life = Life.PENDING
                if state in OVER:
                    life = Life.ENDED
                seen = Observed(
                    life,
                    exit_code={"failed": 1, "done": 0}.get(state),
                    ending=ENDINGS.get(state, Ending.NONE),
                    held=state == "held",
                    never="no node has so many GPUs" if state == "never" else "",
                    requeues=self.requeues.get(task.token, 0),
                    pool="a",
                )
                self.tasks[task.key] = facts.healed(
                    facts.observed(task, self.group, seen, self.now), self.group, self.now
                )

    # What the world does

    @rule(index=st.integers(0, COUNT), state=st.sampled_from(["starting", "ready", "unhealthy", "backoff", "exited"]))
    def node_reports(self, index: int, state: str) -> None:
        task = self.tasks.get(key(index))
        if task is not None and self.living.get(task.token, "failed") not in (*OVER, "held", "never"):
            self.living[task.token] = "running"
            self.seq += 1
            self.tasks[task.key] = facts.reported(task, report(task.token, state, self.seq), self.now)

    @rule(index=st.integers(0, COUNT), how=st.sampled_from(HAPPENINGS))
    def something_happens(self, index: int, how: str) -> None:
        task = self.tasks.get(key(index))
        if task is None or self.living.get(task.token, "failed") in OVER:
            return
        if how == "vanishes":
            del self.living[task.token]
        elif how == "requeued":
            self.requeues[task.token] = self.requeues.get(task.token, 0) + 1
            self.living[task.token] = "pending"
        else:
            self.living[task.token] = how

    @rule(refusing=st.booleans())
    def scheduler_refuses(self, refusing: bool) -> None:
        self.refusing = refusing

    @rule(seconds=st.sampled_from([0.1, 5.0, 60.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(running=st.booleans(), count=st.integers(0, COUNT + 1), paused=st.booleans(), restart=st.booleans())
    def user_changes_mind(self, running: bool, count: int, paused: bool, restart: bool) -> None:
        self.want = replace(
            self.want,
            running=running,
            counts={"replica": count},
            generation=self.want.generation + 1,
            paused=paused,
            restart_mark=self.want.restart_mark + restart,
        )

    @rule(seconds=st.sampled_from([10.0, 1000.0]))
    def time_gets_short(self, seconds: float) -> None:
        """The user's own limit of the whole run comes into sight, or is lifted."""
        until = 0.0 if self.group.replace.until else self.now + seconds
        rule_ = self.group.replace.model_copy(update={"until": until})
        self.group = self.group.model_copy(update={"replace": rule_})
        workload = self.want.workload.model_copy(update={"groups": (self.group,)})
        self.want = replace(self.want, workload=workload, generation=self.want.generation + 1)

    # What must always hold

    @invariant()
    def at_most_one_allocation_lives_for_a_task(self) -> None:
        if not hasattr(self, "tasks"):
            return
        for task in self.tasks.values():
            mine = [
                token
                for token, state in self.living.items()
                if state not in OVER and token.startswith(f"w.replica.{task.key.index}.")
            ]
            assert len(mine) <= 1, mine

    @invariant()
    def every_allocation_is_known_to_a_task(self) -> None:
        if not hasattr(self, "tasks"):
            return
        known = {task.token for task in self.tasks.values()}
        assert {token for token, state in self.living.items() if state not in OVER} <= known

    @invariant()
    def nothing_waits_without_an_end(self) -> None:
        if not hasattr(self, "tasks"):
            return
        for task in self.tasks.values():
            if task.phase in (Phase.WAITING, Phase.SUBMITTING, Phase.STOPPING):
                assert next_due({task.key: task}, self.now) is not None
            assert task.not_before - self.now <= 40 + 5
            assert task.failures <= 3
            assert task.ending is Cause.NONE or task.phase in LIVE

    @invariant()
    def the_clock_never_makes_it_busy(self) -> None:
        """What is due at once is acted upon at once; nothing else says that it is due."""
        if not hasattr(self, "tasks") or next_due(self.tasks, self.now, self.want) != 0.0:
            return
        actions = decide(self.want, self.tasks, self.now)
        after = self.tasks | {action.task.key: action.task for action in actions}
        submitted = {action.task.key for action in actions if isinstance(action, Submit)}
        rest = {key: task for key, task in after.items() if key not in submitted}
        assert next_due(rest, self.now, self.want) != 0.0 or decide(self.want, rest, self.now)

    def teardown(self) -> None:
        """From wherever it is, `down` ends: everything final and nothing living."""
        if not hasattr(self, "tasks"):
            return
        self._check_that_it_ends_if_all_fails()
        self.refusing = False
        self.want = replace(self.want, running=False)
        for _ in range(8):
            self.step(crash=False, silent=False)
            self.observe()
            self.now += 60
        assert all(task.phase in FINAL for task in self.tasks.values()), self.tasks
        assert not [state for state in self.living.values() if state not in OVER]

    def _check_that_it_ends_if_all_fails(self) -> None:
        """From wherever it is: if every allocation fails from now on, every wanted task is given up."""
        self.refusing = False
        self.want = replace(self.want, running=True, paused=False)
        for _ in range(60):
            self.step(crash=False, silent=False)
            for token, state in self.living.items():
                self.living[token] = state if state in OVER else "failed"
            self.observe()
            self.now += 60
        wanted = [task for task in self.tasks.values() if task.key.index < self.want.count("replica")]
        assert all(task.phase in FINAL for task in wanted) or (self.together and any_failed(wanted)), wanted


def any_failed(tasks: Iterable[Task]) -> bool:
    """Whether one is given up while the others wait for it: the host takes such a workload down."""
    phases = {task.phase for task in tasks}
    return bool(phases & {Phase.FAILED, Phase.STOPPED}) and not phases & LIVE


class Together(World):
    """The same where tasks begin, fail and begin again together."""

    together = True


class Assembling(World):
    """The same where tasks give back what they hold when too few of them run."""

    assemble_s = 5.0


Assembling.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestAssembling = Assembling.TestCase
Together.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestTogether = Together.TestCase
World.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase


def test_notes_only_change_tasks() -> None:
    failed = Task(key(), "fake", phase=Phase.FAILED, generation=1)
    actions = decide(want(group(count=1), generation=2), {failed.key: failed}, 5.0)
    assert all(isinstance(action, Note) for action in actions)
