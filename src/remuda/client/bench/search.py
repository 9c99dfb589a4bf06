"""The largest load that keeps an SLO: a search over points of one target."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError
from remuda.base.units import show_counted, show_ms
from remuda.bench import search
from remuda.bench.search import Bounds, Largest, LoadResult, SearchEnd, Try
from remuda.client.bench import benchmarks, job
from remuda.client.bench.benchmarks import Measured
from remuda.client.bench.job import IS_INVALID, IS_SUSPECT
from remuda.plan.deployment.bench import SEARCH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.bench.generator.load_workers import LoadProgress
    from remuda.bench.load import Load
    from remuda.bench.perform import BenchSession
    from remuda.bench.point import Point
    from remuda.bench.store import PointStore
    from remuda.client.bench.benchmarks import BenchPlan
    from remuda.specs.benchmark import BenchmarkSpec
    from remuda.specs.reading.load import Loaded

CONCURRENCY, RATE = "concurrency", "rate"


@dataclass(frozen=True)
class Hunt:
    """What is searched, where.

    Attributes:
        session: the target.
        load: what all points have in common.
        bounds: of the search.
        requests_each: for each request in flight; 0: as `load` says.
    """

    session: BenchSession
    load: Load
    bounds: Bounds
    requests_each: int = 0

    def at(self, value: float) -> Load:
        """The load with that concurrency, or that rate."""
        if not self.bounds.is_whole:
            return replace(self.load, rate=value)
        count = int(value)
        return replace(self.load, concurrency=count, requests=self.requests_each * count or self.load.requests)

    def value(self, load: Load) -> float:
        """The concurrency, or the rate, of a load."""
        return load.concurrency if self.bounds.is_whole else load.rate


@dataclass(frozen=True)
class SearchOutcome:
    """What came of it.

    Attributes:
        found: see there.
        points: that answered, by concurrency or rate; of one that was measured again, the last.
    """

    found: Largest
    points: dict[float, Point] = field(default_factory=dict)

    @property
    def grounds(self) -> list[Point]:
        """The points that the answer rests on."""
        return [self.points[at] for at in (self.found.met, self.found.missed, self.found.at) if at is not None]


def plan(
    loaded: Loaded[BenchmarkSpec], say: Callable[[str], None], *, maximise: str, low: float, high: float
) -> Hunt:  # fmt: skip
    """What to search; waits for a swarm that is coming up.

    Raises:
        InputError: a value is wrong.
        RemudaError: see `bench.plan`.
    """
    _check(loaded.spec, maximise)
    bounds = Bounds(low, high, is_whole=maximise == CONCURRENCY)
    bounds.check()
    if bounds.is_whole:
        bounds = Bounds(int(low), int(high))
    if not bounds.is_whole:
        loaded = replace(loaded, spec=loaded.spec.model_copy(update={"rate": (low,)}))
    planned = benchmarks.plan(loaded, say)
    return Hunt(planned.sessions[0], planned.loads[0], bounds)


def hunt_of(told: Mapping[str, Any], plan: BenchPlan) -> Hunt:
    """What the benchmark of a deployment searches; see `plan.deployment.bench.told`."""
    said = told[SEARCH]
    is_whole = said["maximise"] == CONCURRENCY
    number = int if is_whole else float
    bounds = Bounds(number(said["min"]), number(said["max"]), is_whole=is_whole)
    return Hunt(plan.sessions[0], plan.loads[0], bounds, told["requests_each"])


def _check(spec: BenchmarkSpec, maximise: str) -> None:
    if spec.tasks:
        raise InputError("a search is of loads", where="tasks", hint="ask questions with remuda bench run")
    if not spec.slo:
        raise InputError("a search needs a latency target", where="--slo", hint="add --slo ttft_p99=500ms")
    if spec.rate:
        hint = "bound it with --min and --max" if maximise == RATE else "say --maximise rate, or leave --rate away"
        raise InputError("the search chooses the load", where="--rate", hint=hint)
    if spec.trace:
        raise InputError("the search chooses the load", where="--trace", hint="measure it: remuda bench --trace FILE")
    if maximise == CONCURRENCY and spec.concurrency:
        raise InputError("the search chooses the load", where="--concurrency", hint="bound it with --min and --max")
    if len(spec.concurrency) > 1:
        raise InputError("bounds the requests in flight, with one number", where="--concurrency")
    if len(spec.endpoint) > 1:
        raise InputError("a search is of one endpoint", where="--endpoint", hint="search each on its own")
    if spec.repeats > 1:
        raise InputError(
            "a search measures no load twice", where="--repeats", hint="measure what it found: remuda bench"
        )
    unseen = [name for name in spec.slo if not spec.stream and not name.startswith("e2e_")]
    if unseen:
        raise InputError(
            f"answers that are not streamed have no {unseen[0]}", where="--no-stream", hint="bound e2e_p99"
        )


def forecast(hunt: Hunt) -> str:
    """How long it will take, in words."""
    load, auto, bounds = hunt.load, hunt.session.auto, hunt.bounds
    if load.requests:
        each = f"issues {show_counted(load.requests, 'request')}"
    elif load.duration_s:
        each = f"issues requests for {load.duration_s:g} s"
    else:
        each = f"takes at least {auto.window_s:g} s, at most {auto.limit_s / 60:.0f} min"
    middle = (bounds.low * bounds.high) ** 0.5
    return f"each point {each}; about {show_counted(search.points_for(bounds, middle), 'point')}"


def run(
    hunt: Hunt,
    kept: PointStore,
    show: Callable[[Load, LoadProgress], None],
    tell: Callable[[Measured], None],
    *,
    again: bool = False,
) -> SearchOutcome:
    """Search. Points that were measured before are not measured again, unless `again`, or where they are no answer.

    Args:
        hunt: what.
        kept: where points are.
        show: called while a point is measured.
        tell: called with each point.
        again: look at none that was measured before.

    Raises:
        RemudaError: a point cannot be measured.
    """
    asyncio.run(hunt.session.open())
    there = {} if again else benchmarks.by_address(kept)
    return _answered(hunt, there, lambda load: benchmarks.measure(hunt.session, load, kept, show), tell)


def replayed(hunt: Hunt, there: Mapping[str, Sequence[Point]]) -> tuple[SearchOutcome | None, list[Point]]:
    """What stored points say: the outcome, None where a load would have to be measured for it; and which they are."""
    asked: list[Point] = []

    def measure(_: Load) -> Measured:
        raise LookupError

    try:
        return _answered(hunt, there, measure, lambda one: asked.append(one.point)), asked
    except LookupError:
        return None, asked


def _answered(
    hunt: Hunt, there: Mapping[str, Sequence[Point]], measure: Callable[[Load], Measured],
    tell: Callable[[Measured], None],
) -> SearchOutcome:  # fmt: skip
    points: dict[float, Point] = {}

    def answer(ask: Try) -> LoadResult:
        load = hunt.at(ask.load)
        if ask.wants_more:
            load = search.longer(load, hunt.session.auto)
        found = [p for p in there.get(hunt.session.address(load), ()) if search.answer_of(p) is not LoadResult.INVALID]
        is_known = len(found) > (ask.is_again and not ask.wants_more)  # what was asked twice before is not asked again
        one = Measured(found[-1], is_stored=True) if is_known else measure(load)
        points[ask.load] = one.point
        tell(one)
        return search.answer_of(one.point)

    known = _known(hunt, there)
    return SearchOutcome(search.drive(search.search(hunt.bounds, known), answer), points)


def _known(hunt: Hunt, there: Mapping[str, Sequence[Point]]) -> dict[float, LoadResult]:
    """What stored points say of loads that differ in nothing but what is searched."""
    return {
        hunt.value(point.load): answer
        for points in there.values() for point in points
        if hunt.at(hunt.value(point.load)) == point.load
        and hunt.session.address(point.load) == point.id
        and (answer := search.answer_of(point)) in (LoadResult.MET, LoadResult.MISSED)
    }  # fmt: skip


def exit_code(outcome: SearchOutcome, *, allow_suspect: bool, allow_changed: bool) -> int:
    """What a shell sees of a search: 10 when it has no answer, 11 when that rests on suspect points."""
    if outcome.found.end in (SearchEnd.INVALID, SearchEnd.UNKNOWN):
        return IS_INVALID if outcome.found.end is SearchEnd.INVALID else IS_SUSPECT
    return job.exit_code(outcome.grounds, allow_suspect=allow_suspect, allow_changed=allow_changed)


def result(hunt: Hunt, outcome: SearchOutcome) -> str:
    """The answer, in a sentence."""
    found = outcome.found
    slo = " and ".join(f"{name.replace('_', ' ')} ≤ {show_ms(bound)}" for name, bound in hunt.session.terms.slo.items())
    met = hunt.at(found.met).label if found.met is not None else ""
    if found.end is SearchEnd.FOUND and found.missed is not None:
        return f"{met} is the largest load that meets {slo}; {hunt.at(found.missed).label} misses it"
    if found.end is SearchEnd.ALL_MET:
        return f"{met} meets {slo}, and no larger load was tried: raise --max"
    if found.end is SearchEnd.NONE_MET or found.at is None:
        return f"not even {hunt.at(hunt.bounds.low).label} meets {slo}"
    silent = hunt.at(found.at).label
    why = (
        "is not known: too few requests ended for a percentile"
        if found.end is SearchEnd.UNKNOWN
        else "cannot be said: its point is invalid"
    )
    known = f"{met} is the largest load that is known to meet it" if met else "none is known to meet it"
    return f"whether {silent} meets {slo} {why}, also the second time; {known}"


def to_json(hunt: Hunt, outcome: SearchOutcome, tried: list[Measured]) -> dict[str, Any]:
    """The outcome for programs."""
    found = outcome.found
    return {
        "maximise": CONCURRENCY if hunt.bounds.is_whole else RATE, "slo": dict(hunt.session.terms.slo),
        "min": hunt.bounds.low, "max": hunt.bounds.high, "end": found.end.value, "met": found.met,
        "missed": found.missed, "unanswered": found.at,
        "contradictions": [{"missed": smaller, "met": larger} for smaller, larger in found.contradictions],
        "point": outcome.points[found.met].name if found.met is not None else None,
        "points": benchmarks.to_json(tried),
    }  # fmt: skip
