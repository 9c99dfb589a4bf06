"""Sweeps: their points and what of them is known, the deployments that measure the others, and what came of them."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from remuda.base.errors import InputError, NotFound
from remuda.base.ids import check_name
from remuda.base.text import short
from remuda.bench.judging.compare import PARAMETERS, compare, read_floor
from remuda.bench.judging.verdict import INVALID
from remuda.client import reconnect
from remuda.client.bench import benchmarks, search
from remuda.client.bench.deployed import foreseen
from remuda.client.cluster_match import check_cluster
from remuda.client.jobs.pool import row_of
from remuda.look import planning
from remuda.look.kinds.deployment import draft_of
from remuda.plan.deployment.bench import SEARCH, command_address, measuring
from remuda.plan.deployment.bench import told as told_of
from remuda.specs.benchmark import MOST_REPEATS
from remuda.specs.deployment import LOADS
from remuda.specs.recipe.sweeps import plain
from remuda.supervise.campaign import DONE, SWEEP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from remuda.bench.judging.compare import Comparison
    from remuda.bench.point import Point
    from remuda.client.bench.benchmarks import BenchPlan
    from remuda.client.http import HostClient
    from remuda.look.facts import Looked
    from remuda.plan.compile import Draft, Plan
    from remuda.specs.deployment import DeploymentSpec
    from remuda.specs.recipe.load import Recipe

    Planned = Mapping[str, Sequence[tuple[Recipe, Plan]]]
    Points = Sequence[Mapping[str, Any]]
    Measurements = Mapping[str, Sequence[Point]]

KNOWN: Final = "known"
"""State of a point that is not measured any more."""
COMMAND, ASKS = "command", "asks"
"""Keys of points that are a command of the user's, or questions."""
_RECORDED: Final = ("parameters", "params", "deployment", "repeats", "load", "address", SEARCH, COMMAND, ASKS)
"""What the host keeps of a point."""


def points_of(planned: Planned, facts: Looked, *, again: bool = False) -> list[dict[str, Any]]:
    """Every load of every recipe, and what is known of it: its points that count, as for `bench`.

    Raises:
        InputError: they are to be measured `again`, and one is no load; or lm-eval, which is needed, has no such task.
    """
    names, found = _names(planned), list[dict[str, Any]]()
    seen: dict[str, BenchPlan] = {}
    is_one, there = len(_files(planned)) == 1, benchmarks.by_address(benchmarks.store())
    for config, recipe, plan in ((config, *one) for config, together in planned.items() for one in together):
        point = recipe.point
        assert point is not None
        about: dict[str, Any] = {"parameters": _words(recipe, is_one=is_one), "params": plain(point.params)}
        about |= {"deployment": names[config], "repeats": point.repeats, "max_running": point.max_running}
        told = told_of(plan.workload, plan.spec)
        servers = sum(group.count for group in plan.workload.groups if group.role.serves)
        loads = _loads(told, servers, seen) if "load" in told else [_command(plan, facts)]
        mine = known([{**about, **one} for one in loads], there)
        if again and (SEARCH in told or told["type"] not in LOADS):
            what = "a search" if SEARCH in told else told["type"]
            raise InputError(f"{what} measures no load twice", hint="leave --again out", where="--again")
        if again:
            repeats = min(MOST_REPEATS, point.repeats + max(len(one["points"]) for one in mine))
            mine = known([{**one, "repeats": repeats} for one in mine], there)
        found += mine
    return found


def _words(recipe: Recipe, *, is_one: bool) -> str:
    """What a recipe of a sweep is called, with its file unless that `is_one` for all."""
    file, point = "" if is_one else Path(recipe.loaded.file).name, recipe.point
    return " ".join(filter(None, (file, recipe.selector, point.label if point is not None else "")))


