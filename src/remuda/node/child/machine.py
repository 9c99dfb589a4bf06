"""When a supervised child is started, probed, restarted and given up: pure, events and time in, actions out.

    step(spec, life, event, now) -> (life, actions)        due(spec, life) -> time of the next `Tick`

The loop in `child.py` acts and tells what happened. Times are seconds on one monotonic clock. Events that come too
late (a probe's answer for a child that has ended) change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Union

from remuda.policy.backoff import backoff_s
from remuda.wire import exit as codes

if TYPE_CHECKING:
    from remuda.wire.child import ChildSpec, HealthProbe

NEVER = float("inf")
MAX_PORT_MOVES = 5
"""Other ports that are tried without counting a failure when the child finds its port taken."""
FIRST_PROBE_S = 0.1
QUICK_PROBE_S = 2.0
"""Longest wait between probes of a child that is starting or unhealthy."""
PROBE_MARGIN_S = 5.0
"""A probe without any result so long after its timeout is taken for lost and asked again."""
BUSY_SHARE = 0.001
"""Share of one core below which a starting child counts as doing nothing: sleeping processes use a little."""
SAME_REQUEST_S = 2.0
"""A scheduler may ask a script for its end in two ways at once; within this it is one request."""
KILL_WAIT_S = 30.0
"""How long a killed process may take to disappear (uninterruptible I/O) before it is left behind."""

NEW, STARTING, READY, UNHEALTHY = "new", "starting", "ready", "unhealthy"
ENDING, BACKOFF, STOPPING, EXITED = "ending", "backoff", "stopping", "exited"
RUNNING = (STARTING, READY, UNHEALTHY)
_KILLED = (codes.FENCED, codes.UNLEASED)
REPORTED = {NEW: "starting", ENDING: "backoff"}
"""Phases whose name on the wire differs; `ending` is the wait for a child that was told to end for its restart."""


@dataclass(frozen=True)
class Start:
    """The program begins."""


@dataclass(frozen=True)
class Spawned:
    """The child runs."""


@dataclass(frozen=True)
class CannotStart:
    """The child cannot be started, and trying again would not help."""

    code: int
    reason: str


@dataclass(frozen=True)
class SpawnFailed:
    """The child could not be started now (out of processes or memory); trying again may help."""

    reason: str


@dataclass(frozen=True)
class Probed:
    """A probe has its result: `error` is empty when the child is healthy, `status` 0 when nothing answered.

    `hopeless`: a child that starts will never be.
    """

    status: int
    error: str = ""
    hopeless: bool = False


@dataclass(frozen=True)
class Activity:
    """What the child has done so far: bytes logged, and CPU seconds of it and its descendants."""

    log_bytes: int
    cpu_s: float


@dataclass(frozen=True)
class Ended:
    """The child has ended: its exit code, or the signal that ended it."""

    code: int | None
    signal: int = 0
    port_taken: bool = False
    """Its log says that its address was in use."""
    unfinished: bool = False
    """It said itself that steps are missing."""
    why: str = ""
    """What it said last, of one that tells of its own end."""


@dataclass(frozen=True)
class Stop:
    """Somebody asks for the end; asked again, it comes at once."""

    reason: str


@dataclass(frozen=True)
class Warned:
    """The time limit is near, and the child was told."""


@dataclass(frozen=True)
class End:
    """The child must end for good, with its grace, and the program with `code`."""

    code: int
    reason: str


@dataclass(frozen=True)
class FencedOff:
    """Another allocation counts instead of this one, or may soon: whatever runs is killed at once."""

    reason: str
    code: int = codes.FENCED


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = Union[Start, Spawned, CannotStart, SpawnFailed, Probed, Activity, Ended, Stop, Warned, End, FencedOff, Tick]


@dataclass(frozen=True)
class Spawn:
    """Start the child; `move_port` asks for another port than last time."""

    move_port: bool = False


@dataclass(frozen=True)
class AskHealth:
    """Ask the child for its health; exactly one `Probed` answers."""


@dataclass(frozen=True)
class Sample:
    """Measure what the child does; exactly one `Activity` answers."""


@dataclass(frozen=True)
class Terminate:
    """SIGTERM to the child's process group."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL to everything the child left or started."""


@dataclass(frozen=True)
class Finish:
    """End the program with `code`."""

    code: int


Action = Union[Spawn, AskHealth, Sample, Terminate, Kill, Finish]


