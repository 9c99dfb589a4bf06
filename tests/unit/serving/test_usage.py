"""When an endpoint was last used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.supervise.build import group, key, workload

from remuda.serving.usage import Reading, Use, by_replicas, by_router, taken_in, use_of
from remuda.supervise.model import Phase, Task

BEFORE = Use(100.0, {"a": 3.0})
TASK = Task(key(0), "local", Phase.READY, token="t0", loaded_at=150.0,
            metrics={"running": 0.0, "prompt_tokens": 5.0, "generated_tokens": 2.0})  # fmt: skip


@pytest.mark.parametrize(
    ("reading", "at"),
    [
        pytest.param(Reading({"a": 3.0}, 150.0), 100.0, id="nothing was asked"),
        pytest.param(Reading({"a": 4.0}, 150.0), 150.0, id="one request"),
        pytest.param(Reading({"a": 3.0}, 150.0, is_busy=True), 150.0, id="one is being answered"),
        pytest.param(Reading({"a": 0.0}, 150.0), 150.0, id="it was started again, and may have been asked before"),
        pytest.param(Reading({"b": 0.0}, 150.0), 150.0, id="another one, that was not seen beside it"),
        pytest.param(Reading({"a": 3.0, "b": 0.0}, 150.0), 100.0, id="its successor settles in"),
        pytest.param(Reading({"a": 3.0, "b": 1.0}, 150.0), 150.0, id="its successor was asked"),
        pytest.param(Reading({"a": 4.0}, 50.0), 100.0, id="never earlier than known"),
    ],
)
def test_use(reading: Reading, at: float) -> None:
    after = taken_in(BEFORE, reading)
    assert after.at == at
    assert after.counts == reading.counts
    assert use_of(after.at, after.mark()) == after


def test_a_planned_succession_of_routers_is_no_use() -> None:
    both = taken_in(BEFORE, Reading({"a": 3.0, "b": 0.0}, 150.0))
    assert taken_in(both, Reading({"b": 0.0}, 160.0)).at == 100.0


def test_first_reading_counts_as_use_now() -> None:
    assert taken_in(use_of(100.0, ""), Reading({"a": 0.0}, 150.0)).at == 150.0


def test_what_replicas_tell() -> None:
    swarm = workload(group(count=2))
    other = replace(TASK, key=key(1), token="t1", loaded_at=140.0)
    assert by_replicas(swarm, [TASK, other]) == Reading({"t0/0": 7.0, "t1/0": 7.0}, 140.0)
    busy = replace(other, metrics={**other.metrics, "waiting": 1.0})
    assert by_replicas(swarm, [TASK, busy]) == Reading({"t0/0": 7.0, "t1/0": 7.0}, 140.0, is_busy=True)
    assert by_replicas(swarm, [TASK, replace(other, metrics={})]) is None, "one that does not tell may be in use"
    assert by_replicas(swarm, [replace(TASK, phase=Phase.STARTING)]) is None


def test_what_routers_tell() -> None:
    assert by_router({"r": (5.0, 0.0)}, 9.0, [TASK]) == Reading({"r": 5.0}, 9.0)
    assert by_router({"r": (5.0, 1.0)}, 9.0, []).is_busy
    leaving = replace(TASK, yields_at=5.0, metrics={"running": 1.0})
    assert by_router({"r": (5.0, 0.0)}, 9.0, [leaving]).is_busy
