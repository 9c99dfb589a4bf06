"""`remuda serve MODEL`: no document, and a real engine."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import pytest

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
