"""A sweep as `apply` shows it before it begins, and has it carried out: points, deployments, and what is known."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from remuda.base.errors import Conflict
from remuda.base.units import show_counted
from remuda.batch.threads import collecting_seldom
from remuda.cli.serve.sweep import follow_sweep, go_on
from remuda.cli.show import echo, print_json, say, table
from remuda.client.bench import sweeps
from remuda.client.bench.sweeps import KNOWN
from remuda.client.http import connect
from remuda.look import planning
from remuda.look.kinds.deployment import plan_sweep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remuda.client.bench.sweeps import Points


@collecting_seldom()
def show(words: Mapping[str, Any], *, again: bool, as_json: bool) -> int:
    """Print what would be measured of what these words of `apply` say; nothing is started or written."""
    facts = planning.facts_of()
    planned = plan_sweep(facts, **words)
    points = sweeps.points_of(planned, facts, again=again)
    bound = min(one.pop("max_running") for one in points)
    plans = [planning.plan("deployment", draft, facts) for draft in sweeps.unknown(planned, points).values()]
    if as_json:
        print_json({"points": points, "deployments": len(planned), "max_running": bound})
        return 0
    answers = [planning.answered([one], facts, dry_run=True) for one in plans]
    told = [f"note: {note}" for answer in answers for note in answer["notes"]]
    told += [f"would fail: {finding}" for answer in answers for finding in answer["findings"]]
    for sentence in dict.fromkeys(told):
        say(sentence)
    _draw(points)
    many = show_counted(len(planned), "deployment")
    echo(f"\n{show_counted(len(points), 'point')} on {many}, at most {bound} at once")
    echo(_to_measure(points))
    return 0


@collecting_seldom()
def run(words: Mapping[str, Any], *, wait: bool, again: bool, as_json: bool) -> int:
    """Have measured what is not known of what these words of `apply` say; 1 when points are missing in the end."""
    facts = planning.facts_of()
    planned = plan_sweep(facts, **words)
    points = sweeps.points_of(planned, facts, again=again)
    if all(one["state"] == KNOWN for one in points):
        say("nothing to measure: all points are known")
        with suppress(Conflict):  # what runs under its name is what `sweep` tells of
            sweeps.begin(planned, points, facts, connect())
    else:
        host = connect()
        begun = sweeps.begin(planned, points, facts, host)
        say(f"{_to_measure(points)}, at most {begun['bound']} at once; {go_on(begun['name'])}")
        if wait:
            follow_sweep(host, begun)
            points = sweeps.known(points)
    if as_json:
        print_json({"points": points, "deployments": len(planned)})
    else:
        _draw(points)
    return int(wait and any(one["state"] != KNOWN for one in points))


def _draw(points: Points) -> None:
    columns = ["parameters", "load", "deployment", "state"]
    table(columns, [[one[key] or "-" for key in columns] for one in points])
    for one in points:
        if one["found"]:
            echo(f"{one['parameters'] or one['deployment']}: {one['found']}")


def _to_measure(points: Points) -> str:
    missing = {one["address"]: one["deployment"] for one in points if one["state"] != KNOWN}
    needed = show_counted(len({*missing.values()}), "deployment")
    return f"to measure: {show_counted(len(missing), 'point')} on {needed}"
