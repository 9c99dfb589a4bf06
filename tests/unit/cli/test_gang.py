"""`gang rounds`: what is shown of what ranks have committed, and what is said where nothing can read it."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from remuda.cli import main

COMMITTED = {
    "run_id": "r7", "committed": 2, "missing": ["3"],
    "rounds": [{"round": 0, "ranks": [0, 1, 2, 3], "at": 1.5}, {"round": 1, "ranks": [0, 1, 2], "at": None}],
}  # fmt: skip
URL = ("gang", "rounds", "s3://bucket/x", "--run-id", "r7")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Which summaries were asked for."""
    found: list[tuple[str, str]] = []

    def summary(url: str, run_id: str) -> Any:
        found.append((url, run_id))
        return SimpleNamespace(to_json=lambda: COMMITTED)

    monkeypatch.setitem(sys.modules, "remuda.gang.rounds", SimpleNamespace(summary=summary))
    return found


def test_rounds_at_a_url_need_no_host(asked: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*URL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == COMMITTED
    assert main([*URL]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[:3] == [["run", "id", "r7"], ["committed", "2"], ["missing", "3"]]
    assert lines[3] == ["ROUND", "RANKS", "AT"]
    assert lines[-1] == ["1", "0", "1", "2"]
    assert asked == [("s3://bucket/x", "r7")] * 2


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "remuda.gang.rounds", None)
    assert main([*URL]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("error: rounds cannot be read without numpy and obstore (")
    assert said[1] == "  pip install 'remuda[gang]'"
