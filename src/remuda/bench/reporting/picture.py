"""The charts of a report as one PNG, for slides: by matplotlib, which is the optional extra `plot`."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError
from remuda.base.pages.plotting import STYLE, check_plotting, draw, name_lines

if TYPE_CHECKING:
    from remuda.bench.reporting.graphs import Graphs


def picture(graphs: Graphs, title: str) -> bytes:
    """PNG, 16:9 and light.

    Raises:
        InputError: matplotlib is not installed, or no point counts.
    """
    check_plotting("--png")
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    every = [graph.chart for graph in (graphs.first, *graphs.others) if graph is not None]
    if not every:
        raise InputError("there is nothing to draw: no point counts", hint="see why: remuda bench list", where="--png")
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13.33, 7.5), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
        figure.suptitle(
            title if len(title) <= 90 else f"{title[:89]}…", fontsize=17, fontweight="bold", x=0.012, ha="left"
        )
        halves: Any = figure.subfigures(1, 2, width_ratios=[1.25, 1])
        left, right = halves
        first = left.subplots()
        draw(first, every[0])
        others = every[1:4]
        if others:
            for axes, chart in zip(right.subplots(len(others), 1, squeeze=False)[:, 0], others, strict=True):
                draw(axes, chart, is_small=True)
        figure.draw_without_rendering()  # Places are known when the layout is.
        name_lines(first, every[0], figure.dpi)
        out = io.BytesIO()
        figure.savefig(out, format="png", dpi=144, facecolor="white")
    return out.getvalue()
