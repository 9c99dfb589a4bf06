"""Which charts a set of points makes: what is on their axes, and which lines are on them. Pure.

The page and the picture for slides draw the same charts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.pages.charts import Chart, ChartMark, Line
from remuda.base.units import show_number
from remuda.bench.judging.verdict import INVALID, SUSPECT
from remuda.bench.reporting.series import Axis, Series, axis_of, middles, pareto, series_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from remuda.bench.point import Point

#: The largest is this many times the smallest: then tenfolds are equally far apart.
_WIDE: Final = 25.0
_DOUBLES: Final = 6.0


@dataclass(frozen=True)
class Graph:
    """A chart and what is said below its title."""

    chart: Chart
    words: str


@dataclass(frozen=True)
class Graphs:
    """All charts of a report.

    Attributes:
        series: lines, in the order of their colours.
        first: throughput against what a user sees; None where no point knows both.
        others: over load.
        per_gpu: throughput is that of one GPU.
        names: of the series of each point, invalid or not, by the point's name.
    """

    series: tuple[Series, ...]
    first: Graph | None
    others: tuple[Graph, ...]
    per_gpu: bool
    names: Mapping[str, str]


def graphs_of(points: Sequence[Point], group: str = "") -> Graphs:
    """The charts of all points that are not invalid.

    Raises:
        InputError: nothing can be grouped by that.
    """
    every = series_of(points, group)
    series = tuple(
        Series(one.name, kept)
        for one in every
        if (kept := tuple(point for point in one.points if point.verdict != INVALID))
    )
    shown = [point for one in series for point in one.points]
    per_gpu = bool(shown) and all(point.output_per_gpu is not None for point in shown)
    axis = axis_of(shown)
    graphs = (
        _times("ttft", "Time to first token", axis, series),
        _times("tpot", "Time per output token", axis, series),
        _throughput(axis, series),
        _money(axis, series),
    )
    others = tuple(graph for graph in graphs if graph is not None)
    names = {point.name: one.name for one in every for point in one.points}
    return Graphs(series, _tradeoff(series, per_gpu=per_gpu), others, per_gpu, names)


def _tradeoff(series: Sequence[Series], *, per_gpu: bool) -> Graph | None:
    def y(point: Point) -> float | None:
        return point.output_per_gpu if per_gpu else point.of("output_tok_s")

    lines = _lines(series, lambda point: point.of("tok_s_user"), y, by_load=True)
    if not lines:
        return None
    what = "output tokens a second and GPU" if per_gpu else "output tokens a second"
    title = "Throughput per GPU against speed for each user" if per_gpu else "Throughput against speed for each user"
    frontier = pareto(place for line in lines for place in line.path)
    x = "tokens a second that a user sees (median)"
    chart = Chart(title, x, what, lines, frontier=frontier, is_named_inside=True)
    words = "Up and to the right is better. Each mark is one load; the broad band joins the loads that no other beats."
    return Graph(chart, words)


def _times(metric: str, title: str, axis: Axis, series: Sequence[Series]) -> Graph | None:
    both = [(statistic, _lines(series, axis.of, lambda point, of=statistic: point.of(metric, of)))  # type: ignore[misc]
            for statistic in ("p50", "p99")]  # fmt: skip
    every = [mark.y for _, lines in both for line in lines for mark in line.marks]
    if not every:
        return None
    factor, unit = (1.0, "s") if max(every) >= 10 else (1000.0, "ms")
    lines = [_scaled(line, factor, is_dashed=statistic == "p99") for statistic, found in both for line in found]
    is_log_y = min(every) > 0 and max(every) / min(every) > _WIDE
    chart = Chart(title, axis.label, unit, lines, _is_log(lines), is_log_y)
    has_upper = any(line.is_dashed for line in lines)
    words = "Median, and p99 dashed." if has_upper else "Median; a p99 needs 300 requests in a point."
    return Graph(chart, words + (" Logarithmic." if is_log_y else ""))


def _scaled(line: Line, factor: float, *, is_dashed: bool) -> Line:
    """In the unit of the axis; of a pair only the median has a name."""
    path = [(x, y * factor) for x, y in line.path]
    marks = [ChartMark(mark.x, mark.y * factor, mark.tip, mark.is_hollow) for mark in line.marks]
    return Line("" if is_dashed else line.name, line.number, path, marks, is_dashed)


def _throughput(axis: Axis, series: Sequence[Series]) -> Graph | None:
    lines = _lines(series, axis.of, lambda point: point.of("output_tok_s"))
    if not lines:
        return None
    chart = Chart("Throughput", axis.label, "output tokens a second", lines, _is_log(lines))
    return Graph(chart, "Of the whole endpoint.")


def _money(axis: Axis, series: Sequence[Series]) -> Graph | None:
    known = [point for one in series for point in one.points if point.per_million is not None]
    if not known:
        return None
    currency = Counter(point.currency for point in known).most_common(1)[0][0]

    def y(point: Point) -> float | None:
        return point.per_million if point.currency == currency else None

    lines = _lines(series, axis.of, y)
    costs = [point.cost or {} for point in known if point.currency == currency]
    prices = sorted({f"{cost.get('gpu_type') or 'a GPU'} {cost.get('per_gpu_hour', 0):g} {currency}" for cost in costs})
    sources = sorted({str(cost["source"]) for cost in costs if cost.get("source")})
    values = [mark.y for line in lines for mark in line.marks]
    is_log_y = min(values) > 0 and max(values) / min(values) > _WIDE
    chart = Chart("Money for a million output tokens", axis.label, currency, lines, _is_log(lines), is_log_y)
    words = f"By the hour: {', '.join(prices[:4])}{' and others' if len(prices) > 4 else ''}"
    words += f" ({'; '.join(sources[:2])})." if sources else "."
    return Graph(chart, words + (" Logarithmic." if is_log_y else ""))


def _lines(
    series: Sequence[Series],
    x: Callable[[Point], float | None],
    y: Callable[[Point], float | None],
    *,
    by_load: bool = False,
) -> list[Line]:
    """A line for each series that knows both; along the load where that is not on an axis."""
    found: list[Line] = []
    for number, one in enumerate(series):
        known = [(point, a, b) for point in one.points if (a := x(point)) is not None and (b := y(point)) is not None]
        if not known:
            continue
        marks = [ChartMark(a, b, tip(point, one.name), point.verdict == SUSPECT) for point, a, b in known]
        path = _along(known) if by_load else middles((a, b) for _, a, b in known)
        found.append(Line(one.name, number, path, marks))
    return found


def _along(known: Sequence[tuple[Point, float, float]]) -> list[tuple[float, float]]:
    """One place for each load, from its repeats, the lightest load first."""
    places: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for point, a, b in known:
        places.setdefault((point.load.rate, float(point.load.concurrency)), []).append((a, b))
    found: list[tuple[float, float]] = []
    for _, mine in sorted(places.items()):
        found.append((sorted(a for a, _ in mine)[len(mine) // 2], sorted(b for _, b in mine)[len(mine) // 2]))
    return found


def _is_log(lines: Sequence[Line]) -> bool:
    places = [x for line in lines for x, _ in line.path]
    return min(places) > 0 and max(places) / min(places) >= _DOUBLES


def tip(point: Point, name: str) -> str:
    """What a mark says."""
    ttft, tpot = (
        " / ".join(show_number(point.of(name, one), 1000) for one in ("p50", "p99")) for name in ("ttft", "tpot")
    )
    rate = point.of("output_tok_s")
    return "\n".join([
        f"{name}, {point.load.label}",
        f"{rate:,.1f} tok/s" if rate is not None else "",
        f"TTFT {ttft} ms",
        f"TPOT {tpot} ms",
        f"{point.name}, {point.verdict}",
    ]).replace("\n\n", "\n")  # fmt: skip
