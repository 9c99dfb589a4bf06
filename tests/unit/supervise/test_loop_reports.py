"""What the loop does with what nodes say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.supervise.build import group

from remuda.supervise.model import Phase
from remuda.wire.report import Report

if TYPE_CHECKING:
    from tests.unit.supervise.bed import Bed


async def test_reports_of_dead_tokens_are_ignored(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    old = bed.task().token
    bed.backend.end(old, 1)
    await bed.go(30)
    late = bed.backend.report(old, "ready")
    before = bed.task()
    for token in (old, "w.replica.9.1.u1", "other.replica.0.1.u9"):
        bed.host.take(Report(**{**late.__dict__, "token": token, "seq": 99}))
    await bed.go()
    assert bed.task() == before
    assert (before.attempt, before.phase) == (2, Phase.STARTING)


async def test_the_newest_report_wins_in_whatever_order_they_come(bed: Bed) -> None:
    bed.up(group(count=1))
    await bed.go()
    token = bed.task().token
    first, second = bed.backend.report(token, "unhealthy"), bed.backend.report(token, "ready")
    bed.host.take(second)
    bed.host.take(first)
    await bed.go()
    assert bed.phases() == [Phase.READY]


async def test_reports_are_no_reason_to_ask_the_backend(bed: Bed) -> None:
    bed.up(group(count=100))
    await bed.go(1)
    await bed.host.step()
    observed = bed.backend.count("observe")
    for task in bed.tasks():
        bed.host.take(bed.backend.report(task.token, "ready"))
        await bed.host.step()
    assert bed.phases() == [Phase.READY] * 100
    assert bed.backend.count("observe") == observed


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        ("ready", {}, False),
        ("ready", {"metrics": {"running": 4.0}}, False),
        ("ready", {"pid": 77}, True),
        ("ready", {"url": "http://elsewhere:1"}, True),
        ("ready", {"restarts": 1}, True),
        ("unhealthy", {}, True),
        ("exited", {}, True),
        ("unhealthy", {"token": "w.replica.0.9.u1"}, False),
        ("unhealthy", {"token": "not one of ours"}, False),
    ],
)
async def test_only_news_wake_the_loop(bed: Bed, state: str, changes: dict[str, Any], expected: bool) -> None:
    bed.up(group(count=1))
    await bed.all_ready()
    task = bed.task()
    bed.host._wake.clear()
    bed.host.take(replace(bed.backend.report(task.token, state), **{"url": task.url, "pid": task.pid, **changes}))
    assert bed.host._wake.is_set() is expected
    await bed.go(2)
    assert bed.task().metrics == changes.get("metrics", {}), "what can wait is taken in with the next look"


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        ("starting", "nothing listens; log: shard 1 of 8", False),
        ("starting", "nothing listens; log: shard 2 of 8", False),
        ("starting", "answers with HTTP status 503; log: shard 2 of 8", True),
        ("ready", "", True),
        ("backoff", "exit code 1", True),
    ],
)
async def test_what_a_server_prints_while_it_loads_wakes_nobody(
    bed: Bed, state: str, reason: str, *, expected: bool
) -> None:
    bed.up(group(count=1))
    await bed.go(1)
    first = replace(bed.backend.report(bed.task().token, "starting"), reason="nothing listens; log: shard 1 of 8")
    bed.host.take(first)
    await bed.go()
    bed.host._wake.clear()
    bed.host.take(replace(first, seq=first.seq + 1, state=state, reason=reason))
    assert bed.host._wake.is_set() is expected
    await bed.go(2)
    assert bed.task().seq == first.seq + 1, "what can wait is taken in with the next look"
