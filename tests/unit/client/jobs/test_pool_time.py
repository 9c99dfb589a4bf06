"""A pool's limits while the clock is set, and while the command stands still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from tests.fakes.clock import FakeClock

from remuda.client.jobs import pool as pools
from remuda.client.jobs.pool import PoolRun
from remuda.client.jobs.pool_plan import Entry, Seen, Step, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from remuda.client.jobs.pool import PoolMember

HOUR, DAY = 3600.0, 86400.0


class Command(PoolRun):
    """A pool's command whose clock a test moves."""

    def __init__(self, entry: Entry) -> None:
        self.clock = FakeClock()  # type: ignore[assignment]
        self.members = [cast("PoolMember", SimpleNamespace(entry=entry))]
        self.late_s = 0.0
        self.ticks = self._ticks()

    def _ticks(self) -> Iterator[bool]:
        while True:
            cast("FakeClock", self.clock).advance(pools._TICK_S + self.late_s)
            yield False

    def is_left_alone(self) -> bool:
        (member,) = self.members
        return not plan([member.entry], {"a": Seen("PENDING")}, 1, self.clock.now())


@pytest.mark.parametrize("what", ["set", "stop"])
@pytest.mark.parametrize("by", [HOUR, DAY])
@pytest.mark.parametrize("limit", [{"queue_timeout_s": 60.0}, {"started_at": 999_990.0, "wait_s": 60.0}])
def test_no_limit_is_over_early_or_late(
    monkeypatch: pytest.MonkeyPatch, what: str, by: float, limit: dict[str, Any]
) -> None:
    command = Command(Entry("a", Step.STARTING, is_sent=True, since=999_990.0, **limit))
    clock = cast("FakeClock", command.clock)
    monkeypatch.setattr(pools, "steady", lambda: clock.now() - clock.offset)
    for change in (by, -by) if what == "set" else (by,):
        if what == "set":
            clock.set_by(change)
        else:
            command.late_s = change
        command._wait(command.ticks)
        command.late_s = 0.0
        assert command.is_left_alone()
    for _ in range(96):
        command._wait(command.ticks)
    assert command.is_left_alone()
    for _ in range(24):
        command._wait(command.ticks)
    assert not command.is_left_alone()
