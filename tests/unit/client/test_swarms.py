"""Waiting for what comes up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.client.streams import Streaming

from remuda.base.errors import Conflict, RemudaError, TimedOut
from remuda.client import swarms


class Host(Streaming):
    """A host that says one phase after the other; the last one stays."""

    def __init__(self, **phases: list[str]) -> None:
        self.phases = phases
        self.told = len(phases["herd"])
        self.is_paused = False
        self.tasks: list[dict[str, Any]] = []
        self.endings = [False, True]
        """Whether nothing is left, at one look after the other."""

    def get(self, path: str) -> Any:
        left = self.phases[path.rpartition("/")[2]]
        phase = left.pop(0) if len(left) > 1 else left[0]
        return {"phase": phase, "reason": "the reason", "tasks": self.tasks, "backend": "local",
                "paused": self.is_paused, "ready": 1, "wanted": 2}  # fmt: skip

    def post(self, path: str, body: Any) -> Any:
        assert (path, body["names"]) == ("/workloads/batch/ending", ["herd"])
        over = self.endings.pop(0)
        phase = "DOWN" if over else "FAILED"
        return [{"name": "herd", "phase": phase, "over": over, "reason": "", "silence": "", "left": [], "strays": []}]


@pytest.mark.parametrize("phases", [["RUNNING"], ["PENDING", "STARTING", "DEGRADED"], ["STARTING", "RUNNING"]])
def test_it_waits_until_it_is_up(phases: list[str]) -> None:
    host: Any = Host(herd=list(phases))
    assert [view["phase"] for view in swarms.wait_up("herd", 10, host)] == phases


@pytest.mark.parametrize("phase", ["FAILED", "DONE", "STOPPING", "DOWN"])
def test_it_does_not_wait_for_what_will_not_come(phase: str) -> None:
    host: Any = Host(herd=["STARTING", phase])
    with pytest.raises(RemudaError, match=f"herd is {phase}: the reason") as caught:
        list(swarms.wait_up("herd", 10, host))
    assert type(caught.value) is RemudaError
    assert "remuda explain herd" in caught.value.hint
    assert not (phase == "FAILED" and host.endings), "it returns when nothing is left of what failed"


@pytest.mark.parametrize("phase", ["DONE", "STOPPING", "FAILED"])
def test_what_it_ends_with_was_begun_so_it_was_up(phase: str) -> None:
    host: Any = Host(herd=["STARTING", phase])
    host.tasks = [{"task": "bench/0", "attempt": 1}, {"task": "frontend/0", "attempt": 0}]
    assert [view["phase"] for view in swarms.wait_up("herd", 10, host, ends_with="bench")] == ["STARTING", phase]
    with pytest.raises(RemudaError, match=f"herd is {phase}"):
        list(swarms.wait_up("herd", 10, host, ends_with="frontend"))


def test_it_does_not_wait_for_ever() -> None:
    host: Any = Host(herd=["STARTING"])
    with pytest.raises(TimedOut, match="herd did not answer within 0 s: the reason"):
        list(swarms.wait_up("herd", 0.01, host))


@pytest.mark.parametrize("phase", ["PAUSED", "PENDING", "STARTING"])
def test_it_does_not_wait_for_what_is_paused(phase: str) -> None:
    host: Any = Host(herd=[phase])
    host.is_paused = True
    with pytest.raises(Conflict, match="herd is paused: 1 of 2 replicas are ready, and no other is started") as caught:
        list(swarms.wait_up("herd", 600, host))
    assert caught.value.hint == "resume it: remuda unpause herd"


def test_what_is_paused_and_up_is_up() -> None:
    host: Any = Host(herd=["RUNNING"])
    host.is_paused = True
    assert [view["phase"] for view in swarms.wait_up("herd", 600, host)] == ["RUNNING"]
