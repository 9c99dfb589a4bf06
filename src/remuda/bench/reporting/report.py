"""Points as one page that needs nothing else: charts, a table, and why some do not count. Pure.

Whatever stands in a point was written by others: all of it goes through `said`, which cuts and escapes it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from remuda.base.errors import InputError
from remuda.base.pages import page as html
from remuda.base.pages.charts import escape, swatch
from remuda.base.pages.page import day, said
from remuda.base.text import short
from remuda.base.units import show_money, show_number
from remuda.bench.judging.measures import DEFINITIONS
from remuda.bench.judging.verdict import INVALID, SUSPECT, VALID
from remuda.bench.reporting.graphs import graphs_of
from remuda.bench.reporting.series import series_of, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from remuda.bench.point import Point
    from remuda.bench.reporting.graphs import Graphs

#: Points of one page: it stays below 5 MB, and a browser draws it at once.
MOST: Final = 3000
#: Marks that say something when somebody points at them.
_TIPS: Final = 1500
_LISTED: Final = 60
_SYMBOLS: Final = {VALID: "✓", SUSPECT: "◐", INVALID: "✗"}


def page(points: Sequence[Point], *, title: str = "", group: str = "", now: float) -> str:
    """The whole document.

    Args:
        points: any, also invalid ones: these are not drawn.
        title: empty for one that says what was measured.
        group: `meta.KEY`: a line for each of its values.
        now: seconds since 1970.

    Raises:
        InputError: there are too many points, or nothing can be grouped by that.
    """
    if len(points) > MOST:
        hint = "name those that belong on one page: remuda bench report ID…"
        raise InputError(f"a report holds {MOST:,} points at most, not {len(points):,}", hint=hint)
    loads = [point for point in points if point.accuracy is None]
    graphs = graphs_of(loads, group if loads else "")
    if group:
        names = {point.name: one.name for one in series_of(points, group) for point in one.points}
        graphs = replace(graphs, names=names)
    heading = said(title or title_of(points), 160)
    body = [
        f"<header><h1>{heading}</h1>{_facts(points)}{_tiles(graphs)}</header>",
        _pictures(graphs, points),
        _table(points, graphs),
        _reasons(points),
        _definitions(points),
    ]
    return html.document(heading, body, now)


def _several(words: Iterable[str], most: int = 4) -> str:
    """Each once, in the order of appearance; the rest is counted."""
    found = list(dict.fromkeys(word for word in words if word))
    rest = f" and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(said(word, 90) for word in found[:most]) + rest


def title_of(points: Sequence[Point]) -> str:
    """What a report is called that nobody named."""
    models = list(dict.fromkeys(shortened({point.model for point in points}).values()))
    return f"Benchmark of {models[0]}" if len(models) == 1 else f"Benchmark of {len(models)} models"


# What was measured


def _facts(points: Sequence[Point]) -> str:
    counts = Counter(point.verdict for point in points)
    days = sorted({day(point.started_at) for point in points if point.started_at})
    gpus = [f"{point.hardware.gpus} × {point.hardware.gpu_type or 'GPU'}" for point in points if point.hardware.gpus]
    loads = [f"{point.load.isl:,} tokens in, {point.load.osl:,} out, cache {point.load.cache}"
             for point in points if point.accuracy is None]  # fmt: skip
    rows = [
        ("Model", _several(point.model for point in points)),
        ("Endpoint", _several(point.endpoint for point in points)),
        ("Engine", _several(point.engine for point in points)),
        ("GPUs", _several(gpus)),
        ("Load", _several(loads)),
        ("Arrivals", _several("open loop, " + point.load.arrival if point.load.is_open else "closed loop"
                              for point in points)),
        ("Measured", said(days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}") if days else ""),
        ("Source", _several(point.source for point in points if point.source != "remuda")),
        ("Points", f"{len(points):,}: " + ", ".join(
            f"{counts[word]:,} {word}" for word in (VALID, SUSPECT, INVALID) if counts[word])),
    ]  # fmt: skip
    return html.facts(rows)


def _tiles(graphs: Graphs) -> str:
    """The numbers that people ask for first; of points that count, or, where there are none, of suspect ones."""
    shown = [point for one in graphs.series for point in one.points]
    best = [point for point in shown if point.verdict == VALID] or shown

    def rate(point: Point) -> float | None:
        return point.output_per_gpu if graphs.per_gpu else point.of("output_tok_s")

    def ttft(point: Point) -> float | None:
        return None if (value := point.of("ttft")) is None else -value

    def money(point: Point) -> float | None:
        return None if point.per_million is None else -point.per_million

    unit = "tok/s per GPU" if graphs.per_gpu else "tok/s"
    asked: list[tuple[str, str, Callable[[Point], float | None]]] = [
        ("Highest throughput", unit, rate),
        ("Fastest for a user", "tok/s", lambda point: point.of("tok_s_user")),
        ("Shortest median TTFT", "ms", ttft),
    ]
    if len(currencies := {point.currency for point in best if point.per_million is not None}) == 1:
        asked.append(("Cheapest million tokens out", currencies.pop(), money))
    tiles = []
    for what, unit_, of in asked:
        known = [(value, point) for point in best if (value := of(point)) is not None]
        if known:
            value, point = max(known, key=lambda pair: pair[0])
            number = abs(value) * 1000 if unit_ == "ms" else abs(value)
            words = point.load.label if len(graphs.series) == 1 else f"{graphs.names[point.name]}, {point.load.label}"
            mark = "" if point.verdict == VALID else ", suspect"
            tiles.append(html.tile(what, show_number(number), unit_, words + mark))
    return html.tiles(tiles)


# Charts


def _pictures(graphs: Graphs, points: Sequence[Point]) -> str:
    if not graphs.series:
        if all(point.accuracy for point in points):
            return ""
        return '<section><h2>No chart</h2><p class="soft">No point counts; below is why.</p></section>'
    with_tips = len(points) <= _TIPS
    key = _key(graphs, points)
    if graphs.first is None:
        first, *others = graphs.others
    else:
        first, others = graphs.first, list(graphs.others)
    pairs = "".join(html.figure(graph.chart, graph.words, (510, 340), with_tips=with_tips) for graph in others)
    return (
        f"<section>{html.figure(first.chart, first.words, (1032, 470), with_tips=with_tips, key=key)}</section>"
        f'<section class="pair">{pairs}</section>'
    )


def _key(graphs: Graphs, points: Sequence[Point]) -> str:
    items = [f"<li>{swatch(number)}{said(one.name)}</li>" for number, one in enumerate(graphs.series[:40])]
    if len(graphs.series) > 40:
        items.append(f"<li>and {len(graphs.series) - 40} more</li>")
    if any(point.verdict == SUSPECT for point in points):
        mark = '<circle class="mark hollow soft-ink" cx="14" cy="6" r="4.2"/>'
        items.append(f'<li><svg viewBox="0 0 28 12" aria-hidden="true">{mark}</svg>hollow: suspect</li>')
    if missing := sum(1 for point in points if point.verdict == INVALID):
        points_ = "1 invalid point is" if missing == 1 else f"{missing:,} invalid points are"
        items.append(f'<li><a class="invalid" href="#why">{points_} not drawn</a></li>')
    return f'<ul class="key">{"".join(items)}</ul>'


# All points


def _columns(points: Sequence[Point], names: Mapping[str, str]) -> list[tuple[str, str, Callable[[Point], str]]]:
    """Heading, class and cell; a column that no point knows is left out."""

    def ms(metric: str, statistic: str) -> Callable[[Point], str]:
        return lambda point: show_number(point.of(metric, statistic), 1000)

    every: list[tuple[str, str, Callable[[Point], str]]] = [
        ("point", "l code", lambda point: escape(point.name)),
        ("series", "l n", lambda point: said(names.get(point.name, "–"), 60)),
        ("load", "l", lambda point: said(point.label, 60)),
        ("score", "", lambda point: said(point.score or "–", 60)),
        ("in / out", "", lambda point: f"{point.load.isl:,} / {point.load.osl:,}"),
        ("requests", "", lambda point: f"{int(point.of('measured') or 0):,}"),
        ("TTFT<br>p50, ms", "", ms("ttft", "p50")), ("TTFT<br>p99, ms", "", ms("ttft", "p99")),
        ("TPOT<br>p50, ms", "", ms("tpot", "p50")), ("TPOT<br>p99, ms", "", ms("tpot", "p99")),
        ("tok/s<br>user", "", lambda point: show_number(point.of("tok_s_user"))),
        ("out<br>tok/s", "", lambda point: show_number(point.of("output_tok_s"))),
        ("out tok/s<br>per GPU", "", lambda point: show_number(point.output_per_gpu)),
        ("req/s", "", lambda point: show_number(point.of("req_s"))),
        ("good<br>req/s", "", lambda point: show_number(point.of("goodput_req_s"))),
        ("cost of 1M<br>out", "", lambda point: show_money(point.per_million, said(point.currency, 8))),
        ("SLO", "l", lambda point: {True: "met", False: "missed", None: "–"}[point.slo_met()]),
    ]  # fmt: skip
    if len({(point.load.isl, point.load.osl) for point in points}) == 1:  # The top of the page says them.
        every = [column for column in every if column[0] != "in / out"]
    kept = [column for column in every if any(column[2](point) != "–" for point in points)]
    return [*kept, ("verdict", "l", _verdict)]


def _verdict(point: Point) -> str:
    codes = ", ".join(dict.fromkeys(check.code for check in point.reasons))
    words = f"{_SYMBOLS.get(point.verdict, '')} {said(point.verdict, 20)}"
    changed = ", changed rules" if point.changed else ""
    return f'<span class="{said(point.verdict, 20)}">{words}</span>{f" {codes}" if codes else ""}{changed}'


def _table(points: Sequence[Point], graphs: Graphs) -> str:
    names = graphs.names if len(set(graphs.names.values())) > 1 else {}
    columns = _columns(points, names)
    order = {one.name: number for number, one in enumerate(graphs.series)}

    def place(point: Point) -> tuple[float, ...]:
        load = point.load
        line = order.get(names.get(point.name, ""), len(order))
        return line, load.isl, load.osl, load.rate, load.concurrency, point.repeat

    rows = ([of(point) for _, _, of in columns] for point in sorted(points, key=place))
    return html.table("All points", [(name, kind) for name, kind, _ in columns], rows)


# Why some do not count


def _reasons(points: Sequence[Point]) -> str:
    parts = []
    invalid = [point for point in points if point.verdict == INVALID]
    suspect = [point for point in points if point.verdict == SUSPECT]
    changed = list(dict.fromkeys(itertools.chain.from_iterable(point.changed for point in points)))
    if invalid:
        note = "They are in no chart and in no best number."
        parts.append(f'<h2 id="why">Invalid points</h2><p class="soft">{note}</p>{_by_point(invalid)}')
    if suspect:
        note = "They are drawn hollow; read them with care."
        parts.append(f'<details{"" if invalid else " open"}><summary>{len(suspect):,} suspect: why</summary>'
                     f'<p class="soft">{note}</p>{_by_rule(suspect)}</details>')  # fmt: skip
    if changed:
        parts.append(f'<p class="soft">Thresholds that demand less than the usual ones: {_several(changed, 12)}.</p>')
    return f"<section>{''.join(parts)}</section>" if parts else ""


def _by_point(points: Sequence[Point]) -> str:
    items = []
    for point in points[:_LISTED]:
        rules = "".join(f"<li><b>{check.code}</b> {check.name}: {said(check.text, 300)}</li>"
                        for check in point.reasons if check.state == INVALID)  # fmt: skip
        what = f"{point.load.label}, {short(point.model, 60)} at {short(point.endpoint, 60)}"
        items.append(f'<li><span class="code">{escape(point.name)}</span> {said(what, 200)}<ul>{rules}</ul></li>')
    if len(points) > _LISTED:
        items.append(f"<li>and {len(points) - _LISTED:,} more; the table names their rules</li>")
    return f'<ul class="why">{"".join(items)}</ul>'


def _by_rule(points: Sequence[Point]) -> str:
    """Rules, the most frequent first, each with the words of one point."""
    found: dict[str, list[tuple[Point, str, str]]] = {}
    for point in points:
        for check in point.reasons:
            found.setdefault(check.code, []).append((point, check.name, check.text))
    items = []
    for code, mine in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        names = ", ".join(escape(point.name) for point, _, _ in mine[:12]) + (" …" if len(mine) > 12 else "")
        items.append(f"<li><b>{code}</b> {mine[0][1]}, {len(mine):,} of {len(points):,}: {said(mine[0][2], 300)}"
                     f'<ul><li class="code">{names}</li></ul></li>')  # fmt: skip
    return f'<ul class="why">{"".join(items)}</ul>'


def _definitions(points: Sequence[Point]) -> str:
    versions = sorted({point.definitions for point in points})
    note = "" if len(versions) == 1 else (
        f"<p>These points were measured by different versions of the definitions ({', '.join(map(str, versions))}): "
        "their numbers are not quite the same thing.</p>"
    )  # fmt: skip
    words = {
        **DEFINITIONS, "per GPU": "divided by the GPUs that are allocated, busy or not",
        "cost": "GPUs × price of an hour × hours of the window / output tokens delivered in it",
    }  # fmt: skip
    return f"<section><h2>What the numbers mean</h2>{note}{html.words(words.items())}</section>"
