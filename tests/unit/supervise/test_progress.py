"""A task that gets on is no crash loop; one that only gets as far as before is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.unit.supervise.bed import only
from tests.unit.supervise.build import RULE, group, script

from remuda.supervise.model import Phase

if TYPE_CHECKING:
    from tests.unit.supervise.bed import Bed

BRAKE = RULE.model_copy(update={"quick_s": 60.0, "quick_limit": 3, "max_failures": 5})


async def attempt(bed: Bed, step: float | None) -> None:
    """One attempt that says how far it is, and fails."""
    await bed.all_ready()
    if step is not None:
        report = bed.backend.report(only(bed).token)
        bed.host.take(replace(report, metrics={**report.metrics, "progress_step": step}))
        await bed.go(1)
    bed.backend.end(only(bed).token, 1)
    await bed.go(70)


@pytest.mark.parametrize("rule", [BRAKE, BRAKE.model_copy(update={"quick_s": 0.0})], ids=["brake", "failures"])
async def test_who_gets_on_is_not_given_up(bed: Bed, rule: object) -> None:
    bed.up(script(replace=rule))
    for step in range(1, 20):
        await attempt(bed, step * 10.0)
        if step == 7:
            bed.new_host()
    assert (only(bed).phase, only(bed).attempt, only(bed).progress) == (Phase.STARTING, 20, 190.0)


@pytest.mark.parametrize("steps", [[None] * 5, [7.0] * 5, [7.0, 3.0, 5.0, 6.0, 7.0]])
async def test_who_gets_no_farther_is_given_up(bed: Bed, steps: list[float | None]) -> None:
    bed.up(script(replace=BRAKE.model_copy(update={"quick_s": 0.0})))
    for number, step in enumerate(steps):
        await attempt(bed, step)
        if number == 1:
            bed.new_host()  # it knows how far the task was
    assert (only(bed).phase, only(bed).attempt) == (Phase.FAILED, 5)


async def test_begun_again_by_the_user_it_may_start_from_nothing(bed: Bed) -> None:
    bed.up(script(replace=BRAKE))
    await attempt(bed, 100.0)
    bed.change(restart=True)
    await bed.go(5)
    assert only(bed).progress == 0.0
    for step in (1.0, 2.0, 3.0, 4.0):
        await attempt(bed, step)
    assert only(bed).phase is Phase.STARTING


@pytest.mark.parametrize(("code", "phase"), [(0, Phase.DONE), (1, Phase.WAITING)])
@pytest.mark.parametrize("told", [{"progress_step": 3.0, "progress_total": 3.0}, {}], ids=["at the end", "before"])
async def test_the_last_numbers_are_kept(bed: Bed, told: dict[str, float], code: int, phase: Phase) -> None:
    """What a script says in its last moments comes with its last word."""
    bed.up(script(replace=BRAKE))
    await bed.all_ready()
    report = bed.backend.report(only(bed).token)
    bed.host.take(replace(report, metrics={"progress_step": 2.0, "progress_total": 3.0}))
    await bed.go(1)
    bed.backend.end(only(bed).token, code, metrics=told)
    await bed.go(1)
    bed.new_host()
    assert only(bed).phase is phase
    assert only(bed).metrics == (told or {"progress_step": 2.0, "progress_total": 3.0})
    bed.change(restart=True)
    await bed.go(5)
    assert only(bed).metrics == {}, "begun again by the user it may start from nothing"


async def test_the_numbers_of_a_server_end_with_it(bed: Bed) -> None:
    bed.up(group("replica", 1))
    await bed.all_ready()
    bed.host.take(replace(bed.backend.report(bed.task().token), metrics={"running": 2.0}))
    await bed.go(1)
    bed.backend.end(bed.task().token, 1)
    await bed.go(1)
    assert bed.task().metrics == {}