def _loads(told: Mapping[str, Any], servers: int, seen: dict[str, BenchPlan]) -> list[dict[str, Any]]:
    """The loads of a benchmark, or its search, each with its address; those `seen` were of other configs."""
    key = repr(({**told, "config": ""}, servers))
    plan = seen.get(key) or seen.setdefault(key, foreseen(told, servers))
    session = plan.sessions[0]
    session.target = replace(session.target, config=told["config"])
    address = session.address
    if plan.spec.tasks:
        from remuda.client.bench import accuracy

        accuracy.check(plan.spec, gates=False)  # the token is the driver's
        return [{"load": ", ".join(plan.spec.tasks), "address": accuracy.question(plan.spec, session), ASKS: True}]
    if SEARCH not in told:
        return [{"load": load.label, "address": address(load)} for load in plan.loads]
    hunt, said = search.hunt_of(told, plan), told[SEARCH]
    question = f"{address(hunt.at(hunt.bounds.high))} {said}"
    label = f"largest up to {hunt.at(hunt.bounds.high).label}"
    return [{"load": label, "address": hashlib.sha256(question.encode()).hexdigest(), SEARCH: [told, servers]}]


def _seen(facts: Looked, command: Sequence[str]) -> list[object]:
    """Where a command is run, and the program and script of it as they are."""
    cwd = facts.context(gpus=False).cwd
    files = [path for word in command[:2] if os.path.isfile(path := os.path.join(cwd, word))]  # noqa: PTH113, PTH118 - it may be a long script
    return [cwd, *([path, *facts.stamp(path)] for path in files)]


def _command(plan: Plan, facts: Looked) -> dict[str, Any]:
    """A command of the user's, as a point: it is known once it has ended with 0."""
    said = plan.spec.benchmark.command
    address = command_address(plan.workload, plan.spec, _seen(facts, said))
    return {"load": short(shlex.join(said), 40), "address": address, COMMAND: True}


def measured(point: Mapping[str, Any], there: Measurements) -> tuple[list[Point], str]:
    """The measurements of a point of a sweep, and what a search has found, empty as long as it is not over."""
    if SEARCH not in point:
        return [*there.get(point["address"], ())], ""
    told, servers = point[SEARCH]
    hunt = search.hunt_of(told, foreseen(told, servers))
    outcome, asked = search.replayed(hunt, there)
    return asked, search.result(hunt, outcome) if outcome is not None else ""


def known(points: list[dict[str, Any]], there: Measurements | None = None) -> list[dict[str, Any]]:
    """The same with the names of what was measured and counts, and the state that follows; `there` is all stored."""
    there = benchmarks.by_address(benchmarks.store()) if there is None else there
    for one in points:
        found, result = measured(one, there)
        names = [point.name for point in found if point.verdict != INVALID]
        is_known = bool(result) if SEARCH in one else len(names) >= one["repeats"]
        if COMMAND in one:
            is_known = benchmarks.store().has_run(one["address"])
        one.update(points=names, state=KNOWN if is_known else "in part" if names else "new", found=result)
    return points


def _files(planned: Planned) -> list[str]:
    return list(dict.fromkeys(recipe.loaded.file for together in planned.values() for recipe, _ in together))


def _names(planned: Planned) -> dict[str, str]:
    """Config -> name of its deployment."""
    size = next(size for size in range(6, 33) if len({config[:size] for config in planned}) == len(planned))
    names = {config: together[0][1].workload.name[: 62 - size] for config, together in planned.items()}
    return {config: f"{name}-{config[:size]}" for config, name in names.items()}


def unknown(planned: Planned, points: Points) -> dict[str, Draft[DeploymentSpec]]:
    """Name -> draft of each deployment that has something to measure: only these are planned."""
    new = {one["deployment"] for one in points if one["state"] != KNOWN}
    return {name: draft_of(planned[config][0][0], name) for config, name in _names(planned).items() if name in new}


