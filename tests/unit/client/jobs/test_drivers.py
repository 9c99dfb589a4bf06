"""Where a job runs is one decision, made by what the host has recorded of the swarm."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.fakes.clock import FakeClock
from tests.unit.plan.test_job import swarm

from remuda.base import waiting
from remuda.base.errors import NotFound, RemudaError
from remuda.client.jobs import drivers
from remuda.client.jobs.drivers import address_in, place_of
from remuda.plan.model import Front

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Host:
    """Knows one swarm."""

    def __init__(self, backend: str, router: str = "") -> None:
        changed = {"backend": backend, "front": Front(is_here=bool(router))}
        self.plan = json.loads(swarm().model_copy(update=changed).model_dump_json())
        self.asked: list[str] = []

    def get(self, path: str) -> Any:
        self.asked.append(path)
        return {"plan": self.plan, "spec": json.dumps({"backend": {"type": "slurm", "job": {"cpus_per_task": 3}}})}


@pytest.mark.parametrize(
    ("backend", "name", "here", "is_beside"),
    [("slurm", "herd", False, True), ("slurm", "herd", True, False), ("slurm", "", False, False),
     ("local", "herd", False, False), ("slurm local", "herd", False, False)],
)  # fmt: skip
def test_where_a_job_runs(backend: str, name: str, here: bool, is_beside: bool) -> None:
    host: Any = Host(*backend.split())
    place = place_of(host, name, here=here, mem="9GB")
    assert (place is not None) is is_beside
    if place is not None:
        assert (place.spec.cpus_per_task, place.asked.mem) == (3, "9GB")
    assert host.asked == ([f"/workloads/{name}/spec"] if name and not here else [])


def of_this_thread(clock: FakeClock, sleep: Callable[[float], None]) -> SimpleNamespace:
    """Threads of other tests, which may wait by the same function, go on in real time."""
    mine = threading.get_ident()

    def sleep_here(seconds: float) -> None:
        (sleep if threading.get_ident() == mine else time.sleep)(seconds)

    return SimpleNamespace(monotonic=clock.now, sleep=sleep_here)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Who sleeps there moves it, and no thread of another test."""
    clock = FakeClock()
    for module in (drivers, waiting):
        monkeypatch.setattr(module, "time", of_this_thread(clock, clock.advance))
    return clock


def test_an_address_that_nobody_says_is_waited_for_ten_minutes(tmp_path: Path, clock: FakeClock) -> None:
    file, began = tmp_path / "endpoint.json", clock.now()
    with pytest.raises(RemudaError) as caught:
        address_in(str(file))
    assert str(caught.value) == f"{file} has not said where the endpoint is for 600 s"
    assert 600 < clock.now() - began < 602


@pytest.mark.parametrize(
    ("at_s", "said", "found"),
    [
        (590.0, {"router": "http://n1:80"}, "http://n1:80"),
        (5000.0, {"router": "http://n1:80"}, "http://n1:80"),
        (5000.0, None, "the swarm was taken down: it was idle"),
    ],
    ids=["in time", "its supervisor said that it waits", "taken down meanwhile"],
)
def test_an_address_that_comes_is_taken(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, at_s: float, said: Any, found: str
) -> None:
    file, due = tmp_path / "endpoint.json", clock.now() + at_s
    if at_s > drivers._ENDPOINT_WAIT_S:
        file.write_text('{"router": ""}')

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if clock.now() >= due:
            write: Callable[[str], int] = file.write_text if said else (tmp_path / "down.json").write_text
            write(json.dumps(said or {"reason": "it was idle"}))

    monkeypatch.setattr(waiting, "time", of_this_thread(clock, sleep))
    if said:
        assert address_in(str(file)) == found
    else:
        with pytest.raises(NotFound, match=found):
            address_in(str(file))
    assert 0 <= clock.now() - due < 1
