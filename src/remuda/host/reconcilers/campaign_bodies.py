"""What is asked of campaigns, and what is told of them without a look at what runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import orjson
from pydantic import BaseModel

from remuda.base.errors import NotFound
from remuda.base.text import did_you_mean
from remuda.plan.model import Workload  # noqa: TC001 - Pydantic reads it when the models are made
from remuda.supervise.campaign import DONE, FAILED, IS_UP, OVER, SWEEP, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from remuda.store.rows import CampaignItemRow, CampaignRow

_BEGIN: Final = {SWEEP: "begin one: remuda apply FILE --sweep", "pool": "begin one: remuda pool -c FILE"}


class PlannedRow(BaseModel):
    """A workload to bring up, and what for; other fields are as in its row."""

    address: str
    name: str = ""
    """Of what is known already: it is never brought up, and has no workload."""
    workload: Workload | None = None
    spec: str = ""
    """What the user wrote, resolved."""
    job: Workload | None = None
    """What runs against it once it is up; see `plan.job.filled`."""
    keeps: bool = False
    queue_timeout_s: float = 0.0
    wait_s: float = 600.0
    points: list[dict[str, Any]] = []
    """What it measures, as `client.bench.sweeps` says it."""
    outcome: str = ""
    """Known before it begins: it would fail, or is done."""
    reason: str = ""


class CampaignBody(BaseModel):
    """Workloads of which at most `bound` at once are to be up."""

    name: str
    kind: str
    document: str = ""
    """File that it was read from."""
    bound: int
    rows: list[PlannedRow]
    again: bool = False
    """Do what is done once more."""
    secrets: dict[str, str] = {}
    """Variable -> value, of those that the plans need; only a file of mode 0600 holds them until all is over."""


def unknown(name: str, kind: str, known: Iterable[tuple[CampaignRow, object]]) -> NotFound:
    """That there is no campaign of that name and kind, and what to do."""
    names = [one.name for one, _ in known if kind in ("", one.kind)]
    return NotFound(
        f"there is no {kind or 'campaign'} {name!r}", hint=did_you_mean(name, names) or _BEGIN.get(kind, "")
    )


def points_of(rows: Iterable[CampaignItemRow]) -> Iterator[dict[str, Any]]:
    """What rows measure; plans of many kilobytes are not checked again for that."""
    for row in rows:
        yield from orjson.loads(row.plan).get("points", ())


def is_known(plan: str, home: Path) -> bool:
    """Whether all that a row would measure has been measured meanwhile, as by another sweep, and counts."""
    points = orjson.loads(plan).get("points", ())
    if not points or any("search" in one for one in points):
        return False  # which probes answer a search, its driver knows
    from remuda.bench.judging.verdict import INVALID
    from remuda.bench.store import PointStore

    kept = PointStore(home / "bench")
    answers = [point for point in kept.points() if point.accuracy] if any("asks" in one for one in points) else []

    def is_there(one: dict[str, Any]) -> bool:
        if "command" in one:
            return kept.has_run(one["address"])
        said = [point for point in answers if (point.accuracy or {}).get("question") == one["address"]]
        found = said if "asks" in one else kept.of(one["address"])
        return sum(point.verdict != INVALID for point in found) >= int(one["repeats"])

    return all(map(is_there, points))


def counted(campaign: CampaignRow, rows: Iterable[CampaignItemRow]) -> dict[str, Any]:
    """A campaign in one line of a list."""
    steps = Counter(row.outcome if row.state == OVER else WAITING if row.state == WAITING else "going" for row in rows)
    return {
        "name": campaign.name, "kind": campaign.kind, "document": campaign.document, "bound": campaign.bound,
        "deployments": steps.total(), "waiting": steps[WAITING], "going": steps["going"],
        "done": steps[DONE] + steps[IS_UP], "failed": steps[FAILED], "since": max(row.since for row in rows),
    }  # fmt: skip
