"""`rehearse`: a run under invented failures, before it costs real nodes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remuda.cli.show import echo, print_json, say, table

if TYPE_CHECKING:
    from collections.abc import Callable

_POLICIES = ("remuda", "shepherd", "requeue", "all")
_SAY_EVERY_S = 2.0


@click.command()
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@click.option("--nodes", default=1000, show_default=True, help="Nodes of the cluster.")
@click.option("--days", default=30.0, show_default=True, help="Days to simulate.")
@click.option("--run-nodes", default=0, help="Nodes of the run; overrides the document. [default: 95 % without one]")
@click.option(
    "--failures",
    default="llama3",
    show_default=True,
    help="Failures: llama3, rsc, none, or a CSV file: time_h,node,kind,repair_h.",
)
@click.option("--policy", type=click.Choice(_POLICIES), default="all", show_default=True, help="Policies to compare.")
@click.option("--seed", default=1, show_default=True, help="Random seed of the first repetition.")
@click.option(
    "--repeat", type=click.IntRange(1, 1000), default=5, show_default=True, help="Repetitions, one seed each."
)
@click.option("-s", "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Field of the run: restart_cost=5m.")
@click.option("--assume", multiple=True, metavar="NAME=VALUE", help="Assumption, e.g. people_h=8; --json lists all.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Chart to write: .svg, .png or .html.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def rehearse(
    spec: Path | None, policy: str, settings: tuple[str, ...], plot: Path | None, as_json: bool, **values: Any
) -> None:
    """Simulate the run of SPEC (a document of kind run, or a script) through a month of failures on a large cluster.

    The decisions are the supervisor's own. They are compared with those of plain sbatch --requeue and of Shepherd's
    rules, under the same failures. Without SPEC it is a training job that uses nearly all nodes.
    """
    from remuda.rehearsal import study as rehearsing
    from remuda.rehearsal.plot import check_plot, write_plot
    from remuda.specs.reading.load import assignment

    if plot is not None:
        check_plot(plot)
    asked = rehearsing.StudyOptions(
        file=str(spec or ""),
        policies=_POLICIES[:-1] if policy == "all" else (policy,),
        settings=tuple(assignment(text) for text in settings),
        **values,
    )
    done = rehearsing.rehearse(asked, _progress())
    if plot is not None:
        write_plot(done, plot)
        say(f"drawn: {plot}")
    if as_json:
        print_json(rehearsing.view(done))
        return
    _show(done)


def _progress() -> Callable[[int, int], None]:
    """Tells how far it is, every few seconds; nothing when it is quick."""
    said_at = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal said_at
        if time.monotonic() - said_at >= _SAY_EVERY_S and done < of:
            said_at = time.monotonic()
            say(f"rehearsed {done} of {of}")

    return tell


def _show(done: Any) -> None:
    from remuda.rehearsal.plot import sparkline
    from remuda.rehearsal.study import RULES, view

    data = view(done)
    job = data["job"]
    echo(f"{job['nodes']} of {data['nodes']} nodes for {data['days']:g} days; failures: {data['source']}\n")
    policies = data["policies"]
    table(["", *(one["policy"] for one in policies)], _rows(policies))
    echo("\nwork that was kept, over time (first repetition):")
    for summary in done.summaries:
        echo(f"  {summary.policy:<9} {sparkline(summary.outcomes[0])} {summary.outcomes[0].effective:.1%}")
    echo("")
    for note in data["notes"]:
        echo(f"note: {note}.")
    for one in policies:
        echo(f"{one['policy']}: {RULES[one['policy']]}.")
    assumed = ", ".join(f"{name} {value:g}" for name, value in data["assumptions"].items())
    echo(f"assumed (--assume NAME=VALUE): {assumed}.")


def _rows(policies: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["effective training time", *(_effective(one) for one in policies)]]
    rows += [[f"hours, {what}", *(f"{one['hours'][what]:,.1f}" for one in policies)] for what in policies[0]["hours"]]
    rows.append(["GPU-hours kept", *(f"{one['gpu_hours_kept']:,.0f}" for one in policies)])
    rows.append(["attempts", *(f"{one['attempts']:,.1f}" for one in policies)])
    kinds = sorted({kind for one in policies for kind in one["restarts"]})
    rows += [[f"restarts, {kind}", *(f"{one['restarts'].get(kind, 0):,.1f}" for one in policies)] for kind in kinds]
    rows.append(["by a node that did before", *(f"{one['repeat_offences']:,.1f}" for one in policies)])
    rows.append(["given up", *(f"{one['given_up']:,.1f}" for one in policies)])
    rows.append(["most nodes avoided", *(f"{one['excluded_peak']:,.1f}" for one in policies)])
    return rows


def _effective(one: dict[str, Any]) -> str:
    margin = f" ± {one['margin_95'] * 100:.1f}" if one["margin_95"] is not None else ""
    return f"{one['effective'] * 100:.1f}{margin} %"
