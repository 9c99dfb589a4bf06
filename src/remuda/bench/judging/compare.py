"""Whether B is better or worse than A, as far as anybody can tell from stored points. Pure.

A difference is never said alone: it has a 95 % interval, and nothing below a floor is called a regression.

- Three repeats or more on both sides: the interval of the ratio of means over repeats (Welch's t, with the error of
  both means). A permutation test cannot reach 5 % with three against three, and a bootstrap of three values claims
  far too narrow an interval; this does neither.
- Else: from the intervals that the points were stored with (bootstrap over blocks of time), both at their far ends.
  It knows what varies within a run, but nothing of what varies between runs.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.bench.judging.verdict import INVALID, SUSPECT
from remuda.bench.point import split_bound

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from remuda.bench.load import Load
    from remuda.bench.point import Point

BETTER: Final = "better"
WORSE: Final = "worse"
SAME: Final = "no difference"
UNKNOWN: Final = "cannot tell"

PARAMETERS: Final = "parameters"
"""Key of `meta`: what the recipe of a point of a sweep has in place of placeholders."""
FLOOR: Final = 0.03
#: Repeats on each side from which they speak for themselves.
REPEATS: Final = 3
#: What is compared, and whether more of it is better.
METRICS: Final[Mapping[str, bool]] = {
    "ttft_p50": False, "ttft_p99": False, "tpot_p50": False, "tpot_p99": False, "e2e_p50": False, "e2e_p99": False,
    "output_tok_s": True, "req_s": True, "goodput_req_s": True,
}  # fmt: skip
#: 97.5 % quantiles of Student's t, by degrees of freedom; beyond, the next smaller one, which is the wider interval.
_T: Final = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228, 12: 2.179,
    15: 2.131, 20: 2.086, 30: 2.042, 60: 2.000, 120: 1.980,
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """One metric of A and B.

    Attributes:
        metric: of `METRICS`.
        a: mean over A's repeats; None where it is not known.
        b: the same of B.
        change: b / a - 1.
        low: of the 95 % interval of `change`.
        high: of it.
        by: what the interval is from: `repeats`, `blocks` of time, or nothing.
        word: what it means.
    """

    metric: str
    a: float | None
    b: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    by: str = ""
    word: str = UNKNOWN


@dataclass(frozen=True)
class Pair:
    """Points of one load on both sides.

    Attributes:
        label: what the load is called, behind the parameters of its sweep; of both where they differ.
        a: repeats of A.
        b: repeats of B.
        differ: what else is not the same, in words.
        metrics: see there.
    """

    label: str
    a: tuple[Point, ...]
    b: tuple[Point, ...]
    differ: tuple[str, ...]
    metrics: tuple[Difference, ...]


@dataclass(frozen=True)
class Comparison:
    """All pairs.

    Attributes:
        floor: share below which nothing is called a difference.
        pairs: by load.
        alone: labels of loads that only one side has, with its letter.
    """

    floor: float
    pairs: tuple[Pair, ...]
    alone: tuple[str, ...] = ()

    @property
    def has_regression(self) -> bool:
        """Whether a metric is worse."""
        return any(one.word == WORSE for pair in self.pairs for one in pair.metrics)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "floor": self.floor, "regression": self.has_regression, "alone": list(self.alone),
            "pairs": [
                {
                    "load": pair.label, "a": [point.name for point in pair.a], "b": [point.name for point in pair.b],
                    "differ": list(pair.differ), "metrics": [asdict(one) for one in pair.metrics],
                } for pair in self.pairs
            ],
        }  # fmt: skip


def compare(a: Sequence[Point], b: Sequence[Point], floor: float = FLOOR, *, with_invalid: bool = False) -> Comparison:
    """Compare two sets of points, load by load; those of sweeps where their parameters are the same, too.

    Raises:
        InputError: a point does not count, or no load is on both sides.
    """
    bad = [point for point in (*a, *b) if point.verdict == INVALID]
    if bad and not with_invalid:
        names = ", ".join(f"{point.name} ({', '.join(check.code for check in point.reasons[:3])})" for point in bad[:5])
        raise InputError(
            f"these points are invalid, so a comparison with them means nothing: {names}",
            hint="measure them again; to see the numbers all the same: --allow-invalid",
        )
    ours, theirs = _by_load(a), _by_load(b)
    if len(ours) == len(theirs) == 1:
        (one,), (other,) = ours.values(), theirs.values()
        return Comparison(floor, (_pair(one, other, floor),))
    both = [one for one in ours if one in theirs]
    if not both:
        hint = "name one point on each side to compare different loads"
        raise InputError("A and B have no load in common", hint=hint)
    alone = [f"A {_label(ours[one][0])}" for one in ours if one not in theirs]
    alone += [f"B {_label(theirs[one][0])}" for one in theirs if one not in ours]
    return Comparison(floor, tuple(_pair(ours[one], theirs[one], floor) for one in both), tuple(alone))


def _label(point: Point) -> str:
    return f"{point.meta.get(PARAMETERS, '')} {point.load.label}".strip()


def _by_load(points: Sequence[Point]) -> dict[tuple[str, Load], list[Point]]:
    """Repeats of a load belong together, also under another seed."""
    found: dict[tuple[str, Load], list[Point]] = defaultdict(list)
    for point in {(point.id, point.repeat): point for point in points}.values():
        found[point.meta.get(PARAMETERS, ""), replace(point.load, seed=0)].append(point)
    return found


def _pair(a: Sequence[Point], b: Sequence[Point], floor: float) -> Pair:
    labels = list(dict.fromkeys(_label(point) for point in (a[0], b[0])))
    found = [one for metric in METRICS if (one := difference(metric, a, b, floor)) is not None]
    return Pair(" / ".join(labels), tuple(a), tuple(b), tuple(differing(a, b)), tuple(found))


def differing(a: Sequence[Point], b: Sequence[Point]) -> list[str]:
    """What is not the same on both sides, apart from the numbers: a sentence each."""
    words = [f"{name}: {one} / {other}" for name, one, other in _aspects(a, b) if one != other]
    for letter, points in (("A", a), ("B", b)):
        if suspect := [point.name for point in points if point.verdict == SUSPECT]:
            words.append(f"{letter} is suspect: {', '.join(suspect)}")
        if invalid := [point.name for point in points if point.verdict == INVALID]:
            words.append(f"{letter} is invalid: {', '.join(invalid)}")
    return words


def _aspects(a: Sequence[Point], b: Sequence[Point]) -> Iterator[tuple[str, str, str]]:
    def both(name: str, of: Any) -> tuple[str, str, str]:
        one, other = ("; ".join(sorted({str(of(point)) for point in side})) for side in (a, b))
        return name, one, other

    yield both("model", lambda point: point.model)
    yield both("endpoint", lambda point: point.endpoint)
    yield both("engine", lambda point: point.engine)
    yield both("GPUs", lambda point: f"{point.hardware.gpus} {point.hardware.gpu_type}".strip())
    for name in a[0].load.to_json():
        yield both(
            name.replace("_s", "") if name.endswith("_s") else name, lambda point, key=name: getattr(point.load, key)
        )
    yield both("definitions of metrics, version", lambda point: point.definitions)
    yield both("changed thresholds", lambda point: ", ".join(point.changed) or "none")
    yield both("bounds of goodput", lambda point: dict(point.goodput) or "none")
    yield both("version of remuda", lambda point: point.version)


def difference(metric: str, a: Sequence[Point], b: Sequence[Point], floor: float) -> Difference | None:
    """One metric; None where neither side has it."""
    ours, theirs = ([value for point in side if (value := _value(point, metric)) is not None] for side in (a, b))
    if not ours and not theirs:
        return None
    one = statistics.fmean(ours) if ours else None
    other = statistics.fmean(theirs) if theirs else None
    if one is None or other is None or one <= 0:
        return Difference(metric, one, other)
    change = other / one - 1
    by = "repeats" if min(len(ours), len(theirs)) >= REPEATS else "blocks"
    found = _over_repeats(ours, theirs) if by == "repeats" else _over_blocks(metric, a, b)
    if found is None:
        return Difference(metric, one, other, change)
    word = judge(change, found, floor, more_is_better=METRICS[metric])
    return Difference(metric, one, other, change, *found, by, word)


def judge(change: float, interval: tuple[float, float], floor: float, *, more_is_better: bool) -> str:
    """What a change means: real and large enough, surely small, or neither can be said."""
    low, high = interval
    if -floor <= low and high <= floor:
        return SAME
    if abs(change) < floor or low <= 0 <= high:
        return UNKNOWN
    return BETTER if (change > 0) == more_is_better else WORSE


def _value(point: Point, metric: str) -> float | None:
    return point.of(metric) if metric in point.metrics else point.of(*split_bound(metric))


def _over_repeats(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Interval of mean(b) / mean(a) - 1: delta method, Welch's degrees of freedom."""
    one, other = statistics.fmean(a), statistics.fmean(b)
    ratio = other / one
    parts = ((statistics.variance(b) / len(b) / one**2, len(b)),
             (ratio**2 * statistics.variance(a) / len(a) / one**2, len(a)))  # fmt: skip
    total = sum(part for part, _ in parts)
    if total <= 0:
        return ratio - 1, ratio - 1
    freedom = total**2 / sum(part**2 / (count - 1) for part, count in parts)
    far = student_t(freedom) * math.sqrt(total)
    return ratio - 1 - far, ratio - 1 + far


