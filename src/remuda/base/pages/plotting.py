"""Charts as pictures for slides and papers: by matplotlib, which is the optional extra `plot`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.pages.charts import COLOURS, NAMES, beside, shape_of, show
from remuda.base.text import short

if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.base.pages.charts import Chart

COLOURS_OF_PRINT: Final = ("#1f4e9e", "#e07a00", "#007a68", "#b3378a", "#4aa3df", "#6e5200", "#7d858f", "#7a1f35")
_MARKS: Final = ("o", "s", "D", "^")
_INK: Final = "#16191d"
_SOFT: Final = "#59616b"
_RULE: Final = "#e3e6ea"
_FRONT: Final = "#d5dae1"
#: For `matplotlib.rc_context`.
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9, "text.color": _INK, "axes.labelcolor": _SOFT, "xtick.color": _SOFT, "ytick.color": _SOFT,
    "axes.edgecolor": _SOFT, "text.parse_math": False,
}  # fmt: skip


def check_plotting(where: str) -> None:
    """Say before the work that there will be no picture after it.

    Args:
        where: the flag that asks for one.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401 - asked whether it is there
    except ImportError as error:
        raise InputError(
            "a picture needs matplotlib, which is not installed", hint="pip install 'remuda[plot]'", where=where
        ) from error


def slide(title: str, ending: str, paint: Callable[[Any], None]) -> bytes:
    """One picture, 16:9 and light.

    Args:
        title: above it.
        ending: `.png` or `.pdf`.
        paint: puts all else on matplotlib's figure.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13.33, 7.5), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
        figure.suptitle(short(title, 90), fontsize=17, fontweight="bold", x=0.012, ha="left")
        paint(figure)
        return saved(figure, ending, dpi=144, facecolor="white")


def saved(figure: Any, ending: str, **how: Any) -> bytes:
    """A figure as a file; the same figure makes the same one."""
    undated = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    out = io.BytesIO()
    figure.savefig(out, format=ending[1:], metadata=undated.get(ending), **how)
    return out.getvalue()


def draw(axes: Any, chart: Chart, *, is_small: bool = False) -> None:
    """A chart on matplotlib's axes; without the names of its lines."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    if chart.is_log_x:
        axes.set_xscale("log", base=2)
    if chart.is_log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, max(y for line in chart.lines for _, y in line.places) * 1.08 or 1.0)
    if not chart.is_log_x:
        axes.set_xlim(0, max(x for line in chart.lines for x, _ in line.places) * 1.08 or 1.0)
    axes.xaxis.set_minor_locator(NullLocator())
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
    if len(chart.frontier) > 1:
        axes.plot(*zip(*chart.frontier, strict=True), color=_FRONT, linewidth=11, solid_capstyle="round", zorder=1)
    for line in chart.lines:
        colour, mark = COLOURS_OF_PRINT[line.number % COLOURS], _MARKS[shape_of(line.number)]
        axes.plot(*zip(*line.path, strict=True), color=colour, linewidth=1.3 if line.is_dashed else 1.8,
                  linestyle="--" if line.is_dashed else "-", zorder=2)  # fmt: skip
        for is_hollow in (False, True):
            mine = [one for one in line.marks if one.is_hollow == is_hollow]
            if mine:
                axes.scatter([one.x for one in mine], [one.y for one in mine], marker=mark, s=16 if is_small else 30,
                             facecolor="white" if is_hollow else colour, edgecolor=colour, zorder=3)  # fmt: skip
    axes.grid(axis="y", color=_RULE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title(chart.title, loc="left", fontsize=10 if is_small else 13, fontweight="bold")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)


def name_lines(axes: Any, chart: Chart, dpi: float) -> None:
    """Each line's name beside it, in its colour."""
    from matplotlib.patheffects import withStroke

    scale = 72 / dpi
    lines = [line for line in chart.lines if line.name]
    if len(lines) > NAMES:
        return
    names = [line.name if len(line.name) <= 40 else f"{line.name[:39]}…" for line in lines]
    paths = [[(px * scale, -py * scale) for px, py in axes.transData.transform(line.path)] for line in lines]
    (left, bottom), (right, top) = (axes.transAxes.transform(corner) * scale for corner in ((0, 0), (1, 1)))
    places = beside(names, paths, (left, -top, right, -bottom), 7.0)
    for line, name, path, (at, base) in zip(lines, names, paths, places, strict=True):
        axes.annotate(
            name, line.path[-1], xytext=(at - path[-1][0], path[-1][1] - base), textcoords="offset points",
            color=COLOURS_OF_PRINT[line.number % COLOURS], fontsize=11, fontweight="bold", annotation_clip=False,
            path_effects=[withStroke(linewidth=4, foreground="white")],
        )  # fmt: skip
