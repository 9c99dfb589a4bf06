"""Points that belong on one line, what the line is called, and which points nobody beats. Pure."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.text import short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from remuda.bench.point import Point

#: What a line has in common; its name says the first of these that tell the lines apart.
_PARTS: Final[tuple[Callable[[Point], str], ...]] = (
    lambda point: point.model,
    lambda point: f"{point.hardware.gpus} × {point.hardware.gpu_type}" if point.hardware.gpu_type else "",
    lambda point: f"{point.load.isl}/{point.load.osl}",
    lambda point: f"{point.load.cache} cache",
    lambda point: point.engine,
    lambda point: point.endpoint.split("://", 1)[-1].rstrip("/").removesuffix("/v1"),
)


@dataclass(frozen=True)
class Series:
    """Points of one model at one endpoint under loads of one shape, or of one value of a key of `meta`."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Axis:
    """What a load is drawn over.

    Attributes:
        label: with its unit.
        of: where a point stands on it; None: nowhere.
    """

    label: str
    of: Callable[[Point], float | None]


def series_of(points: Sequence[Point], group: str = "") -> list[Series]:
    """Points by what they have in common, the largest first.

    Args:
        points: any.
        group: `meta.KEY`, to group by that alone.

    Raises:
        InputError: `group` is none, or no point has it.
    """
    if group:
        return _sorted(_by_meta(points, group))
    by_key: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in points:
        by_key[tuple(part(point) for part in _PARTS)].append(point)
    told = _telling(list(by_key))
    models = shortened({key[0] for key in by_key})
    found: dict[str, list[Point]] = defaultdict(list)
    for key, mine in by_key.items():
        words = (models[key[0]], *key[1:])
        found[" · ".join(short(words[number]) for number in told if words[number])].extend(mine)
    return _sorted(found)


def _telling(keys: Sequence[tuple[str, ...]]) -> list[int]:
    """Which parts of the keys tell all of them apart: each adds to what those before it tell."""
    told: list[int] = []
    apart = 1
    for number in range(len(_PARTS)):
        now = len({tuple(key[one] for one in (*told, number)) for key in keys})
        if now > apart:
            told, apart = [*told, number], now
    return told or [0]


def _by_meta(points: Sequence[Point], group: str) -> dict[str, list[Point]]:
    room, _, key = group.partition(".")
    known = sorted({name for point in points for name in point.meta})
    if room != "meta" or key not in known:
        what = f"no point has {group!r}" if room == "meta" and key else f"{group!r} is not a key to group by"
        there = ", ".join(f"meta.{short(name)}" for name in known[:10])
        hint = f"there are {there}" if known else "say one when you measure: remuda bench --meta gpu=H100"
        raise InputError(what, hint=hint, where="--group")
    found: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        found[short(point.meta[key]) if key in point.meta else f"no {key}"].append(point)
    return found


def _sorted(found: dict[str, list[Point]]) -> list[Series]:
    every = [Series(name or "points", tuple(mine)) for name, mine in found.items()]
    return sorted(every, key=lambda one: (-len(one.points), one.name))


def shortened(models: Iterable[str]) -> dict[str, str]:
    """Models without the folder or owner before their names, where the rest still tells them apart."""
    names = {model: model.rstrip("/").rsplit("/", 1)[-1] or model for model in models}
    return names if len(set(names.values())) == len(names) else {model: model for model in names}


def axis_of(points: Iterable[Point]) -> Axis:
    """Requests in flight for closed loops, arrivals for open ones, and what both have where there are both."""
    loads = [point.load for point in points]
    if all(not load.is_open for load in loads):
        return Axis("requests in flight", lambda point: float(point.load.concurrency))
    if all(load.is_open and math.isfinite(load.rate) for load in loads):
        return Axis("arrivals a second", lambda point: point.load.rate)
    return Axis("mean requests in flight, as measured", lambda point: point.of("in_flight"))


def middles(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """One place for each x, in their order: the median of its repeats."""
    found: dict[float, list[float]] = defaultdict(list)
    for x, y in places:
        found[x].append(y)
    return [(x, statistics.median(found[x])) for x in sorted(found)]


def pareto(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Places that no other beats in both x and y, from left to right; more is better."""
    found: list[tuple[float, float]] = []
    for x, y in sorted(places, reverse=True):
        if not found or y > found[-1][1]:
            found.append((x, y))
    return found[::-1]
