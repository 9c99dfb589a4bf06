"""What a user is told to do next, by what has happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.supervise import build

from remuda.backends.base import make_token
from remuda.plan.model import Kind
from remuda.supervise.advice import advise
from remuda.supervise.model import Allocation, Cause, Phase, Task, Want

KEY = build.key(0, "script")
LOGS, AGAIN = "read what it wrote last: remuda logs w -n 50", "restart it once that is fixed: remuda restart w"


def ends(*causes: tuple[Cause, str, str]) -> list[Allocation]:
    """Allocations that have ended: cause, node, words."""
    return [
        Allocation(make_token(KEY, number, "u1"), KEY, number, "slurm", 1.0, node=node, ended_at=9.0 + number,
                   cause=cause, reason=reason)
        for number, (cause, node, reason) in enumerate(causes, 1)
    ]  # fmt: skip


def want(kind: Kind = Kind.RUN, backend: str = "slurm", **changes: Any) -> Want:
    workload = build.workload(build.script()).model_copy(update={"kind": kind, "backend": backend})
    return replace(Want(workload, running=True), **changes)


APP = (Cause.APPLICATION, "n1", "ended with exit code 1")


@pytest.mark.parametrize(
    ("given", "phase", "past", "unreachable", "advice"),
    [
        pytest.param(want(), Phase.READY, [], "", [], id="all is well"),
        pytest.param(want(), Phase.READY, [APP], "", [], id="it runs again"),
        pytest.param(want(), Phase.DONE, [APP], "", [], id="it is done"),
        pytest.param(want(paused=True), Phase.WAITING, [], "", ["resume it: remuda unpause w"], id="paused"),
        pytest.param(want(), Phase.PENDING, [], "no answer",
                     ["see what the host and the scheduler say: remuda doctor"], id="nobody answers"),
        pytest.param(want(), Phase.FAILED, [APP], "", [LOGS, AGAIN], id="given up"),
        pytest.param(want(), Phase.WAITING, [(Cause.APPLICATION, "n1", "used more memory than it had asked for")], "",
                     ["it needs more memory than it asks for: raise --mem 64GB"], id="memory"),
        pytest.param(want(Kind.SWARM), Phase.FAILED, [(Cause.APPLICATION, "n1", "CUDA out of memory")], "",
                     ["it does not fit its GPU: give each replica more GPUs, or make it smaller", LOGS, AGAIN],
                     id="a model that is too large"),
        pytest.param(want(), Phase.FAILED, [(Cause.APPLICATION, "n1", "CUDA out of memory")], "",
                     ["it does not fit its GPU: ask for one with more (--min-vram 80), or make it smaller", LOGS,
                      AGAIN],
                     id="a run that is too large"),
        pytest.param(want(), Phase.WAITING, [APP, APP, APP], "",
                     ["it failed 3 times on n1 and nowhere else: remuda nodes ban n1 --ttl 12h"], id="one node"),
        pytest.param(want(), Phase.WAITING, [(Cause.NODE, "n2", "x"), APP, APP, APP], "",
                     ["it failed 3 times on n1 and elsewhere, too: remuda nodes ban n1 --ttl 12h"], id="also others"),
        pytest.param(want(backend="local"), Phase.WAITING, [APP, APP, APP], "", [], id="this machine is not banned"),
        pytest.param(want(), Phase.WAITING, [(Cause.PREEMPTION, "n1", "preempted")] * 4, "", [], id="no fault of its"),
    ],
)  # fmt: skip
def test_what_to_do(
    given: Want, phase: Phase, past: list[tuple[Cause, str, str]], unreachable: str, advice: list[str]
) -> None:
    tasks = {KEY: Task(KEY, given.workload.backend, phase, attempt=1)}
    assert advise(given, tasks, ends(*past), unreachable) == advice
