"""Waiting for what comes up."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import RemudaError, TimedOut
from remuda.control import swarms


class Host:
    """A host that says one phase after the other; the last one stays."""

    def __init__(self, **phases: list[str]) -> None:
        self.phases = phases

    def get(self, path: str) -> Any:
        left = self.phases[path.rpartition("/")[2]]
        phase = left.pop(0) if len(left) > 1 else left[0]
        return {"phase": phase, "reason": "the reason", "tasks": [], "backend": "local"}


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarms, "_LOOK_AGAIN_S", 0.0)


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


def test_it_does_not_wait_for_ever() -> None:
    host: Any = Host(herd=["STARTING"])
    with pytest.raises(TimedOut, match="herd did not answer within 0 s: the reason"):
        list(swarms.wait_up("herd", 0.01, host))
