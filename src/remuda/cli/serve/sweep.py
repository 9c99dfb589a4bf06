"""`sweep`: what the host carries out of sweeps, looked at, waited for, ended, reported and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from remuda.base.errors import Interrupted
from remuda.base.units import show_counted
from remuda.cli.bench.points import compare_options, report_options, show_compared, show_report
from remuda.cli.lazy import NearGroup, examples, together
from remuda.cli.show import age, print_json, say, table
from remuda.client.http import connect, looking

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.client.http import HostClient
    from remuda.client.jobs.pool import Rows

_of_one = together(
    click.argument("name"),
    click.option("--json", "as_json", is_flag=True, help="Print points and deployments as JSON."),
)


@click.group(cls=NearGroup)
def sweep() -> None:
    """Follow, end or compare sweeps. `remuda apply FILE --sweep` begins one; it is called like its deployment."""


@sweep.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_(as_json: bool) -> None:
    """List sweeps, and how many deployments of each are how far."""
    found = looking(starts=True).get("/campaigns", kind="sweep")
    if as_json:
        print_json(found)
        return
    columns = ["name", "deployments", "waiting", "going", "done", "failed"]
    shown = [[*(str(one[key]) for key in columns), age(one["since"]), one["document"]] for one in found]
    table([*columns, "changed", "file"], shown, empty="no sweeps; begin one: remuda apply FILE --sweep")


@sweep.command()
@_of_one
def status(name: str, as_json: bool) -> None:
    """Show the deployments of sweep NAME, and how many of its points are known."""
    _show(connect(), name, as_json=as_json)


@sweep.command()
@_of_one
def wait(name: str, as_json: bool) -> int:
    """Follow sweep NAME to its end. Exit code 1: a deployment has failed, or lacks a point."""
    from remuda.client.bench import sweeps

    host = connect()
    rows = follow_sweep(host, sweeps.asked(host, name))
    _show(host, name, as_json=as_json)
    return int(any(row["outcome"] == "failed" for row in rows))


@sweep.command()
@_of_one
def cancel(name: str, as_json: bool) -> None:
    """End what is left of sweep NAME. What was measured stays; `apply --sweep` measures the rest."""
    from remuda.base.ids import check_name
    from remuda.client.jobs import pool

    host = connect()
    pool.cancel(host, check_name(name), "sweep")
    _show(host, name, as_json=as_json)


@sweep.command(epilog=examples("remuda sweep report grid -o grid.html --png grid.png"))
@click.argument("name")
@report_options
def report(name: str, output: Path, group: str, title: str, png: Path | None) -> None:
    """Write the points of sweep NAME and their charts to one HTML file: a line for each deployment's parameters.

    As `remuda bench report`, which takes any points.
    """
    from remuda.client.bench import sweeps

    found = sweeps.points_in(connect(), name)
    show_report(found, output, group=group or "meta.parameters", title=title or f"Sweep {name}", png=png)


@sweep.command(epilog=examples("remuda sweep compare before after --fail-on-regression"))
@compare_options
def compare(a: str, b: str, floor: str, allow_invalid: bool, fail_on_regression: bool, as_json: bool) -> int:
    """Show which metrics of sweep B are better or worse than A's, where parameters and load are the same.

    As `remuda bench compare`, which takes any points.
    """
    from remuda.client.bench import sweeps

    found = sweeps.compared(connect(), a, b, floor, with_invalid=allow_invalid)
    return show_compared(found, fail_on_regression=fail_on_regression, as_json=as_json)


def follow_sweep(host: HostClient, begun: dict[str, Any]) -> Rows:
    """Show how a sweep goes on until it is over, and what has failed; its deployments then."""
    from remuda.cli.jobs.pool import follow
    from remuda.client.jobs import pool

    name = begun["name"]
    try:
        rows = follow(pool.follow(host, name, begun["rows"]))
    except KeyboardInterrupt:
        raise Interrupted(f"sweep {name} keeps running without this terminal", hint=go_on(name)) from None
    for row in rows:
        if row["outcome"] == "failed":
            say(f"{row['name']} has failed: {row['reason']}")
    return rows


def go_on(name: str) -> str:
    """What to type of a sweep that is under way."""
    return f"follow it: remuda sweep wait {name}; end it: remuda sweep cancel {name}"


def _show(host: HostClient, name: str, *, as_json: bool) -> None:
    from remuda.cli.jobs.pool import step_of
    from remuda.client.bench import sweeps

    found = sweeps.asked(host, name)
    rows, points = found["rows"], sweeps.known(found["points"])
    if as_json:
        same = {key: found[key] for key in ("name", "document", "bound")}
        print_json({**same, "points": points, "deployments": rows})
        return
    shown = [[row["name"], step_of(row), row["phase"], row["reason"] or row["told"]] for row in rows]
    table(["deployment", "step", "phase", "reason"], shown)
    known = sum(one["state"] == sweeps.KNOWN for one in points)
    say(f"{known:,} of {show_counted(len(points), 'point')} known")
