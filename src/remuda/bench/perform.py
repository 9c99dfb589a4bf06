"""One point from its load to its verdict."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from remuda.base.endpoint import pick_model
from remuda.bench import probe
from remuda.bench.cost import Price, cost_of
from remuda.bench.generator.load_workers import Crew, LoadProgress
from remuda.bench.judging.energy import Sampled, energy_of
from remuda.bench.judging.measures import is_measured, measure, window_of
from remuda.bench.judging.rules import RuleInputs, judge
from remuda.bench.judging.verdict import THRESHOLDS, loosened, verdict_of
from remuda.bench.load import NEEDED, Auto, Cache, Load
from remuda.bench.point import Hardware, Point, address, split_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.bench.generator.http_stream import RequestTarget
    from remuda.bench.generator.reading import RequestRow
    from remuda.bench.generator.trace import Trace
    from remuda.bench.judging.measures import Window
    from remuda.bench.judging.verdict import Check

#: An auto point looks whether it has measured enough this often.
_LOOK_S: Final = 1.0


@dataclass(frozen=True)
class SwarmWatch:
    """What its supervisor knows of a swarm.

    Attributes:
        ready: replicas that answer.
        retries: requests that its router has sent twice, since it was started; -1 where it does not count them.
    """

    ready: int
    retries: int = -1


@dataclass(frozen=True)
class MeasuredEndpoint:
    """Who is measured.

    Attributes:
        place: the endpoint.
        model: name of the model; empty for the only one that it lists.
        engines: the replicas themselves, where they are known: their counters are read.
        hardware: what serves.
        watch: says how its swarm is, as counted no earlier than a moment (seconds since 1970); None where nobody knows.
        sample: reads what its GPUs used in a window; None where they are not recorded.
        sampled: how many GPUs that should be.
        config: fingerprint of what serves, where remuda has brought it up.
    """

    place: RequestTarget
    model: str = ""
    engines: tuple[RequestTarget, ...] = ()
    hardware: Hardware = field(default_factory=Hardware)
    watch: Callable[[float], SwarmWatch] | None = None
    sample: Callable[[Window], Sequence[Sampled]] | None = None
    sampled: int = 0
    config: str = ""


@dataclass(frozen=True)
class JudgingTerms:
    """How a point is judged.

    Attributes:
        thresholds: of the rules.
        slo: bounds by percentile, seconds.
        goodput: bounds of each request, seconds.
        meta: of the user.
        price: of its GPUs; None: nothing is said of money.
    """

    thresholds: Mapping[str, float] = field(default_factory=lambda: THRESHOLDS)
    slo: Mapping[str, float] = field(default_factory=dict)
    goodput: Mapping[str, float] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)
    price: Price | None = None

    @property
    def rules(self) -> dict[str, Any]:
        """What of them decides whether a point counts."""
        return {name: dict(getattr(self, name)) for name in ("thresholds", "slo", "goodput")}


class BenchSession:
    """Points on one endpoint, one after the other; what was found out about it is kept between them."""

    def __init__(self, target: MeasuredEndpoint, terms: JudgingTerms, trace: Trace | None = None) -> None:
        self.target = target
        self.trace = trace
        self.terms = terms
        self._seen: probe.EndpointFacts | None = None
        self._fitted: dict[tuple[str, bool, str, int], probe.Fitted] = {}
        self.auto = auto_of(terms)

    async def open(self) -> None:
        """Ask the endpoint what it is.

        Raises:
            Unavailable: nobody answers.
            Rejected: the key is refused.
            InputError: it serves no model, or several and none is named.
        """
        self._seen = await probe.look(self.target.place, self.target.engines)
        model = self.target.model or pick_model(list(self._seen.models or ()), self.target.place.base)
        self.target = replace(self.target, model=model)

    @property
    def identity(self) -> str:
        """What the endpoint says that it is; asked by `open`."""
        assert self._seen is not None
        return self._seen.identity

    def address(self, load: Load, asked: str = "") -> str:
        """The content address of a point of this load and these questions; with a config also before `open`."""
        target, engine = self.target, self._seen.identity if self._seen is not None else ""
        assert target.config or self._seen is not None
        return address(
            load, target.place.base, target.model, engine, target.hardware, self.terms.rules, target.config, asked
        )

    def priced(self, point: Point) -> Point:
        """A point with its cost at the price of today; one measured before had another, or none."""
        cost = cost_of(point.metrics, point.hardware.gpus, self.terms.price)
        return replace(point, cost=cost) if cost else point

    async def measure(
        self, load: Load, show: Callable[[LoadProgress], None] = lambda _: None, *, repeat: int = 0
    ) -> tuple[Point, list[RequestRow]]:
        """Run one load.

        Args:
            load: what is offered. Its prompts are drawn from all that it says and from `repeat`: those of two points on
                one engine differ, or the second would find the first one's in its cache.
            show: called while it runs.
            repeat: how often it was measured before.

        Raises:
            InputError: the load cannot be offered.
            Rejected: the endpoint refuses it.
            Unavailable: it does not answer, or a process of the client died.
        """
        target = self.target
        before = await probe.look(target.place, target.engines)
        began = time.time()
        fitted, spent = await self._fit(load)
        swarm = target.watch(began) if target.watch else None
        crew = Crew(
            load, target.place, target.model, fitted, auto=self.auto,
            prompts=f"{load.digest}/{repeat}", trace=self.trace,
        )  # fmt: skip
        async with crew:
            run = await crew.run(enough=_enough(load, self.auto), show=show)
        after = await self._look_after(before)
        end = target.watch(time.time()) if target.watch else None
        self._learn(load, run.rows)
        window, metrics = measure(run.rows, load, self.terms.goodput)
        energy = energy_of(target.sample(window), target.sampled, metrics) if target.sample else None
        evidence = RuleInputs(
            load=load, rows=run.rows, warm=run.warm, window=window, metrics=metrics, client=run.client,
            model=target.model, served=(before.models, after.models), forced=fitted.forced,
            cache=Cache.parse(load.cache), counters=(before.counters, after.counters), probed_out=spent,
            template=fitted.template, base=max(0.0, fitted.fit.base),
            workers=(target.hardware.replicas, swarm.ready, end.ready) if swarm and end else None,
            retries=end.retries - swarm.retries if swarm and end and min(swarm.retries, end.retries) >= 0 else -1,
            identity=(before.identity, after.identity), thresholds=self.terms.thresholds,
            energy=energy,
        )  # fmt: skip
        checks = judge(evidence)
        counters = {
            "before": asdict(before.counters) if before.counters else None,
            "after": asdict(after.counters) if after.counters else None,
        }
        point = self.point(
            load, metrics, checks, began, engine=before.identity, energy=energy, client=asdict(run.client),
            lengths=fitted.fit.lengths, counters=counters,
        )  # fmt: skip
        return self.priced(point), run.rows

    def point(
        self, load: Load, metrics: Mapping[str, Any], checks: Sequence[Check], began: float, *, asked: str = "",
        **more: Any,
    ) -> Point:  # fmt: skip
        """A point of this target, judged by these checks; `more` are fields of it."""
        target, terms = self.target, self.terms
        own = {
            "id": self.address(load, asked), "repeat": 0, "source": "remuda", "endpoint": target.place.base,
            "model": target.model, "engine": self.identity, "load": load, "metrics": metrics, "checks": tuple(checks),
            "verdict": verdict_of(checks), "thresholds": dict(terms.thresholds),
            "changed": tuple(loosened(terms.thresholds)), "slo": dict(terms.slo), "goodput": dict(terms.goodput),
            "hardware": target.hardware, "meta": dict(terms.meta), "started_at": began, "config": target.config,
        }  # fmt: skip
        return Point(**{**own, **more})

    async def _fit(self, load: Load) -> tuple[probe.Fitted, int]:
        """The fit for this load, and the output tokens that finding it cost just now."""
        key = _key(load)
        if key in self._fitted:
            return self._fitted[key], 0
        self._fitted[key] = fitted = await probe.fit(
            self.target.place, load, self.target.model, self.target.engines[:1]
        )
        return fitted, fitted.out

    def _learn(self, load: Load, rows: Sequence[RequestRow]) -> None:
        """What was sent says better than two probes how many tokens a word has: the next point is nearer."""
        fitted = self._fitted[_key(load)]
        sent = [(fitted.fit.words(row.asked_in), row.n_in) for row in rows if row.n_in >= 0]
        if sent:
            self._fitted[_key(load)] = replace(fitted, fit=probe.refit(fitted.fit, sent))

    async def _look_after(self, before: probe.EndpointFacts) -> probe.EndpointFacts:
        """What the endpoint says when the load has ended; an endpoint that is gone has changed."""
        from remuda.base.errors import RemudaError

        try:
            return await probe.look(self.target.place, self.target.engines)
        except RemudaError:
            return replace(before, identity="nobody", counters=None)


def _key(load: Load) -> tuple[str, bool, str, int]:
    return load.api, load.stream, load.extra_body, load.isl


def auto_of(terms: JudgingTerms) -> Auto:
    """How much a point measures whose load says nothing of it: what rule V12 and the SLO's percentiles need."""
    needed = [NEEDED[statistic] for name in terms.slo if (statistic := split_bound(name)[1]) in NEEDED]
    limits = terms.thresholds
    return Auto(limits["V12.window"], limits["V12.e2e"], max(2, math.ceil(limits["V12.requests"]), *needed))