@dataclass(frozen=True)
class Life:
    """Everything known about the child."""

    phase: str = NEW
    since: float = 0.0
    """Begin of the phase."""
    reason: str = ""
    restarts: int = 0
    """In place, all together."""
    used: int = 0
    """Of `max_restarts`; a healthy stretch gives them back."""
    port_moves: int = 0
    healthy_since: float = NEVER
    unhealthy_since: float = NEVER
    next_probe: float = NEVER
    probe_gap: float = FIRST_PROBE_S
    next_sample: float = NEVER
    active_at: float = 0.0
    seen: Activity = Activity(0, 0.0)
    """At `active_at`."""
    resume_at: float = NEVER
    """End of the backoff."""
    kill_at: float = NEVER
    leave_at: float = NEVER
    """When a killed child that does not disappear is left behind."""
    outcome: int | None = None
    """While ending: the code to finish with; None means that it is restarted."""
    warned: bool = False
    """Whether the time limit is near."""
    http_status: int = 0
    exit_code: int | None = None
    signal: int = 0

    @property
    def state(self) -> str:
        """The phase as it is reported."""
        return REPORTED.get(self.phase, self.phase)

    @property
    def in_grace(self) -> bool:
        """Whether the child was told to end and still has time to do so."""
        return self.phase in (ENDING, STOPPING) and self.kill_at < NEVER


def step(spec: ChildSpec, life: Life, event: Event, now: float) -> tuple[Life, tuple[Action, ...]]:
    """What `event` makes of `life`, and what is to be done now, in order."""
    if life.phase == EXITED:
        return life, ()
    return _HANDLERS[type(event)](spec, life, event, now)


def due(spec: ChildSpec, life: Life) -> float:
    """When the next `Tick` is needed; `NEVER` only after the end and, without a probe, while the child runs."""
    if life.phase in (NEW, EXITED):
        return NEVER
    if life.phase == BACKOFF:
        return life.resume_at
    if life.phase in (ENDING, STOPPING):
        return min(life.kill_at, life.leave_at)
    return min(life.next_probe, life.next_sample, _deadline(spec, life))


def _deadline(spec: ChildSpec, life: Life) -> float:
    """When a running child is restarted unless something good happens."""
    probe = spec.probe
    if probe is None:
        return NEVER
    if life.phase == STARTING and probe.startup_timeout_s > 0:
        return life.since + probe.startup_timeout_s
    if life.phase == UNHEALTHY and probe.unhealthy_restart_after_s > 0:
        return life.unhealthy_since + probe.unhealthy_restart_after_s
    return NEVER


