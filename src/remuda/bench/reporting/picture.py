"""The charts of a report as one PNG, for slides: by matplotlib, which is the optional extra `plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError
from remuda.base.pages.plotting import check_plotting, draw, name_lines, slide

if TYPE_CHECKING:
    from remuda.bench.reporting.graphs import Graphs


def picture(graphs: Graphs, title: str) -> bytes:
    """PNG, 16:9 and light.

    Raises:
        InputError: matplotlib is not installed, or no point counts.
    """
    check_plotting("--png")
    charts = [graph.chart for graph in (graphs.first, *graphs.others) if graph is not None]
    if not charts:
        raise InputError("there is nothing to draw: no point counts", hint="see why: remuda bench list", where="--png")

    first, others = charts[0], charts[1:4]

    def paint(figure: Any) -> None:
        left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
        large = left.subplots()
        draw(large, first)
        if others:
            for axes, chart in zip(right.subplots(len(others), 1, squeeze=False)[:, 0], others, strict=True):
                draw(axes, chart, is_small=True)
        figure.draw_without_rendering()  # Places are known when the layout is.
        name_lines(large, first, figure.dpi)

    return slide(title, ".png", paint)
