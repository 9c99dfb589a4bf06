"""Time limits that leave an attempt no time, and those that are part of its life."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError
from tests.unit.supervise.bed import only
from tests.unit.supervise.build import RULE, pools, script

from remuda.backends.base import Ending
from remuda.plan.model import Watch
from remuda.plan.run import notes_of
from remuda.specs.reading.load import Loaded
from remuda.specs.reading.resolve import Resolved
from remuda.specs.run import RunSpec
from remuda.supervise.model import Phase

if TYPE_CHECKING:
    from tests.unit.supervise.bed import Bed


LIMIT = {
    "watch": Watch(warn_before_s=90, heartbeat_grace_s=0),
    "replace": RULE.model_copy(update={"quick_s": 120.0}),
}


async def end_short(bed: Bed, limit_s: float) -> None:
    """The attempt that runs reaches a time limit that is so short."""
    made = bed.backend.made[only(bed).token]
    made.seen = replace(made.seen, started_at=bed.clock.now(), limit_at=bed.clock.now() + limit_s)
    await bed.go(2)
    bed.backend.end(only(bed).token, 143, ending=Ending.TIME_LIMIT)
    await bed.go(5)


@pytest.mark.parametrize("limit_s", [60, 90])
async def test_a_time_limit_that_is_shorter_than_the_warning_ends_it_with_a_sentence(bed: Bed, limit_s: float) -> None:
    bed.up(script(pools=pools("a"), **LIMIT))
    await bed.go(1)
    await end_short(bed, limit_s)
    assert only(bed).phase in (Phase.WAITING, Phase.STARTING), "somebody may have changed the limit of that job alone"
    await bed.go(40)
    await end_short(bed, limit_s)
    assert (only(bed).phase, only(bed).attempt, only(bed).failures) == (Phase.FAILED, 2, 0)
    shown = "1m" if limit_s == 60 else "1m 30s"
    assert only(bed).reason == (
        f"its time limit in a is {shown}, and 1m 30s before that it is told to end: "
        "an attempt ends as soon as it begins"
    )


async def test_of_several_pools_one_with_a_longer_limit_is_asked(bed: Bed) -> None:
    bed.up(script(pools=pools("a", "b"), **LIMIT))
    await bed.go(1)
    await end_short(bed, 60)
    await bed.go(40)
    assert (only(bed).pool, only(bed).attempt) == ("a", 2)
    await end_short(bed, 60)
    assert (only(bed).phase, only(bed).pool, only(bed).attempt) == (Phase.STARTING, "b", 3)


async def test_attempts_that_the_warning_ends_at_once_do_not_go_on_for_ever(bed: Bed) -> None:
    """No look ever saw them run, so nobody knows how long their limit was."""
    bed.up(script(**LIMIT))
    for _ in range(20):
        await bed.go(40)
        if only(bed).phase is Phase.FAILED:
            break
        bed.backend.end(only(bed).token, 143, ending=Ending.TIME_LIMIT, ran_s=1.0)
    assert (only(bed).phase, only(bed).attempt) == (Phase.FAILED, 3)
    assert only(bed).reason.startswith("given up: its time limit ended it 3 times within 2m of its start; ")


async def test_time_limits_of_what_ran_longer_than_the_warning_go_on_for_ever(bed: Bed) -> None:
    bed.up(script(**LIMIT))
    for number in range(1, 9):
        await bed.go(400)
        assert (only(bed).attempt, only(bed).failures) == (number, 0)
        bed.backend.end(only(bed).token, 143, ending=Ending.TIME_LIMIT, ran_s=91.0)
    await bed.go(400)
    assert only(bed).attempt == 9


def spec(**fields: object) -> RunSpec:
    return RunSpec.model_validate({"script": "x.sh", **fields})


@pytest.mark.parametrize(
    ("fields", "before"),
    [
        ({}, 90.0),
        ({"time_limit": "1h"}, 90.0),
        ({"time_limit": 151}, 90.0),
        ({"time_limit": 150}, 0.0),
        ({"time_limit": 60}, 0.0),
        ({"time_limit": 60, "signal": "USR1@10"}, 10.0),
        ({"signal": "USR1@600"}, 600.0),
    ],
)
def test_a_warning_is_given_where_there_is_time_for_it(fields: dict[str, object], before: float) -> None:
    made = spec(**fields)
    assert made.warning()[1] == before
    said = notes_of(Loaded(made, "run", "", Resolved({})), "slurm")
    assert bool(said) is (before == 0)
    if said:
        assert "leaves no time for a warning before it: none is given" in said[0]


@pytest.mark.parametrize("limit", [60, 90])
def test_a_warning_that_is_asked_for_and_has_no_time_is_refused(limit: int) -> None:
    with pytest.raises(ValidationError) as caught:
        spec(time_limit=limit, signal="TERM@90")
    told = caught.value.errors()[0]["ctx"]
    assert told["at"] == "time_limit"
    assert "every attempt would end as soon as it begins" in told["sentence"]
