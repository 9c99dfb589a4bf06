"""The picture of a rehearsal: for a file with matplotlib, for a terminal with nothing."""

from __future__ import annotations

import bisect
import html
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Final

from remuda.base.disk.files import write_named
from remuda.base.errors import InputError
from remuda.base.pages.charts import spark
from remuda.base.pages.plotting import check_plotting, saved
from remuda.rehearsal.model import DAY_S, HOUR_S, Hours

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.rehearsal.model import PolicyOutcome
    from remuda.rehearsal.study import Rehearsed

ENDINGS: Final = (".svg", ".png", ".html")
_COLOURS: Final = {"remuda": "#0072b2", "shepherd": "#e69f00", "requeue": "#8c8c8c"}
_PARTS: Final = {
    Hours.USEFUL: "#0072b2", Hours.CHECKPOINT: "#56b4e9", Hours.STARTUP: "#f0e442", Hours.LOST: "#d55e00",
    Hours.DETECTION: "#cc79a7", Hours.BACKOFF: "#b8b8b8", Hours.QUEUE: "#8c8c8c", Hours.PEOPLE: "#4d4d4d",
}  # fmt: skip


def check_plot(path: str | Path) -> None:
    """Say before the work what would be wrong with the picture after it.

    Raises:
        InputError: the file's ending is none of `ENDINGS`, or matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in ENDINGS:
        raise InputError(
            f"the picture's name must end with {', '.join(ENDINGS)}, not {Path(path).name!r}", where="--plot"
        )
    check_plotting("--plot")


def write_plot(done: Rehearsed, path: str | Path) -> None:
    """Draw progress over time and where the hours went, one line and one bar for each policy.

    Raises:
        InputError: as `check_plot`, or the file cannot be written.
    """
    check_plot(path)
    ending = Path(path).suffix.lower()
    drawn = _drawn(done, ".svg" if ending == ".html" else ending)
    if ending == ".html":
        drawn = _page(done, drawn.decode())
    write_named(Path(path), drawn)


def _drawn(done: Rehearsed, ending: str) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    scenario = done.scenario
    with mpl.rc_context({"svg.hashsalt": "remuda", "font.size": 9}):
        figure = Figure(figsize=(9, 6.4), layout="constrained")
        progress, hours = figure.subplots(2, 1, height_ratios=[2.2, 1])
        progress.plot([0, scenario.days], [0, scenario.days], linestyle=":", color="#999999", label="no interruption")
        for summary in done.summaries:
            for number, one in enumerate(summary.outcomes):
                first = number == 0
                progress.plot(
                    [at / DAY_S for at, _ in _whole(one)], [useful / DAY_S for _, useful in _whole(one)],
                    color=_COLOURS[summary.policy], alpha=1.0 if first else 0.25, linewidth=1.8 if first else 0.8,
                    label=f"{summary.policy}: {summary.effective:.1%}" if first else None,
                )  # fmt: skip
        progress.set_xlabel("days")
        progress.set_ylabel("days of work that was kept")
        progress.set_title(f"{scenario.job.nodes} of {scenario.nodes} nodes, failures: {done.asked.failures}")
        progress.legend(loc="upper left", frameon=False)
        _bars(hours, done)
        return saved(figure, ending, dpi=150)


def _bars(axes: object, done: Rehearsed) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    names = [summary.policy for summary in done.summaries][::-1]
    left = [0.0] * len(names)
    for what, colour in _PARTS.items():
        widths = [summary.hours(what) for summary in done.summaries][::-1]
        axes.barh(names, widths, left=left, color=colour, label=what.value, height=0.6)
        left = [begin + width for begin, width in zip(left, widths, strict=True)]
    axes.set_xlabel("hours")
    axes.set_xlim(0, done.scenario.wall_s / HOUR_S)
    axes.legend(ncols=8, loc="upper center", bbox_to_anchor=(0.5, -0.35), frameon=False, fontsize=7, columnspacing=0.9)


def _whole(outcome: PolicyOutcome) -> list[tuple[float, float]]:
    """Its points up to the end: nothing was kept after the last one."""
    return [*outcome.points, (outcome.wall_s, outcome.points[-1][1])]


def _page(done: Rehearsed, drawn: str) -> bytes:
    """One page that needs nothing else."""
    from remuda.rehearsal.study import RULES, notes

    items = [f"{one.policy}: {one.effective:.1%}, {RULES[one.policy]}" for one in done.summaries]
    items += [f"failures: {done.source}", *notes(done)]
    listed = "\n".join(f"<li>{html.escape(item)}</li>" for item in items)
    title = f"Rehearsal: {done.scenario.job.nodes} nodes, {done.scenario.days:g} days"
    style = "body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}svg{max-width:100%;height:auto}"
    head = f'<meta charset="utf-8"><title>{title}</title>\n<style>{style}</style>'
    body = f"<h1>{title}</h1>\n{drawn[drawn.index('<svg') :]}\n<ul>\n{listed}\n</ul>"
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'.encode()


def sparkline(outcome: PolicyOutcome, width: int = 60) -> str:
    """Share of useful time in each of `width` equal pieces of the whole, as bars of eight heights; blank: none."""
    points = _whole(outcome)
    edges = [outcome.wall_s * number / width for number in range(width + 1)]
    useful = [_at(points, edge) for edge in edges]
    return spark((after - before) * width / outcome.wall_s for before, after in itertools.pairwise(useful))


def _at(points: Sequence[tuple[float, float]], when: float) -> float:
    """Useful seconds up to a time, on the straight line between two points."""
    index = bisect.bisect_right(points, when, key=lambda point: point[0])
    if index >= len(points):
        return points[-1][1]
    (t0, u0), (t1, u1) = points[max(0, index - 1)], points[index]
    return u0 + (u1 - u0) * (when - t0) / (t1 - t0) if t1 > t0 else u1
