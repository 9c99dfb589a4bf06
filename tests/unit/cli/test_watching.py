"""`status --watch`: what is asked again, and what goes on by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remuda.cli.look import status
from remuda.client import mirror


class Host:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str, **_: object) -> Any:
        self.asked.append(path)
        if path == "/host":
            return {"note": "a note"}
        return [] if path == "/workloads" else {"tasks": [{"last_seen": 50.0}, {"last_seen": 0.0}]}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Ticks once, has news, ticks, and has news again, a second each."""
    host = Host()
    times = iter([100.0, 101.0, 102.0, 103.0])
    monkeypatch.setattr("remuda.client.http.looking", lambda: host)
    monkeypatch.setattr("remuda.cli.look.status.time.time", lambda: next(times))
    monkeypatch.setattr(mirror, "ticks", lambda *_: iter([False, True, False, True]))
    return host


@pytest.mark.parametrize(("is_terminal", "heard"), [(True, [50.0, 51.0, 50.0]), (False, [50.0, 50.0])])
def test_ages_go_on_without_the_host(
    host: Host, monkeypatch: pytest.MonkeyPatch, is_terminal: bool, heard: list[float]
) -> None:
    shown: list[list[float]] = []
    monkeypatch.setattr(status, "is_terminal", lambda: is_terminal)
    monkeypatch.setattr(
        status, "show_workload", lambda view: shown.append([task["last_seen"] for task in view["tasks"]])
    )
    assert status.status.callback is not None
    status.status.callback("chat", everything=False, watch=True, as_json=False)
    assert shown == [[at, 0.0] for at in heard]
    assert host.asked == ["/workloads/chat", "/host"] * 2


@pytest.mark.parametrize("is_terminal", [True, False])
def test_programs_are_told_only_what_has_changed(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    monkeypatch.setattr(status, "is_terminal", lambda: is_terminal)
    assert status.status.callback is not None
    status.status.callback(None, everything=False, watch=True, as_json=True)
    said = capsys.readouterr()
    assert [json.loads(line) for line in said.out.splitlines()] == [[], []]
    assert said.err == "a note\n" * 2
    assert host.asked == ["/workloads", "/host"] * 2
