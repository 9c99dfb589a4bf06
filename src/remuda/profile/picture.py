"""A recording on paper: PNG for slides, PDF for print, by matplotlib, which is the optional extra `plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError
from remuda.base.pages.charts import COLOURS
from remuda.base.pages.plotting import COLOURS_OF_PRINT, check_plotting, draw, slide
from remuda.profile.graphs import graphs_of

if TYPE_CHECKING:
    from remuda.base.pages.charts import Chart
    from remuda.profile.columns import Recorded
    from remuda.profile.graphs import Heat

#: By the ending of the file; HTML is `report.page`.
PICTURES: Final = (".html", ".png", ".pdf")
_CHARTS: Final = 6


def check_picture(ending: str, where: str = "--plot") -> None:
    """Say before the work that there will be no picture after it.

    Raises:
        InputError: the ending is none of `PICTURES`, or matplotlib is needed and not installed.
    """
    if ending not in PICTURES:
        raise InputError(f"a picture's name must end with {', '.join(PICTURES)}, not {ending!r}", where=where)
    if ending != ".html":
        check_plotting(where)


def picture(recorded: Recorded, ending: str, title: str = "") -> bytes:
    """The map of all GPUs and up to six lines, light, 16:9.

    Args:
        recorded: any.
        ending: `.png` or `.pdf`.
        title: empty for the name of the recording.

    Raises:
        InputError: matplotlib is not installed.
    """
    check_picture(ending)
    graphs = graphs_of(recorded)

    def paint(figure: Any) -> None:
        above, below = figure.subfigures(2, 1, height_ratios=[1, 1.8])
        if graphs.heat is not None:
            _heat(above.subplots(), graphs.heat)
        charts = [chart for chart, _ in graphs.charts[:_CHARTS]]
        if charts:
            columns = min(3, len(charts))
            grid = below.subplots(-(-len(charts) // columns), columns, squeeze=False).flatten()
            for axes in grid[len(charts) :]:
                axes.set_visible(False)
            for axes, chart in zip(grid, charts, strict=False):
                draw(axes, chart, is_small=True)
            _key(figure, charts[0])

    return slide(title or recorded.name or "What the GPUs did", ending, paint)


def _key(figure: Any, chart: Chart) -> None:
    """Names of the lines at the top right, in their colours."""
    from matplotlib.lines import Line2D

    lines = [line for line in chart.lines if line.name]
    marks = [
        Line2D([], [], color=COLOURS_OF_PRINT[line.number % COLOURS], linestyle="--" if line.is_dashed else "-")
        for line in lines
    ]
    figure.legend(marks, [line.name[:30] for line in lines], loc="upper right", ncols=8, frameon=False)


def _heat(axes: Any, heat: Heat) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("busy", ["#eceff4", COLOURS_OF_PRINT[0]])
    axes.imshow(
        heat.levels, aspect="auto", interpolation="nearest", cmap=colours, vmin=0, vmax=100,
        extent=(0, heat.end, len(heat.names) - 0.5, -0.5),
    )  # fmt: skip
    every = max(1, -(-len(heat.names) // 16))
    axes.set_yticks(range(0, len(heat.names), every), [name[:20] for name in heat.names[::every]])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_title("When they were busy", loc="left", fontsize=12, fontweight="bold")
    axes.set_xlabel(heat.x)
