"""A deployment with an `api_key` on this machine: who asks for it, who is let in, and where its value is."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Home, until

from remuda.serving.tiny import make_tiny_model

pytestmark = pytest.mark.real
STANDINS = Path(__file__).parents[2] / "standins"
KEY = "k-61d0e8a7f2-secret"
ENGINE = {"engine": "llamacpp", "roles": {"agg": {"args": {"ctx-size": 512, "parallel": 4, "threads": 1}}}}
APART = {
    "dynamo": {"engine": "mocker", "roles": {"prefill": {}, "decode": {}}},
    "sglang-router": {"engine": "sglang", "roles": {"prefill": {}, "decode": {}}},
}
"""Frontend -> what stands behind it in place of an engine, prefill and decode apart."""


def document(home: Home, front: str, **more: Any) -> str:
    """A deployment behind that frontend: the real llama.cpp, or stand-ins for workers apart."""
    model = home.root / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    path = os.pathsep.join([str(STANDINS), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    said: dict[str, Any] = APART.get(front, ENGINE)
    file = model if front in APART else home.root / "tiny.gguf"
    if not file.exists():
        make_tiny_model(file)
    (home.root / f"{front}.yaml").write_text(json.dumps({
        "kind": "deployment", "name": front, "model": {"path": str(file), "name": "tiny"}, "env": {"PYTHONPATH": path},
        "frontend": {"type": front}, "api_key": {"env": "OUR_KEY"}, **said, **more,
    }))  # fmt: skip
    return f"{front}.yaml"


def status(url: str, key: str = "") -> int:
    """What one request is answered with."""
    body = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}).encode()
    request = urllib.request.Request(f"{url.rstrip('/')}/v1/chat/completions", body)
    request.add_header("content-type", "application/json")
    if key:
        request.add_header("authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def content(file: Path) -> bytes:
    """What is in it; nothing when it has just gone, as reports and processes do."""
    try:
        return file.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.parametrize("front", ["smg", "nginx", "none", *APART])
def test_nobody_is_answered_without_the_key(shared_home: Home, front: str) -> None:
    """The gate passes, and workers that can ask for the key do: their ports are no way round."""
    home, env, guarded = shared_home, {"OUR_KEY": KEY}, front not in APART
    file = document(home, front)
    unset = home.run("apply", file, check=False)
    assert "environment variable OUR_KEY is not set" in unset.stderr
    done = home.run("apply", file, env=env)
    assert f"{front} is up" in done.stderr
    endpoint = home.view(front)["endpoint"]
    assert [status(endpoint), status(endpoint, "wrong"), status(endpoint, KEY)] == [401, 401, 200]
    note = "take none, so whoever reaches their ports on this machine asks them without it"
    assert (note in done.stderr) is not guarded
    workers = [task["url"] for task in home.view(front)["tasks"] if task["role"] == "replica"]
    assert bool(workers) is guarded
    for url in workers:
        assert [status(url), status(url, "wrong"), status(url, KEY)] == [401, 401, 200]
    if guarded:
        until(lambda: any("generated_tokens" in task["metrics"] for task in home.view(front)["tasks"]), "its counters")

    shown = [home.run(*words, env=env).stdout for words in (
        ("apply", file, "--dry-run"), ("resolve", file), ("status", front, "--json"), ("explain", front, "--json"),
        ("logs", front), ("logs", front, "--role", "gate"), ("events", front, "--json"), ("host", "logs"),
    )]  # fmt: skip
    assert all(KEY not in text for text in (*shown, done.stdout, done.stderr))
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        assert KEY.encode() not in content(process)
    holding = [path for path in home.paths.root.rglob("*") if path.is_file() and KEY.encode() in content(path)]
    assert holding
    assert all("secrets" in path.parts and path.stat().st_mode & 0o077 == 0 for path in holding), holding
    home.run("down", front)
