"""Waiting for what goes down: it ends, and what is left is named."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.base.errors import BackendUnreachable, Conflict, HostUnreachable, Interrupted, TimedOut
from remuda.client import ending

STRAY = {"task": "replica/3", "backend": "slurm", "native": "99_3", "node": "n7"}


class Host:
    """A host that says one phase after the other, and then one sweep after the other; the last one stays."""

    def __init__(self, **phases: list[str]) -> None:
        self.phases = phases
        self.calls: list[str] = []
        self.looks: list[Any] = []
        self.refuse_removal = False
        self.backend = "local"
        self.unreachable = ""
        self.sweeps: list[Any] = [[]]
        self.away = 0

    def get(self, path: str) -> Any:
        assert path == "/workloads"
        return [{"name": name} for name in self.phases]

    def post(self, path: str, body: Any = None, **query: object) -> Any:
        if path == "/workloads/batch/ending":
            if self.away:
                self.away -= 1
                raise HostUnreachable("nobody is there")
            self.looks.append(body)
            views = [self.view(name) for name in body["names"]]
            down = [view for view in views if view["phase"] == "DOWN"]
            if down and (body["swept"] or down == views):
                self.sweep(down)
            return views if body["told"] else down
        self.calls.append(path if body is None else f"{path} {' '.join(body['names'])}")
        return None

    def view(self, name: str) -> dict[str, Any]:
        left = self.phases[name]
        phase = left.pop(0) if len(left) > 1 else left[0]
        if phase == "^C":
            raise KeyboardInterrupt
        is_over = phase == "DOWN"
        native = "12" if self.backend == "slurm" else "/home/me/.remuda/workloads/a/replica-0"
        tasks = [] if is_over else [{"task": "replica/0", "pid": 77, "node": "n1", "native": native}]
        return {"name": name, "phase": phase, "over": False, "reason": "the reason", "left": tasks,
                "silence": self.unreachable, "strays": []}  # fmt: skip

    def sweep(self, views: list[dict[str, Any]]) -> None:
        answer = self.sweeps.pop(0) if len(self.sweeps) > 1 else self.sweeps[0]
        for view in views:
            if isinstance(answer, Exception):
                view["silence"] = str(answer)
            else:
                view |= {"strays": answer, "over": not answer}

    def delete(self, path: str) -> None:
        self.calls.append(f"delete {path}")
        if self.refuse_removal:
            raise Conflict("it is not down")


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr(ending, "_SWEEP_AGAIN_S", 0.0)


def with_host(monkeypatch: pytest.MonkeyPatch, **phases: list[str]) -> tuple[Any, list[bool]]:
    host, started = Host(**phases), []

    def connect(*, start: bool = True) -> Any:
        started.append(start)
        return host

    monkeypatch.setattr(ending, "connect", connect)
    monkeypatch.setattr(ending, "looking", lambda *, starts: connect(start=starts))
    return host, started


def test_all_are_told_before_any_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    host, started = with_host(monkeypatch, a=["STOPPING", "DOWN"], b=["DOWN"])
    assert sorted(ending.take_down(["a", "b", "a"])) == ["a", "b"]
    assert host.calls == ["/workloads/batch/down a b"]
    assert started == [True]


def test_one_that_takes_long_does_not_hold_up_the_word_about_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, a=["STOPPING"] * 5 + ["DOWN"], b=["STOPPING", "DOWN"])
    assert list(ending.take_down(["a", "b"])) == ["b", "a"]


def test_everything_is_what_the_host_knows_and_none_is_started_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    host, started = with_host(monkeypatch, a=["DOWN"], b=["DOWN"])
    assert list(ending.take_down([], everything=True, remove=True)) == ["a", "b"]
    assert host.calls[1:] == ["delete /workloads/a", "delete /workloads/b"]
    assert started == [False]


def test_what_is_left_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, a=["STOPPING"], b=["DOWN"])
    down = ending.take_down(["a", "b"], wait_s=0.01)
    assert next(down) == "b"
    with pytest.raises(TimedOut, match=r"^a is not down after 0 s; left: replica/0 \(pid 77 on n1\)$"):
        next(down)


def test_jobs_that_are_left_can_be_ended_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["STOPPING"])
    host.backend = "slurm"
    with pytest.raises(TimedOut, match=r"^a is not down after 0 s; left: replica/0 \(job 12 on n1\)$") as caught:
        list(ending.take_down(["a"], wait_s=0.01))
    assert caught.value.hint == (
        "its record is kept and the host keeps ending it; wait again: remuda down a; by hand: scancel 12; "
        "afterwards remuda doctor shows what is left"
    )


def test_what_the_supervisor_does_not_know_is_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["DOWN"])
    host.sweeps = [[STRAY], [STRAY], []]
    assert list(ending.take_down(["a"])) == ["a"]
    host.sweeps = [[STRAY]]
    with pytest.raises(TimedOut, match=r"^a is not down after 0 s; left: replica/3 \(job 99_3 on n7\)$") as caught:
        list(ending.take_down(["a"], wait_s=0.01))
    assert "by hand: scancel 99_3;" in caught.value.hint


def test_a_silent_scheduler_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["DOWN"])
    host.sweeps = [BackendUnreachable("squeue gave no answer: connect failure"), []]
    assert list(ending.take_down(["a"])) == ["a"]
    host.sweeps = [BackendUnreachable("squeue gave no answer: connect failure")]
    expected = "^a is not down after 0 s; squeue gave no answer: connect failure, so whether it has ended is unknown"
    with pytest.raises(TimedOut, match=expected):
        list(ending.take_down(["a"], wait_s=0.01))


def test_jobs_of_which_nothing_is_heard_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["STOPPING"])
    host.backend, host.unreachable = "slurm", "squeue gave no answer"
    with pytest.raises(TimedOut) as caught:
        list(ending.take_down(["a"], wait_s=0.01))
    assert str(caught.value) == (
        "a is not down after 0 s; squeue gave no answer, so whether it has ended is unknown; "
        "perhaps left: replica/0 (job 12 on n1)"
    )
    assert "scancel 12" in caught.value.hint


def test_progress_is_told_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_TELL_AFTER_S", 0.0)
    with_host(monkeypatch, a=["STOPPING"] * 9 + ["DOWN"])
    told: list[str] = []
    assert list(ending.take_down(["a"], tell=told.append)) == ["a"]
    assert told == ["a still ends; left: replica/0 (pid 77 on n1)"]


def test_ctrl_c_leaves_it_going_down(monkeypatch: pytest.MonkeyPatch) -> None:
    with_host(monkeypatch, a=["DOWN"], b=["STOPPING", "^C"], c=["STOPPING"])
    with pytest.raises(Interrupted) as caught:
        list(ending.take_down(["a", "b", "c"]))
    assert str(caught.value) == "not waited for: b, c; the host keeps taking it down"
    assert caught.value.hint == "wait again: remuda down b c"


def test_a_host_that_dies_meanwhile_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host, started = with_host(monkeypatch, a=["DOWN"])
    host.away = 2
    assert list(ending.take_down(["a"])) == ["a"]
    assert started == [True, True, True]


@pytest.mark.parametrize("remove", [True, False])
def test_without_waiting_it_returns_at_once(monkeypatch: pytest.MonkeyPatch, remove: bool) -> None:
    host, _ = with_host(monkeypatch, a=["STOPPING"])
    host.refuse_removal = True
    assert list(ending.take_down(["a"], wait_s=0, remove=remove)) == ["a"]


def test_a_removal_that_is_refused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["DOWN"])
    host.refuse_removal = True
    with pytest.raises(Conflict, match="it is not down"):
        list(ending.take_down(["a"], remove=True))


def test_a_thousand_are_asked_about_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"run-{number}" for number in range(1000)]
    host, _ = with_host(monkeypatch, **{name: ["STOPPING", "STOPPING", "DOWN"] for name in names})
    assert list(ending.take_down(names)) == names
    assert [look["names"] for look in host.looks] == [names] * 3


def test_what_is_left_of_many_is_asked_only_when_it_is_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    host, _ = with_host(monkeypatch, a=["STOPPING", "STOPPING", "DOWN"])
    assert list(ending.take_down(["a"])) == ["a"]
    assert [look["told"] for look in host.looks] == [False] * 3
    monkeypatch.setattr(ending, "_TELL_AFTER_S", 0.0)
    host, _ = with_host(monkeypatch, a=["STOPPING", "STOPPING", "DOWN"])
    assert list(ending.take_down(["a"])) == ["a"]
    assert [look["told"] for look in host.looks] == [True] * 3


def test_while_others_still_end_backends_are_asked_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_SWEEP_AGAIN_S", 3600.0)
    host, _ = with_host(monkeypatch, a=["DOWN"], b=["STOPPING", "DOWN", "DOWN"], c=["STOPPING"] * 9 + ["DOWN"])
    assert list(ending.take_down(["a", "b", "c"])) == ["a", "b", "c"]
    assert [look["swept"] for look in host.looks] == [True] + [False] * 9
    assert [len(look["names"]) for look in host.looks] == [3] + [2] * 9, "b waits until all are down"


def test_what_does_not_listen_is_killed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "_FORCE_AFTER_S", 0.0)
    host, _ = with_host(monkeypatch, a=["STOPPING", "DOWN"])
    host.sweeps = [[STRAY], [STRAY], []]
    assert list(ending.take_down(["a"])) == ["a"]
    assert [look["force"] for look in host.looks] == [[], [], ["a"], ["a"]]