def student_t(freedom: float) -> float:
    """Half a 95 % interval in standard errors, by degrees of freedom."""
    return _T[max(known for known in _T if known <= max(1.0, freedom))]


def _over_blocks(metric: str, a: Sequence[Point], b: Sequence[Point]) -> tuple[float, float] | None:
    """Interval of the ratio when each side is anywhere in its own; None where a point has none."""
    ours, theirs = ([_stored(point, metric) for point in side] for side in (a, b))
    known, others = [one for one in ours if one], [one for one in theirs if one]
    if len(known) < len(ours) or len(others) < len(theirs):
        return None
    low, high = min(one[0] for one in known), max(one[1] for one in known)
    if low <= 0:
        return None
    return min(one[0] for one in others) / high - 1, max(one[1] for one in others) / low - 1


def _stored(point: Point, metric: str) -> tuple[float, float] | None:
    """The interval that a point was stored with."""
    if metric in point.metrics:
        found = (point.metrics.get("ci95") or {}).get(metric)
    else:
        name, statistic = split_bound(metric)
        spread = point.metrics.get(name)
        found = (spread.get("ci95") or {}).get(statistic) if isinstance(spread, dict) else None
    return (float(found[0]), float(found[1])) if isinstance(found, (list, tuple)) and len(found) == 2 else None


def read_floor(text: str) -> float:
    """`3%` or `0.03` as a share.

    Raises:
        InputError: it is neither.
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise InputError(f"{text!r} is not a percentage", hint="write 3% or 0.03", where="--floor")
    return value
