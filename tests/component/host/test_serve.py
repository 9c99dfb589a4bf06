"""`remuda serve MODEL`: no document, and a real engine."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest
from tests.ports import free_port

from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from tests.conftest import Home

pytestmark = pytest.mark.real


def test_a_model_is_served_by_what_this_machine_has(home: Home) -> None:
    make_tiny_model(home.root / "Tiny-Model.gguf")
    said = home.run("serve", "Tiny-Model.gguf").stdout
    name, _, url = said.strip().partition("=")
    assert name == "OPENAI_BASE_URL"
    question = {"model": "Tiny-Model", "messages": [{"role": "user", "content": "Who is there?"}], "max_tokens": 5}
    asked = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=90) as answer:
        assert json.load(answer)["choices"][0]["message"]["content"]
    assert [task["task"] for task in home.view("tiny-model")["tasks"]] == ["replica/0"]
    home.run("down", "tiny-model")


def test_a_folder_with_a_model_at_a_port_of_ones_own(home: Home) -> None:
    (home.root / "models").mkdir()
    make_tiny_model(home.root / "models" / "Tiny.gguf")
    port = free_port()
    said = home.run("serve", "models", "--port", str(port), "--tensor-parallel-size", "0").stdout
    assert said == f"OPENAI_BASE_URL=http://127.0.0.1:{port}/v1\n"
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=90) as answer:
        assert [model["id"] for model in json.load(answer)["data"]] == ["Tiny"]
    home.run("down", "tiny")
    make_tiny_model(home.root / "models" / "Other.gguf")
    refused = home.run("serve", "models", check=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        "error: models has several GGUF files: Other.gguf, Tiny.gguf\n  name one: remuda serve models/Other.gguf\n"
    )


def test_a_machine_without_an_engine_names_those_that_were_looked_for(home: Home) -> None:
    refused = home.run("serve", "org/model", "--gpus", "0", check=False)
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        "error: this machine has no engine for org/model (looked for transformers or vllm)\n"
    ), refused.stderr
