"""A recording as one page that opens without a network: facts, a map of all GPUs, lines, tables. Pure.

Names of processes, nodes and recordings were given by others: all of it goes through `said`, which cuts and escapes it.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from remuda.base.pages import page as html
from remuda.base.pages.charts import Scale, escape, show, swatch, ticks
from remuda.base.pages.page import said
from remuda.base.units import show_counted, show_duration, show_energy, show_share, show_tenths
from remuda.profile.analysis import METRICS, analyse
from remuda.profile.facts import facts
from remuda.profile.graphs import graphs_of
from remuda.profile.tables import tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from remuda.profile.analysis import Analysis
    from remuda.profile.columns import Recorded
    from remuda.profile.graphs import Heat, RecordingGraphs
    from remuda.profile.tables import Table

_LEVELS: Final = 10
_NOTES: Final = 60
#: Letters of a cell, from here on.
_LONG: Final = 24
_WORDS: Final = {
    "idle": "share of the time in which the driver said 0 % busy; where no sample was taken nothing is known",
    "energy": "differences of the GPU's own counter; «by power»: it has none, so its power was added up instead",
    "seen": "share of the time from the first to the last sample in which samples were taken as often as they were due",
    "own part": "share of the multiprocessors' time that was the task's or the process's own",
    "shared": "others were on the GPU; its joules are split by own parts, second by second, and add up",
    "mean · p50 · p95 · max": "over time: a sample counts for as long as it stands for; one number: all four are that",
}


def page(recorded: Recorded, analysis: Analysis | None = None, *, title: str = "", now: float) -> str:
    """The whole document.

    Args:
        recorded: any.
        analysis: of it, where it has been made already.
        title: empty for the name of the recording.
        now: seconds since 1970.
    """
    analysis = analysis or analyse(recorded)
    graphs = graphs_of(recorded)
    heading = said(title or recorded.name or "What the GPUs did", 160)
    body = [
        f"<header><h1>{heading}</h1>{_head(recorded, analysis)}{_tiles(analysis)}</header>",
        _facts(analysis), _map(graphs), _charts(graphs), *map(_table, tables(analysis)), _notes(recorded),
        _definitions(),
    ]  # fmt: skip
    return html.document(heading, body, now)


def _head(recorded: Recorded, analysis: Analysis) -> str:
    kinds: dict[str, int] = {}
    for row in analysis.gpus:
        kinds[row.name or "GPU"] = kinds.get(row.name or "GPU", 0) + 1
    nodes = list(dict.fromkeys(row.node for row in analysis.gpus))
    samples, expected = (
        sum(of) for of in zip(*((row.use.samples, row.expected) for row in analysis.gpus), strict=True)
    )
    intervals = sorted({track.interval_s for track in recorded.tracks})
    return html.facts([
        ("Recorded", f"{_time(analysis.begin_us)} to {_time(analysis.end_us)} UTC, {show_duration(recorded.span_s)}"),
        ("GPUs", said("; ".join(f"{count} × {name}" for name, count in kinds.items()))),
        ("Nodes", said(", ".join(nodes[:8]) + (f" and {len(nodes) - 8} more" if len(nodes) > 8 else ""))),
        ("Samples", f"{samples:,} of {expected:,} that were due, one every {_periods(intervals)}"),
    ])  # fmt: skip


def _periods(intervals: Sequence[float]) -> str:
    return " or ".join(f"{one * 1000:.0f} ms" if one < 1 else f"{one:g} s" for one in intervals[:3])


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _tiles(analysis: Analysis) -> str:
    rows, items = analysis.gpus, []
    seconds = sum(row.use.seconds for row in rows)
    if busy := [(row.use.stats["busy"].mean, row.use.seconds) for row in rows if "busy" in row.use.stats]:
        mean = sum(value * weight for value, weight in busy) / sum(weight for _, weight in busy)
        items.append(html.tile("Busy", f"{mean:.0f}", "%", f"mean of {show_counted(len(rows), 'GPU')}"))
    if idle := [(row.use.idle, row.use.seconds) for row in rows if row.use.idle is not None]:
        share = sum(value * weight for value, weight in idle) / sum(weight for _, weight in idle)
        items.append(html.tile("Idle", *_split(show_share(share)), f"of {show_duration(seconds)} of GPU time"))
    if analysis.joules is not None:
        items.append(html.tile("Energy", *_split(show_energy(analysis.joules)), "of all GPUs"))
    for what, name in (("Most memory", "memory"), ("Hottest", "temperature")):
        if known := [(row.use.stats[name].max, row) for row in rows if name in row.use.stats]:
            most, row = max(known, key=lambda pair: pair[0])
            unit = next(metric.unit for metric in METRICS if metric.name == name)
            items.append(html.tile(what, show_tenths(most), unit, f"GPU {row.index} of {row.node}"))
    return html.tiles(items)


def _split(text: str) -> tuple[str, str]:
    number, _, unit = text.partition(" ")
    return number, unit


def _facts(analysis: Analysis) -> str:
    found = facts(analysis)
    items = "".join(f"<li>{said(one[0].upper() + one[1:], 300)}.</li>" for one in found)
    return f'<section><h2>What stands out</h2><ul class="why">{items}</ul></section>' if found else ""


# Pictures


def _map(graphs: RecordingGraphs) -> str:
    if graphs.heat is None:
        return ""
    words = "A row a GPU; darker is busier, the lightest is idle, and where the paper shows nothing was sampled."
    wide, narrow = _heat(graphs.heat, 1032, "wide"), _heat(graphs.heat, 360, "narrow")
    figure = f"<figure><h2>When they were busy</h2><figcaption>{words}</figcaption>{wide}{narrow}</figure>"
    return f"<section>{figure}</section>"


def _heat(heat: Heat, width: int, kind: str) -> str:
    left, high = (96 if kind == "wide" else 64), (16 if len(heat.names) <= 32 else 10)
    bottom = 6 + high * len(heat.names)
    x = Scale(0.0, heat.end, left, width - 14)
    step = (width - 14 - left) / heat.levels.shape[1]
    parts = [
        f'<svg class="chart {kind}" viewBox="0 0 {width} {bottom + 44}" role="img" aria-label="When GPUs were busy">'
    ]
    every = max(1, -(-11 // high))
    for number, name in list(enumerate(heat.names))[::every]:
        at = 6 + high * number + high / 2 + 4
        parts.append(f'<text class="tick" x="{left - 8}" y="{at:.0f}" text-anchor="end">{said(name, left // 7)}</text>')
    for level, path in _levels(heat, left, step, high):
        parts.append(f'<path class="heat" fill-opacity="{0.08 + 0.92 * level / _LEVELS:.2f}" d="{path}"/>')
    parts += [
        f'<text class="tick" x="{x.at(value):.0f}" y="{bottom + 18}" text-anchor="middle">{show(value)}</text>'
        for value in ticks(x, max(4, width // 110))
        if value <= heat.end
    ]
    middle = (left + width - 14) / 2
    parts.append(f'<text class="label" x="{middle:.0f}" y="{bottom + 38}" text-anchor="middle">{escape(heat.x)}</text>')
    return "".join([*parts, "</svg>"])


def _levels(heat: Heat, left: int, step: float, high: int) -> Iterator[tuple[int, str]]:
    """For each level one path of all stretches that have it."""
    shown = np.where(np.isfinite(heat.levels), np.ceil(np.nan_to_num(heat.levels) / 100 * _LEVELS).clip(0, _LEVELS), -1)
    paths: dict[int, list[str]] = {}
    for number, row in enumerate(shown.astype(int)):
        edges = [0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), len(row)]
        for begin, end in itertools.pairwise(edges):
            if row[begin] >= 0:
                at, wide = left + begin * step, (end - begin) * step
                box = f"M{at:.1f} {7 + high * number}h{wide:.1f}v{high - 2}H{at:.1f}z"
                paths.setdefault(int(row[begin]), []).append(box)
    for level in sorted(paths):
        yield level, "".join(paths[level])


def _charts(graphs: RecordingGraphs) -> str:
    if not graphs.charts:
        return ""
    items = "".join(f"<li>{swatch(number)}{said(name)}</li>" for number, name in enumerate(graphs.names))
    key = f'<ul class="key">{items}</ul>' if items else ""
    figures = "".join(html.figure(chart, words, (510, 300)) for chart, words in graphs.charts)
    return f'<section>{key}<div class="pair">{figures}</div></section>'


# Words


def _table(table: Table) -> str:
    columns = [(escape(name), _kind(table, number)) for number, name in enumerate(table.columns)]
    rows = ([said(cell, 80) for cell in row] for row in table.rows)
    is_first = table.title == "GPUs" and any(" · " in cell for row in table.rows for cell in row)
    words = '<p class="soft">Four numbers in a cell are mean · p50 · p95 · max.</p>' if is_first else ""
    more = f'<p class="soft">and {table.more:,} more: they are in the CSV and the JSON</p>' if table.more else ""
    return html.table(escape(table.title), columns, rows) + words + more


def _kind(table: Table, column: int) -> str:
    """Words stand at the left, and only long ones get a wide column and are broken."""
    if column not in table.words:
        return ""
    return "l n" if any(len(row[column]) > _LONG for row in table.rows) else "l"


def _notes(recorded: Recorded) -> str:
    notes = [note for note in recorded.notes if note.kind not in ("start", "end")]
    if not notes:
        return ""
    items = "".join(
        f'<li><span class="code">{_time(note.at_us)}</span> {said(note.node, 60)}, {said(note.kind, 20)}: '
        f"{said(note.text, 300)}</li>"
        for note in notes[:_NOTES]
    )
    more = f"<li>and {len(notes) - _NOTES:,} more</li>" if len(notes) > _NOTES else ""
    return f'<section><h2>What happened meanwhile</h2><ul class="why">{items}{more}</ul></section>'


def _definitions() -> str:
    words = {**_WORDS, **{metric.name.replace("_", " "): f"{metric.about}, {metric.unit}" for metric in METRICS}}
    return f"<section><h2>What the numbers mean</h2>{html.words(words.items())}</section>"
