"""`bench compare | report`: what comes of points that are kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remuda.base.units import show_counted, show_ms, show_number
from remuda.cli.lazy import examples, together
from remuda.cli.show import echo, print_json, say, table

if TYPE_CHECKING:
    from remuda.bench.judging.compare import Comparison, Difference, Pair
    from remuda.bench.point import Point


compare_options = together(
    click.argument("a"),
    click.argument("b"),
    click.option("--floor", default="3%", show_default=True, help="Ignore differences smaller than this."),
    click.option("--allow-invalid", is_flag=True, help="Include invalid points."),
    click.option("--fail-on-regression", is_flag=True, help="Exit with 1 when a metric is worse."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)
report_options = together(
    click.option(
        "-o", "--output", default="report.html", show_default=True, type=click.Path(path_type=Path), help="File."
    ),
    click.option("--group", default="", metavar="meta.KEY", help="Draw one line for each value of this --meta key."),
    click.option("--title", default="", help="Heading of the page."),
    click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="Write a picture for slides, too."),
)


@click.command(
    epilog=examples(
        "remuda bench compare 3f9a01c2 77b20c1e",
        "remuda bench compare 3f9a01c2-1,3f9a01c2-2 77b20c1e --fail-on-regression",
    )
)
@compare_options
def compare(a: str, b: str, floor: str, allow_invalid: bool, fail_on_regression: bool, as_json: bool) -> int:
    """Show which metrics of B are better or worse than A's, with 95 % intervals.

    A and B are points: a name (one repeat), the beginning of an id (all its repeats), or several with commas; points
    of several loads are compared load by load. With three repeats on each side the interval is over repeats; with
    fewer it is within the points, and does not cover variation between runs.
    """
    from remuda.client.bench import benchmarks as control
    from remuda.client.bench import points as bench_points

    found = bench_points.compared(control.store(), a, b, floor, with_invalid=allow_invalid)
    return show_compared(found, fail_on_regression=fail_on_regression, as_json=as_json)


def show_compared(found: Comparison, *, fail_on_regression: bool, as_json: bool) -> int:
    """Print a comparison; its exit code."""
    if as_json:
        print_json(found.to_json())
    else:
        for number, pair in enumerate(found.pairs):
            if number:
                echo()
            _show(pair)
        if any(one.by == "blocks" for pair in found.pairs for one in pair.metrics):
            echo("\nblocks: within runs only; what differs between runs shows with three repeats on each side")
        if found.alone:
            echo(f"only on one side: {', '.join(found.alone)}")
    return 1 if fail_on_regression and found.has_regression else 0


def _show(pair: Pair) -> None:
    labels = pair.label.split(" / ")
    for letter, points, label in (("A", pair.a, labels[0]), ("B", pair.b, labels[-1])):
        names = ", ".join(point.name for point in points)
        echo(f"{letter}: {show_counted(len(points), 'repeat')} of {label} ({names})")
    if pair.differ:
        echo("These differ, apart from the numbers:")
        for line in pair.differ:
            echo(f"  {line if len(line) <= 300 else line[:299] + '…'}")
    echo()
    rows = [[one.metric.replace("_p", " p"), _value(one, one.a), _value(one, one.b), *_change(one), one.word]
            for one in pair.metrics]  # fmt: skip
    table(("metric", "A", "B", "change", "95 % interval", "from", "B is"), rows, empty="no metric in common")


def _value(one: Difference, value: float | None) -> str:
    return (show_ms if one.metric.startswith(("ttft", "tpot", "e2e")) else show_number)(value)


def _change(one: Difference) -> list[str]:
    change = "–" if one.change is None else f"{one.change:+.1%}"
    if one.low is None or one.high is None:
        return [change, "–", "–"]
    return [change, f"{one.low:+.1%} … {one.high:+.1%}", one.by]


@click.command(
    epilog=examples("remuda bench report -o report.html", "remuda bench report --group meta.gpu --png slide.png")
)
@click.argument("points", nargs=-1)
@report_options
def report(points: tuple[str, ...], output: Path, group: str, title: str, png: Path | None) -> None:
    """Write points and their charts to one HTML file that works offline.

    POINTS are names or the beginnings of ids; default: all stored points. The page lists invalid points with the
    reasons instead of drawing them.
    """
    from remuda.client.bench import benchmarks as control
    from remuda.client.bench import points as kept

    show_report(kept.reported(control.store(), points), output, group=group, title=title, png=png)


def show_report(points: list[Point], output: Path, *, group: str, title: str, png: Path | None) -> None:
    """Write the page of points, and say what is on it."""
    from remuda.client.bench import points as kept

    found = kept.write_report(points, output, title=title, group=group, png=png)
    drawn = sum(1 for point in found if point.verdict != "invalid")
    say(f"{show_counted(len(found), 'point')}, {drawn:,} drawn")
    echo(str(output))
    if png is not None:
        echo(str(png))
