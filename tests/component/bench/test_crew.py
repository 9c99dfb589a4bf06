"""The load generator's processes, seen by who started them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.component.bench.test_command import engine
from tests.unit.bench.samples import closed, evidence, states

from remuda.base.errors import Unavailable
from remuda.bench.generator import load_workers
from remuda.bench.generator.http_stream import RequestTarget
from remuda.bench.generator.prompts import PromptFit
from remuda.bench.load import Load
from remuda.bench.probe import Fitted

if TYPE_CHECKING:
    from remuda.bench.generator.load_workers import LoadProgress

__all__ = ["engine"]


async def test_a_process_that_stands_still_is_not_waited_for(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_workers, "_SILENT_TURNS", 8)
    stopped: list[int] = []

    def stop(live: LoadProgress) -> None:
        if live.rows and not stopped:
            stopped.append(made._found[0].pid)
            os.kill(stopped[0], signal.SIGSTOP)

    async with load_workers.Crew(
        Load(40, 8, requests=10**6), RequestTarget(engine), "tiny", Fitted(PromptFit(), forced=True)
    ) as made:
        with pytest.raises(Unavailable, match="a process of the load generator hangs"):
            await made.run(enough=lambda _: False, show=stop)
    assert stopped
    assert made._found[0].returncode == -signal.SIGKILL


async def test_a_stop_of_one_process_ends_in_its_verdict(engine: str) -> None:
    """It is one lag among hundreds: no percentile shows it."""
    moments: list[float] = []

    def stop(live: LoadProgress) -> None:
        if live.rows and not moments:
            moments.append(live.seconds)
            os.kill(made._found[0].pid, signal.SIGSTOP)
        elif len(moments) == 1 and live.seconds > moments[0] + 0.8:
            moments.append(live.seconds)
            os.kill(made._found[0].pid, signal.SIGCONT)

    def enough(live: LoadProgress) -> bool:
        return len(moments) == 2 and live.seconds > moments[1] + 1.0

    async with load_workers.Crew(Load(40, 8), RequestTarget(engine), "tiny", Fitted(PromptFit(), forced=True)) as made:
        run = await made.run(enough=enough, show=stop)
    assert run.client.lag_max_s > 0.7
    assert states(evidence(closed(), client=run.client))["V6"] == "invalid"