def _enough(load: Load, auto: Auto) -> Callable[[LoadProgress], bool]:
    """Whether a load without a bound of its own has measured what it has to."""
    if not load.is_auto or load.is_open:
        return lambda _: False
    looked: dict[str, float] = {"at": 0.0}

    def enough(live: LoadProgress) -> bool:
        if live.seconds > auto.limit_s:
            return True
        if live.seconds < auto.window_s or live.seconds - looked["at"] < _LOOK_S:
            return False
        looked["at"] = live.seconds
        window = window_of(live.rows, load)
        mine = [row for row in live.rows if row.is_ok and is_measured(row, window)]
        took = sorted(row.ended - row.sched for row in mine)
        needed = max(auto.window_s, auto.e2e_times * took[len(took) // 2] / 1e9) if took else auto.window_s
        # A little more than needed, as what is under way at the end does not count.
        # A window that is all of the load holds ramps: it only stands in for one that has not begun.
        return window.is_steady and len(mine) >= 1.02 * auto.requests and window.seconds >= needed + 0.5

    return enough


def progress(live: LoadProgress, recent: Sequence[RequestRow]) -> dict[str, Any]:
    """Numbers for a progress line: of the requests that ended last."""
    from remuda.bench.judging.measures import tpot, ttft

    def middle(values: list[float]) -> float | None:
        return sorted(values)[len(values) // 2] if values else None

    return {
        "ttft": middle([value for row in recent if (value := ttft(row)) is not None]),
        "tpot": middle([value for row in recent if (value := tpot(row)) is not None]),
        "failed": sum(1 for row in live.rows if not row.is_ok),
        "rate": len(live.rows) / live.seconds if live.seconds > 1 else None,
    }
