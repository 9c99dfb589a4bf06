"""Sweeps that the host has: their points as they are kept here, for reports and comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from remuda.base.errors import InputError, NotFound
from remuda.base.ids import check_name
from remuda.bench.judging.compare import compare, read_floor
from remuda.bench.judging.verdict import INVALID
from remuda.client import reconnect
from remuda.client.bench import benchmarks, sweeps
from remuda.supervise.campaign import SWEEP

if TYPE_CHECKING:
    from remuda.bench.judging.compare import Comparison
    from remuda.bench.point import Point
    from remuda.client.http import HostClient

PARAMETERS = "parameters"
"""Key of `meta` that a point of a sweep has for reports."""


def asked(host: HostClient, name: str) -> dict[str, Any]:
    """A sweep as the host has it, with the points that it is for.

    Raises:
        NotFound: there is no sweep of that name.
    """
    return dict(reconnect.get(host, f"/campaigns/{check_name(name)}", kind=SWEEP, points=True))


def measured(host: HostClient, name: str) -> list[Point]:
    """All measurements of the points of a sweep, each with the parameters of its recipe.

    Raises:
        NotFound: there is no sweep of that name, or nothing of it is measured.
    """
    there = benchmarks.by_address(benchmarks.store())
    found: dict[str, Point] = {}
    for one in asked(host, name)["points"]:
        said = {PARAMETERS: one["parameters"] or one["deployment"]}
        found |= {point.name: replace(point, meta={**point.meta, **said}) for point in sweeps.measured(one, there)[0]}
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
    share, words = read_floor(floor), dict[str, str]()
    sides = []
    for name in (a, b):
        points = [point for point in measured(host, name) if with_invalid or point.verdict != INVALID]
        if not points:
            raise InputError(
                f"all points of sweep {name!r} are invalid", hint="to see them all the same: --allow-invalid"
            )
        words |= {point.id: point.meta[PARAMETERS] for point in points}
        sides.append(points)
    return compare(sides[0], sides[1], share, with_invalid=with_invalid, words=words)
