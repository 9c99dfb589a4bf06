"""Random lives of tasks: whatever happens, the supervisor keeps its promises."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.supervise.build import group, key, report, want

from remuda.backends.base import Handle, Life, Observed, TaskKey
from remuda.plan.model import Replace
from remuda.supervise import facts
from remuda.supervise.decide import Cancel, Note, Submit, decide, next_due
from remuda.supervise.model import FINAL, LIVE, Phase, Task, Want

COUNT = 3


class World(RuleBasedStateMachine):
    """A backend that may lose answers, end anything at any time, and a host that may die between any two steps."""

    @initialize(policy=st.sampled_from(["always", "on-failure", "never"]))
    def begin(self, policy: str) -> None:
        rule_ = Replace(policy=policy, max_failures=3, backoff_initial_s=5, backoff_max_s=40, heal_after_s=100)
        self.group = group(count=COUNT, replace=rule_)
        self.want: Want = want(self.group)
        self.tasks: dict[TaskKey, Task] = {}
        self.now = 1000.0
        self.living: dict[str, str] = {}
        """token -> what the allocation does; the truth that the supervisor does not see"""
        self.made: list[str] = []
        self.submissions: list[str] = []
        self.seq = 0

    # What the supervisor does

    @rule(crash=st.booleans(), silent=st.booleans())
    def step(self, crash: bool, silent: bool) -> None:
        """Decide and record; then act, unless the host is killed in between or the backend is silent."""
        actions = decide(self.want, self.tasks, self.now)
        keys = [action.task.key for action in actions]
        assert len(keys) == len(set(keys))
        for action in actions:
            self.tasks[action.task.key] = action.task
        if crash:
            return
        for action in actions:
            if isinstance(action, Submit):
                self._submit(action, silent=silent)
            elif isinstance(action, Cancel) and not silent:
                self._cancel(action)

    def _submit(self, action: Submit, *, silent: bool) -> None:
        token = action.task.token
        current = self.tasks[action.task.key]
        assert action.again or token not in self.made, "two allocations of one name"
        if token not in self.made:
            self.made.append(token)
            self.living[token] = "pending"
        if silent:
            self.tasks[current.key] = facts.unanswered(current, "timed out", self.now)
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
                state = self.living.get(task.token)
                life = {None: Life.GONE, "pending": Life.PENDING}.get(state, Life.RUNNING)
                if state == "failed":
                    life = Life.ENDED
                seen = Observed(life, exit_code=1 if state == "failed" else None)
                self.tasks[task.key] = facts.healed(
                    facts.observed(task, self.group, seen, self.now), self.group, self.now
                )

    # What the world does

    @rule(index=st.integers(0, COUNT), state=st.sampled_from(["starting", "ready", "unhealthy", "backoff", "exited"]))
    def node_reports(self, index: int, state: str) -> None:
        task = self.tasks.get(key(index))
        if task is not None and self.living.get(task.token, "failed") != "failed":
            self.living[task.token] = "running"
            self.seq += 1
            self.tasks[task.key] = facts.reported(task, report(task.token, state, self.seq), self.now)

    @rule(index=st.integers(0, COUNT), how=st.sampled_from(["vanishes", "fails", "does not listen"]))
    def something_happens(self, index: int, how: str) -> None:
        task = self.tasks.get(key(index))
        if task is None or self.living.get(task.token, "failed") == "failed":
            return
        if how == "vanishes":
            del self.living[task.token]
        else:
            self.living[task.token] = "failed" if how == "fails" else "stubborn"

    @rule(seconds=st.sampled_from([0.1, 5.0, 60.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(running=st.booleans(), count=st.integers(0, COUNT + 1))
    def user_changes_mind(self, running: bool, count: int) -> None:
        self.want = replace(self.want, running=running, counts={"replica": count}, generation=self.want.generation + 1)

    # What must always hold

    @invariant()
    def at_most_one_allocation_lives_for_a_task(self) -> None:
        if not hasattr(self, "tasks"):
            return
        for task in self.tasks.values():
            mine = [
                token
                for token, state in self.living.items()
                if state != "failed" and token.startswith(f"w.replica.{task.key.index}.")
            ]
            assert len(mine) <= 1, mine

    @invariant()
    def every_allocation_is_known_to_a_task(self) -> None:
        if not hasattr(self, "tasks"):
            return
        known = {task.token for task in self.tasks.values()}
        assert {token for token, state in self.living.items() if state != "failed"} <= known

    @invariant()
    def nothing_waits_without_an_end(self) -> None:
        if not hasattr(self, "tasks"):
            return
        for task in self.tasks.values():
            if task.phase in (Phase.WAITING, Phase.SUBMITTING, Phase.STOPPING):
                assert next_due({task.key: task}, self.now) is not None
            assert task.not_before - self.now <= 40 + 5

    def teardown(self) -> None:
        """From wherever it is, `down` ends: everything final and nothing living."""
        if not hasattr(self, "tasks"):
            return
        self.want = replace(self.want, running=False)
        for _ in range(8):
            self.step(crash=False, silent=False)
            self.observe()
            self.now += 60
        assert all(task.phase in FINAL for task in self.tasks.values()), self.tasks
        assert not [state for state in self.living.values() if state != "failed"]


World.TestCase.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase


def test_notes_only_change_tasks() -> None:
    failed = Task(key(), "fake", phase=Phase.FAILED, generation=1)
    actions = decide(want(group(count=1), generation=2), {failed.key: failed}, 5.0)
    assert all(isinstance(action, Note) for action in actions)
