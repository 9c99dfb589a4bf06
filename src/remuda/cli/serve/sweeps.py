"""A sweep before it begins: which points on how many deployments, and what of it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.units import show_counted
from remuda.bench.judging.verdict import INVALID
from remuda.cli.show import echo, print_json, say, table
from remuda.client.bench import benchmarks
from remuda.client.bench.deployed import addresses
from remuda.look import planning
from remuda.look.kinds.deployment import plan_sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.plan.compile import Plan
    from remuda.specs.recipe.load import Recipe


def show(words: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what would be measured of what these words of `apply` say; nothing is started or written."""
    facts = planning.facts_of()
    planned = plan_sweep(facts, **words)
    points = _points(planned)
    bound = min(one.pop("max_running") for one in points)
    missing = [one for one in points if one["state"] != "known"]
    if as_json:
        print_json({"points": points, "deployments": len(planned), "max_running": bound})
        return
    answers = [planning.answered([one[0][1]], facts, dry_run=True) for one in planned.values()]
    told = [f"note: {note}" for answer in answers for note in answer["notes"]]
    told += [f"would fail: {finding}" for answer in answers for finding in answer["findings"]]
    for sentence in dict.fromkeys(told):
        say(sentence)
    columns = ["parameters", "load", "deployment", "state"]
    table(columns, [[one[key] or "-" for key in columns] for one in points])
    needed = len({one["deployment"] for one in missing})
    many = show_counted(len(planned), "deployment")
    echo(f"\n{show_counted(len(points), 'point')} on {many}, at most {bound} at once")
    echo(f"to measure: {show_counted(len(missing), 'point')} on {show_counted(needed, 'deployment')}")


def _points(planned: Mapping[str, Sequence[tuple[Recipe, Plan]]]) -> list[dict[str, Any]]:
    """Every load of every recipe, and what is known of it: its points that count, as for `bench`."""
    found: list[dict[str, Any]] = []
    for config, recipe, plan in ((config, *one) for config, together in planned.items() for one in together):
        point = recipe.point
        assert point is not None
        about: dict[str, Any] = {
            "parameters": " ".join(filter(None, (recipe.selector, point.label))),
            "params": dict(point.params),
        }
        about |= {"deployment": f"{plan.workload.name}-{config[:6]}", "repeats": point.repeats}
        about["max_running"] = point.max_running
        found += [{**about, "load": load.label, "address": at} for load, at in addresses(plan).items()]
    there: dict[str, list[str]] = {}
    for stored in benchmarks.store().points():
        there.setdefault(stored.id, []).extend([stored.name] if stored.verdict != INVALID else [])
    for one in found:
        known = there.get(one["address"], [])
        one.update(points=known, state="known" if len(known) >= one["repeats"] else "in part" if known else "new")
    return found