def _start(_spec: ChildSpec, life: Life, _event: Start, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase != NEW:
        return life, ()
    return _spawn(life, now, "")


def _spawn(life: Life, now: float, reason: str, *, move_port: bool = False) -> tuple[Life, tuple[Action, ...]]:
    fresh = Life(
        phase=STARTING,
        since=now,
        reason=reason,
        restarts=life.restarts,
        used=life.used,
        port_moves=life.port_moves + move_port,
        active_at=now,
        warned=life.warned,
        exit_code=life.exit_code,
        signal=life.signal,
    )
    return fresh, (Spawn(move_port),)


def _spawned(spec: ChildSpec, life: Life, _event: Spawned, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase != STARTING:
        return life, ()
    if spec.probe is None:
        return replace(life, phase=READY, since=now, healthy_since=now), ()
    gap = _sample_gap(spec.probe)
    return replace(life, since=now, active_at=now, next_probe=now + FIRST_PROBE_S, next_sample=now + gap), ()


def _sample_gap(probe: HealthProbe) -> float:
    return max(0.05, min(probe.stall_s / 4, 10.0)) if probe.stall_s > 0 else NEVER


def _cannot_start(_spec: ChildSpec, life: Life, event: CannotStart, now: float) -> tuple[Life, tuple[Action, ...]]:
    return _finish(life, event.code, event.reason, now)


def _spawn_failed(spec: ChildSpec, life: Life, event: SpawnFailed, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase != STARTING:
        return life, ()
    if not _may_restart(spec):
        return _finish(life, codes.CANNOT_START, event.reason, now)
    return _retry(spec, life, event.reason, now)


def _probed(spec: ChildSpec, life: Life, event: Probed, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase not in RUNNING or spec.probe is None:
        return life, ()
    if not event.error:
        following = now + spec.probe.interval_s
        life = replace(life, http_status=event.status, next_probe=following, probe_gap=FIRST_PROBE_S)
        if life.phase == READY:
            return life, ()
        return replace(life, phase=READY, since=now, reason="", healthy_since=now, next_sample=NEVER), ()
    if life.phase == STARTING and event.hopeless:
        return _hung(spec, life, event.error, now)
    if life.phase == STARTING:
        gap = min(life.probe_gap * 1.5, QUICK_PROBE_S)
        return replace(life, http_status=event.status, next_probe=now + gap, probe_gap=gap, reason=event.error), ()
    following = now + min(spec.probe.interval_s, QUICK_PROBE_S)
    life = replace(life, http_status=event.status, next_probe=following, reason=event.error)
    if life.phase == UNHEALTHY:
        return life, ()
    life = _healed(spec, life, now)
    return replace(life, phase=UNHEALTHY, since=now, unhealthy_since=now, healthy_since=NEVER), ()


def _activity(spec: ChildSpec, life: Life, event: Activity, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase != STARTING or spec.probe is None:
        return life, ()
    life = replace(life, next_sample=now + _sample_gap(spec.probe))
    used = event.cpu_s - life.seen.cpu_s
    busy = used < 0 or used > BUSY_SHARE * (now - life.active_at)
    if event.log_bytes != life.seen.log_bytes or busy:
        return replace(life, seen=event, active_at=now), ()
    silent = now - life.active_at
    if silent < spec.probe.stall_s:
        return life, ()
    return _hung(spec, life, f"hangs while starting: no log line and no CPU time for {silent:.4g} s", now)


def _ended(spec: ChildSpec, life: Life, event: Ended, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase in (NEW, BACKOFF):
        return life, ()
    how = f"killed by signal {event.signal}" if event.signal else f"exit code {event.code}"
    life = _healed(spec, replace(life, exit_code=event.code, signal=event.signal, http_status=0), now)
    if life.phase == STOPPING:
        return _finish(life, _stop_code(life), f"{life.reason}; {how}", now)
    if life.phase == ENDING:
        return _retry(spec, life, life.reason, now)
    if life.warned and (event.signal or event.code or event.unfinished):
        return _finish(life, codes.TIME_UP, f"ended after the warning that its time limit is near ({how})", now)
    moves = not spec.port_fixed and life.port_moves < MAX_PORT_MOVES
    if event.port_taken and life.phase == STARTING and moves:
        return _spawn(life, now, f"the port was taken before the child could listen on it ({how})", move_port=True)
    failed = bool(event.signal or event.code)
    how = f"{how}: {event.why}" if event.why else how
    if not _may_restart(spec) or (spec.restart.policy == "on-failure" and not failed):
        return _finish(life, 128 + event.signal if event.signal else int(event.code or 0), how, now)
    return _retry(spec, life, how, now)


def _stop(spec: ChildSpec, life: Life, event: Stop, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase in (NEW, BACKOFF):
        return _finish(life, _stop_code(life), event.reason, now)
    if life.outcome in _KILLED:
        return life, ()
    if life.phase == STOPPING and life.outcome is None:
        again = spec.watch is None or now - life.since >= SAME_REQUEST_S
        return _kill(life, now) if again else (life, ())
    asked = life.phase in (ENDING, STOPPING)  # it has been told to end already; its grace began then
    kill_at = min(life.kill_at, now + spec.kill_grace_s) if asked else now + spec.kill_grace_s
    life = replace(life, phase=STOPPING, since=now, reason=event.reason, kill_at=kill_at, outcome=None)
    if asked and life.leave_at < NEVER:
        return replace(life, kill_at=NEVER), ()
    return life, () if asked else (Terminate(),)


def _stop_code(life: Life) -> int:
    """What the program finishes with when its child has ended as it was told to."""
    if life.outcome is not None:
        return life.outcome
    return codes.TIME_UP if life.warned else codes.STOPPED


def _warned(_spec: ChildSpec, life: Life, _event: Warned, now: float) -> tuple[Life, tuple[Action, ...]]:
    life = replace(life, warned=True)
    if life.phase in (NEW, BACKOFF):
        return _finish(life, codes.TIME_UP, "its time limit was near before it ran", now)
    return life, ()


def _must_end(spec: ChildSpec, life: Life, event: End, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase in (NEW, BACKOFF):
        return _finish(life, event.code, event.reason, now)
    if life.phase in (ENDING, STOPPING):
        return life, ()  # it has been told already
    kill_at = now + spec.kill_grace_s
    life = replace(life, phase=STOPPING, since=now, reason=event.reason, kill_at=kill_at, outcome=event.code)
    return life, (Terminate(),)


def _fenced(_spec: ChildSpec, life: Life, event: FencedOff, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase in (NEW, BACKOFF):
        return _finish(life, event.code, event.reason, now)
    if life.outcome in _KILLED:
        return life, ()
    life = replace(life, phase=STOPPING, since=now, reason=event.reason, outcome=event.code)
    return _kill(life, now)


def _tick(spec: ChildSpec, life: Life, _event: Tick, now: float) -> tuple[Life, tuple[Action, ...]]:
    if life.phase == BACKOFF:
        return _spawn(life, now, life.reason) if now >= life.resume_at else (life, ())
    if life.phase in (ENDING, STOPPING):
        if now >= life.leave_at:
            code = codes.HUNG if life.phase == ENDING else _stop_code(life)
            reason = f"{life.reason}; the process did not disappear after SIGKILL"
            return _finish(life, life.outcome or code, reason, now)
        return _kill(life, now) if now >= life.kill_at else (life, ())
    if spec.probe is None or life.phase not in RUNNING:
        return life, ()
    if now >= _deadline(spec, life):
        return _hung(spec, life, _late(life, now), now)
    actions: list[Action] = []
    if now >= life.next_probe:
        life = replace(life, next_probe=now + spec.probe.timeout_s + PROBE_MARGIN_S)
        actions.append(AskHealth())
    if now >= life.next_sample:
        life = replace(life, next_sample=now + _sample_gap(spec.probe))
        actions.append(Sample())
    return life, tuple(actions)


def _late(life: Life, now: float) -> str:
    what = "not ready" if life.phase == STARTING else "unhealthy"
    last = f": {life.reason}" if life.reason else ""
    return f"{what} for {now - life.since:.4g} s{last}"


def _may_restart(spec: ChildSpec) -> bool:
    return spec.restart.policy != "never" and spec.restart.max_restarts > 0


def _healed(spec: ChildSpec, life: Life, now: float) -> Life:
    """`life` with its restarts given back if the healthy stretch that ends now was long enough."""
    if life.phase == READY and now - life.healthy_since >= spec.restart.heal_after_s:
        return replace(life, used=0, port_moves=0)
    return life


def _hung(spec: ChildSpec, life: Life, reason: str, now: float) -> tuple[Life, tuple[Action, ...]]:
    """End a child that does not do its work, then start it again or give up."""
    life = replace(life, since=now, kill_at=now + spec.kill_grace_s, next_probe=NEVER, next_sample=NEVER)
    if _may_restart(spec) and life.used < spec.restart.max_restarts:
        return replace(life, phase=ENDING, reason=reason, outcome=None), (Terminate(),)
    reason = f"{reason}; {_no_more(spec)}"
    return replace(life, phase=STOPPING, reason=reason, outcome=codes.HUNG), (Terminate(),)


def _retry(spec: ChildSpec, life: Life, reason: str, now: float) -> tuple[Life, tuple[Action, ...]]:
    """Wait, then start the child again; give up when its restarts are used up."""
    rule = spec.restart
    if life.used >= rule.max_restarts:
        return _finish(life, codes.GAVE_UP, f"{reason}; {_no_more(spec)}", now)
    wait = backoff_s(life.used + 1, rule.backoff_initial_s, rule.backoff_max_s, key=spec.token)
    used = life.used + 1
    return replace(
        life,
        phase=BACKOFF,
        since=now,
        reason=f"{reason}; restart {used} of {rule.max_restarts} in {wait:.3g} s",
        used=used,
        restarts=life.restarts + 1,
        resume_at=now + wait,
        http_status=0,
    ), ()


def _no_more(spec: ChildSpec) -> str:
    if not _may_restart(spec):
        return "restarts are off"
    return f"its {spec.restart.max_restarts} restarts are used up"


def _kill(life: Life, now: float) -> tuple[Life, tuple[Action, ...]]:
    return replace(life, kill_at=NEVER, leave_at=min(life.leave_at, now + KILL_WAIT_S)), (Kill(),)


def _finish(life: Life, code: int, reason: str, now: float) -> tuple[Life, tuple[Action, ...]]:
    return replace(life, phase=EXITED, since=now, reason=reason, http_status=0), (Finish(code),)


_HANDLERS: dict[type, Callable[[ChildSpec, Life, Any, float], tuple[Life, tuple[Action, ...]]]] = {
    Start: _start,
    Spawned: _spawned,
    CannotStart: _cannot_start,
    SpawnFailed: _spawn_failed,
    Probed: _probed,
    Activity: _activity,
    Ended: _ended,
    Stop: _stop,
    Warned: _warned,
    End: _must_end,
    FencedOff: _fenced,
    Tick: _tick,
}
