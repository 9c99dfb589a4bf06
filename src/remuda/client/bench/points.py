"""What is done with points that are kept: they are compared, and shown on a page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from remuda.base.disk.files import write_named
from remuda.base.errors import InputError, NotFound
from remuda.base.pages.plotting import check_plotting
from remuda.bench.judging.compare import compare, read_floor
from remuda.bench.reporting import picture
from remuda.bench.reporting.graphs import graphs_of
from remuda.bench.reporting.report import page, title_of
from remuda.bench.store import named

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from remuda.bench.judging.compare import Comparison
    from remuda.bench.point import Point
    from remuda.bench.store import PointStore


def chosen(points: Sequence[Point], names: Sequence[str]) -> list[Point]:
    """Points by name or the beginning of their id, each once; commas separate several in one word.

    Raises:
        NotFound: there is none of a name.
        InputError: a name is the beginning of several.
    """
    words = [word.strip() for name in names for word in name.split(",")]
    if not all(words):
        raise InputError("a name of a point is empty", hint="write 3f9a01c2-1,3f9a01c2-2")
    found = [point for word in words for point in named(points, word)]
    return list({(point.id, point.repeat): point for point in found}.values())


def compared(kept: PointStore, a: str, b: str, floor: str, *, with_invalid: bool) -> Comparison:
    """A against B.

    Raises:
        NotFound: a point is not there.
        InputError: a name or the floor is wrong, a point does not count, or the loads have nothing in common.
    """
    share = read_floor(floor)
    points = kept.points()
    return compare(chosen(points, [a]), chosen(points, [b]), share, with_invalid=with_invalid)


def reported(kept: PointStore, names: Sequence[str]) -> list[Point]:
    """The points that are named, or all.

    Raises:
        NotFound: there is no point, or none of a name.
    """
    points = chosen(kept.points(), names) if names else kept.points()
    if not points:
        raise NotFound("there are no points yet", hint="measure: remuda bench --endpoint URL")
    return points


def write_report(
    points: list[Point], out: Path, *, title: str = "", group: str = "", png: Path | None = None
) -> list[Point]:
    """Write the page, and the picture where one is wanted; returns what is on it.

    Raises:
        InputError: nothing can be grouped by that, or a file cannot be written.
    """
    if png is not None:
        check_plotting("--png")
        loads = [point for point in points if point.accuracy is None]
        if not loads:
            raise InputError("answers to questions have no chart", hint="leave --png out", where="--png")
    now = time.time()
    write_named(out, page(points, title=title, group=group, now=now).encode(errors="replace"))
    if png is not None:
        write_named(png, picture.picture(graphs_of(loads, group), title or title_of(points)))
    return points
