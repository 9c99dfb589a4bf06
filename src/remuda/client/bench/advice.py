"""What stored points advise: for each config the best one that keeps latency targets, and what to measure beside it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from remuda.bench.judging.verdict import INVALID
from remuda.bench.load import Load
from remuda.bench.search import Bounds
from remuda.plan.identity import CONFIG
from remuda.supervise.summary import UP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from remuda.bench.point import Point


@dataclass(frozen=True)
class LoadAdvice:
    """Of one config under loads of one shape; `best` is valid, `neighbours` were measured by nobody."""

    name: str
    shape: Load
    best: Point | None
    neighbours: tuple[float, ...]
    """Requests in flight, or rates."""
    command: str
    """What measures them; empty where it is not known any more how the config was brought up."""


def score(point: Point | None) -> float:
    """Output tokens a second of each GPU, or of all where nobody says how many there are."""
    return (point.output_per_gpu or point.of("output_tok_s") or 0.0) if point is not None else 0.0


def advise(points: Iterable[Point], slo: Mapping[str, float], views: Iterable[Mapping[str, Any]]) -> list[LoadAdvice]:
    """The best of each config and shape of load, the best config first.

    Args:
        points: stored ones.
        slo: bounds by percentile, seconds.
        views: workloads, also those that are down: they say how a config is brought up.
    """
    groups: dict[tuple[Any, ...], list[Point]] = defaultdict(list)
    for point in points:
        load = point.load
        shape = replace(load, rate=0.0, requests=0, duration_s=0.0, warmup=-1, seed=0, timeout_s=Load.timeout_s)
        shape = shape if load.is_open else replace(shape, concurrency=1)
        if point.accuracy is None and not load.arrival.startswith("trace:") and _value(load) != float("inf"):
            groups[point.config or point.endpoint, point.model, point.hardware, load.is_open, shape].append(point)
    known = {view["labels"][CONFIG]: view for view in views if view["labels"].get(CONFIG)}
    found = [_of(key[-1], mine, slo, known.get(mine[0].config)) for key, mine in groups.items()]
    return sorted(found, key=lambda one: -score(one.best))


def _value(load: Load) -> float:
    return load.rate if load.is_open else float(load.concurrency)


def _of(shape: Load, points: Sequence[Point], slo: Mapping[str, float], view: Mapping[str, Any] | None) -> LoadAdvice:
    best = max((one for one in points if one.counts and replace(one, slo=slo).slo_met()), key=score, default=None)
    measured = sorted({_value(point.load) for point in points if point.verdict != INVALID})
    beside = _beside(_value(best.load) if best else 0.0, measured, Bounds(is_whole=not points[0].load.is_open))
    name = view["name"] if view else points[-1].meta.get("deployment") or points[-1].endpoint
    return LoadAdvice(name, shape, best, beside, _command(points[-1], beside, slo, view) if beside else "")


def _beside(best: float, measured: Sequence[float], bounds: Bounds) -> tuple[float, ...]:
    """Halfway to the next ones that were measured, the double where there is none; else half of what was too much."""
    smaller, larger = [one for one in measured if one < best], [one for one in measured if one > best]
    if not best:
        return tuple(one // 2 if bounds.is_whole else one / 2 for one in larger[:1] if one > bounds.is_whole)
    below = bounds.between(smaller[-1], best) if smaller else None
    above = bounds.between(best, larger[0]) if larger else best * 2
    return tuple(one for one in (below, above) if one is not None)


def _command(point: Point, loads: Sequence[float], slo: Mapping[str, float], view: Mapping[str, Any] | None) -> str:
    load, said = point.load, ",".join(f"{one:g}" for one in loads)
    folder = view["labels"].get("directory", "") if view else ""
    if view and folder and view["phase"] not in UP and not load.is_open:
        settings = {"isl": load.isl, "osl": load.osl, "random_range_ratio": load.range_ratio, "search": "null"}
        settings |= {"use_chat_template": str(load.api == "chat").lower(), "concurrencies": f"[{said}]"}
        words = [word for key, text in settings.items() for word in ("--set", f"benchmark.{key}={text}")]
        return shlex.join(["remuda", "apply", f"{folder}/resolved.yaml", "--sweep", *words])
    if point.config and not view:
        return ""
    more = [one for one in ("range_ratio", "api", "cache") if getattr(load, one) != getattr(Load, one)]
    words = [w for one in ("isl", "osl", *more) for w in (f"--{one.replace('_', '-')}", str(getattr(load, one)))]
    words += ["--rate" if load.is_open else "--concurrency", said]
    words += ["--slo", ",".join(f"{name}={bound:g}s" for name, bound in slo.items())]
    gpus = ["--gpus", str(point.hardware.gpus), "--gpu-type", point.hardware.gpu_type] if point.hardware.gpus else []
    who = ["--name", view["name"]] if view else ["--endpoint", point.endpoint, "--model", point.model, *gpus]
    return shlex.join(["remuda", "bench", *who, *words])
