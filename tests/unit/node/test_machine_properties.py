"""Whatever happens, in whatever order: every wait ends, restarts are bounded, the end comes once and leaves nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.node.child import machine as m
from remuda.wire.child import ChildSpec, HealthProbe, RestartRule

seconds = st.sampled_from([0.0, 0.5, 3.0, 50.0])
probes = st.builds(
    HealthProbe,
    interval_s=st.sampled_from([0.1, 5.0, 30.0]),
    timeout_s=st.just(1.0),
    startup_timeout_s=st.sampled_from([5.0, 50.0]),
    stall_s=seconds,
    unhealthy_restart_after_s=st.sampled_from([0.5, 20.0]),
)
rules = st.builds(
    RestartRule,
    policy=st.sampled_from(["always", "on-failure", "never"]),
    max_restarts=st.integers(0, 4),
    backoff_initial_s=seconds,
    backoff_max_s=seconds,
    heal_after_s=st.just(1e9),
)
specs = st.builds(
    ChildSpec,
    token=st.just("t"),
    workload=st.just("w"),
    task=st.just("r/0"),
    attempt=st.just(1),
    argv=st.just(["x"]),
    run_dir=st.just("/r"),
    port_fixed=st.booleans(),
    probe=st.none() | probes,
    restart=rules,
    kill_grace_s=seconds,
)
FATES = ("lives", "dies", "succeeds", "port taken", "cannot", "passing")
OUTSIDE: tuple[m.Event, ...] = (m.Warned(), m.End(91, "no progress"), m.FencedOff("another counts"), m.Stop("asked"))
ANSWERS = ("ok", "500", "silence", "ends", "nothing")


@dataclass
class World:
    """Executes actions with outcomes drawn by the test, and checks that the actions make sense."""

    spec: ChildSpec
    data: st.DataObject
    ignores_term: bool
    immortal: bool
    life: m.Life = field(default_factory=m.Life)
    now: float = 0.0
    alive: bool = False
    spawned: int = 0
    finished: list[int] = field(default_factory=list)

    def send(self, event: m.Event) -> None:
        queue = [event]
        while queue:
            self.life, actions = m.step(self.spec, self.life, queue.pop(0), self.now)
            for action in actions:
                queue += self.act(action)

    def act(self, action: m.Action) -> list[m.Event]:
        assert not self.finished, "nothing is done after the end"
        if isinstance(action, m.Spawn):
            return self.spawn()
        if isinstance(action, m.Finish):
            self.finished.append(action.code)
            assert not self.alive or self.immortal
        elif isinstance(action, (m.Terminate, m.Kill)):
            if self.alive and not self.immortal and (isinstance(action, m.Kill) or not self.ignores_term):
                self.alive = False
                return [m.Ended(None, 9)]
        elif isinstance(action, m.AskHealth):
            return self.probe()
        elif isinstance(action, m.Sample):
            return [m.Activity(0, 0.0)]
        return []

    def spawn(self) -> list[m.Event]:
        assert not self.alive, "never two children"
        self.spawned += 1
        fate = self.data.draw(st.sampled_from(FATES))
        if fate == "cannot":
            return [m.CannotStart(82, "no")]
        if fate == "passing":
            return [m.SpawnFailed("later")]
        self.alive = fate == "lives"
        ends = {"dies": m.Ended(1), "succeeds": m.Ended(0), "port taken": m.Ended(1, port_taken=True)}
        return [m.Spawned(), *([ends[fate]] if fate in ends else [])]

    def probe(self) -> list[m.Event]:
        assert self.alive
        answer = self.data.draw(st.sampled_from(ANSWERS))
        if answer == "ends":
            self.alive = False
            return [m.Ended(self.data.draw(st.sampled_from([0, 1])))]
        good = {"ok": m.Probed(200), "500": m.Probed(500, "500"), "silence": m.Probed(0, "silence")}
        return [good[answer]] if answer in good else []

    def turn(self) -> bool:
        """Until the next moment at which the machine wants something; False when it waits for outside events only."""
        due = m.due(self.spec, self.life)
        if due == m.NEVER:
            return False
        self.now = max(self.now, due)
        self.send(m.Tick())
        return True


@settings(max_examples=300, deadline=None)
@given(spec=specs, data=st.data(), ignores=st.booleans(), immortal=st.booleans(), stop_after=st.integers(0, 60))
def test_any_life(spec: ChildSpec, data: st.DataObject, ignores: bool, immortal: bool, stop_after: int) -> None:
    world = World(spec, data, ignores, immortal)
    world.send(m.Start())
    for _ in range(stop_after):
        if world.finished or not world.turn():
            break
        if not world.finished and data.draw(st.integers(0, 9)) == 0:
            world.send(data.draw(st.sampled_from(OUTSIDE)))
        assert world.life.state in ("starting", "ready", "unhealthy", "backoff", "stopping", "exited")
    assert world.spawned <= 1 + spec.restart.max_restarts + m.MAX_PORT_MOVES
    asked = world.now
    if not world.finished:
        if m.due(spec, world.life) == m.NEVER:
            assert world.alive
            assert world.life.phase == m.READY
            assert spec.probe is None
        world.send(m.Stop("enough"))
    for _ in range(10):
        if world.finished:
            break
        assert world.turn(), "a stopping life always knows what it waits for"
    assert len(world.finished) == 1
    assert world.now <= asked + spec.kill_grace_s + m.KILL_WAIT_S + 1e-6
    assert world.life.reason or world.finished == [0]


@settings(max_examples=100, deadline=None)
@given(spec=specs, data=st.data())
def test_without_a_good_probe_the_end_comes_by_itself(spec: ChildSpec, data: st.DataObject) -> None:
    world = World(spec, data, ignores_term=True, immortal=False)
    world.probe = lambda: [m.Probed(500, "500")]  # type: ignore[method-assign]
    world.send(m.Start())
    for _ in range(100_000):
        if world.finished or not world.turn():
            break
    assert world.finished or spec.probe is None
