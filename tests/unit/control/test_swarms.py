"""Waiting for what comes up and for what goes down."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import Conflict, RemudaError, TimedOut
from remuda.control import swarms


class Host:
    """A host that says one phase after the other; the last one stays."""

    def __init__(self, **phases: list[str]) -> None:
        self.phases = phases
        self.calls: list[str] = []
        self.refuse_removal = False
        self.backend = "local"

    def get(self, path: str) -> Any:
        if path == "/workloads":
            return [{"name": name} for name in self.phases]
        left = self.phases[path.rpartition("/")[2]]
        phase = left.pop(0) if len(left) > 1 else left[0]
        tasks = [
            {"task": "replica/0", "pid": 77, "node": "n1", "native": "12", "phase": "stopping"},
            {"task": "replica/1", "pid": 0, "node": "", "native": "", "phase": "stopped"},
        ]  # fmt: skip
        return {"phase": phase, "reason": "the reason", "tasks": tasks, "backend": self.backend}

    def post(self, path: str, body: Any = None) -> None:
        self.calls.append(path if body is None else f"{path} {' '.join(body['names'])}")

    def delete(self, path: str) -> None:
        self.calls.append(f"delete {path}")
        if self.refuse_removal:
            raise Conflict("it is not down")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarms, "_LOOK_AGAIN_S", 0.0)


def with_host(monkeypatch: pytest.MonkeyPatch, **phases: list[str]) -> tuple[Any, list[bool]]:
    host, started = Host(**phases), []

    def connect(*, start: bool = True) -> Any:
        started.append(start)
        return host

    monkeypatch.setattr(swarms, "connect", connect)
    return host, started


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


def test_all_are_told_before_any_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host, started = with_host(monkeypatch, a=["STOPPING", "DOWN"], b=["DOWN"])
    assert list(swarms.take_down(["a", "b"])) == ["a", "b"]
    assert host.calls == ["/workloads/batch/down a b"]
    assert started == [True]


def test_everything_is_what_the_host_knows_and_none_is_started_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host, started = with_host(monkeypatch, a=["DOWN"], b=["DOWN"])
    assert list(swarms.take_down([], everything=True, remove=True)) == ["a", "b"]
    assert host.calls[1:] == ["delete /workloads/a", "delete /workloads/b"]
    assert started == [False]


def test_what_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, a=["STOPPING"])
    with pytest.raises(TimedOut, match=r"a is not down after 0 s; left: replica/0 \(pid 77 on n1\)$"):
        list(swarms.take_down(["a"], wait_s=0.01))


def test_jobs_that_are_left_can_be_ended_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["STOPPING"])
    host.backend = "slurm"
    with pytest.raises(TimedOut, match=r"a is not down after 0 s; left: replica/0 \(job 12 on n1\)$") as caught:
        list(swarms.take_down(["a"], wait_s=0.01))
    assert caught.value.hint == "the host goes on ending it: remuda status a; by hand: scancel 12"


@pytest.mark.parametrize("remove", [True, False])
def test_without_waiting_it_returns_at_once(monkeypatch: pytest.MonkeyPatch, remove: bool) -> None:
    host, _ = with_host(monkeypatch, a=["STOPPING"])
    host.refuse_removal = True
    assert list(swarms.take_down(["a"], wait_s=0, remove=remove)) == ["a"]


def test_a_removal_that_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["DOWN"])
    host.refuse_removal = True
    with pytest.raises(Conflict, match="it is not down"):
        list(swarms.take_down(["a"], remove=True))
