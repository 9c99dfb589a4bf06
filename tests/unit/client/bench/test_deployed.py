"""The driver of a deployment's benchmark where it asks nobody, and how its end is told."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.client.streams import Streaming

from remuda.base.errors import RemudaError
from remuda.client.bench import deployed
from remuda.plan.deployment.bench import TOLD

if TYPE_CHECKING:
    from pathlib import Path


def test_on_a_cluster_a_command_is_told_what_the_endpoints_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(os, "execvpe", lambda name, _argv, env: seen.append((name, env)))
    (tmp_path / "endpoint.json").write_text('{"url": "http://127.0.0.1:9", "router": "http://node7:8123"}')
    told = {
        "name": "herd", "backend": "slurm", "run_dir": str(tmp_path), "model": "tiny", "command": ["run.sh"],
        "said": ["SRT_JOB_NAME"], "env": {"PYTHONPATH": "/theirs"},
    }  # fmt: skip
    (tmp_path / TOLD).write_text(json.dumps(told))
    monkeypatch.delenv("SRT_JOB_NAME", raising=False)
    deployed.drive(tmp_path)
    ((name, env),) = seen
    assert (name, env["PYTHONPATH"]) == ("run.sh", "/theirs")
    assert {name: value for name, value in env.items() if name.startswith("SRT_")} == {
        "SRT_FRONTEND_HOST": "node7", "SRT_FRONTEND_PORT": "8123", "SRT_ENDPOINT": "http://node7:8123",
        "SRT_MODEL_NAME": "tiny", "SRT_LOG_DIR": str(tmp_path / "bench"),
    }  # fmt: skip


def view(phase: str, code: int | None, run_dir: Path) -> dict[str, Any]:
    task = {"task": "bench/0", "exit_code": code}
    return {"name": "herd", "phase": phase, "reason": "because", "run_dir": str(run_dir), "tasks": [task]}


@pytest.mark.parametrize("phase", ["DONE", "FAILED"])
def test_the_end_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    views = [view("RUNNING", None, tmp_path), view("STOPPING", 11, tmp_path), view(phase, 11, tmp_path)]
    monkeypatch.setattr("remuda.client.reconnect.get", lambda _client, _path: views.pop(0))
    client: Any = Streaming()
    client.told = 3
    end = deployed.ended(client, "herd")
    assert (end.exit_code, end.folder, end.points(), views) == (11, tmp_path / "bench", [], [])


@pytest.mark.parametrize(("phase", "code"), [("FAILED", None), ("DOWN", None), ("DOWN", 0)])
def test_another_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str, code: int | None) -> None:
    monkeypatch.setattr("remuda.client.reconnect.get", lambda _client, _path: view(phase, code, tmp_path))
    client: Any = Streaming()
    with pytest.raises(RemudaError, match=f"herd is {phase}, and its benchmark did not finish: because"):
        deployed.ended(client, "herd")