def begin(planned: Planned, points: Points, facts: Looked, host: HostClient) -> dict[str, Any]:
    """Hand a sweep to the host, which carries it out; the campaign that it is.

    Raises:
        Conflict: a deployment of it is up that was asked for otherwise, or the host asks another cluster.
        InputError: a secret is missing.
    """
    (_, first), secrets, names = next(iter(planned.values()))[0], dict[str, str](), _names(planned)
    if not first.workload.is_here:
        check_cluster(host)
    rows, drafts, is_one = list[dict[str, Any]](), unknown(planned, points), len(_files(planned)) == 1
    repeats = {(one["deployment"], one["parameters"]): one["repeats"] for one in points}
    mine: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names.values()}
    for one in points:
        mine[one["deployment"]].append(one)
    for config, name in names.items():
        row: dict[str, Any] = {"name": name, "outcome": DONE}
        if name in drafts:
            plan = planning.plan("deployment", drafts[name], facts)
            asked = [(one.spec, repeats[name, _words(each, is_one=is_one)]) for each, one in planned[config]]
            swept = measuring(plan.workload, asked, facts.context(gpus=False).cwd, partial(_seen, facts))
            row = row_of(replace(plan, workload=swept), facts, secrets)
        said = json.dumps([[point["address"], point["repeats"]] for point in mine[name]])
        row["address"] = hashlib.sha256(said.encode()).hexdigest()[:16]
        row["points"] = [{key: point[key] for key in _RECORDED if key in point} for point in mine[name]]
        rows.append(row)
    body = {
        "name": first.workload.name, "kind": SWEEP, "document": shlex.join(_files(planned)), "rows": rows,
        "again": True, "bound": min(one["max_running"] for one in points), "secrets": secrets,
    }  # fmt: skip
    return dict(reconnect.post(host, "/campaigns", body))


# --- what the host has ------------------------------------------------------------------------------------------------


def asked(host: HostClient, name: str) -> dict[str, Any]:
    """A sweep as the host has it, with the points that it is for.

    Raises:
        NotFound: there is no sweep of that name.
    """
    return dict(reconnect.get(host, f"/campaigns/{check_name(name)}", kind=SWEEP, points=True))


def points_in(host: HostClient, name: str) -> list[Point]:
    """All measurements of the points of a sweep, each with the parameters of its recipe.

    Raises:
        NotFound: there is no sweep of that name, or nothing of it is measured.
    """
    there = benchmarks.by_address(benchmarks.store())
    found: dict[str, Point] = {}
    points = asked(host, name)["points"]
    for one in points:
        said = {PARAMETERS: one["parameters"] or one["deployment"]}
        found |= {point.name: replace(point, meta={**point.meta, **said}) for point in measured(one, there)[0]}
    if points and all(COMMAND in one for one in points):
        raise NotFound(f"sweep {name!r} has commands only, which leave no points",
                       hint=f"see how they ended: remuda sweep status {name}")  # fmt: skip
    if not found:
        raise NotFound(
            f"nothing of sweep {name!r} is measured yet", hint=f"see how far it is: remuda sweep status {name}"
        )
    return [*found.values()]


def compared(host: HostClient, a: str, b: str, floor: str, *, with_invalid: bool) -> Comparison:
    """Two sweeps: points of the same parameters and the same load; invalid ones are left out, unless `with_invalid`.

    Raises:
        NotFound: there is no such sweep, or nothing of it is measured.
        InputError: the floor is wrong, or they have no parameters and load in common.
    """
    share, sides = read_floor(floor), []
    for name in (a, b):
        loads = [point for point in points_in(host, name) if point.accuracy is None]
        if not loads:
            hint = f"see the scores: remuda sweep report {name} -o FILE"
            raise InputError(f"sweep {name!r} has no loads, and only those are compared", hint=hint)
        points = [point for point in loads if with_invalid or point.verdict != INVALID]
        if not points:
            hint = "to see them all the same: --allow-invalid"
            raise InputError(f"all points of sweep {name!r} are invalid", hint=hint)
        sides.append(points)
    return compare(sides[0], sides[1], share, with_invalid=with_invalid)
