"""What counts when somebody asks for the same again."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.plan.identity import digest
from remuda.specs.swarm import SwarmSpec

SAID: dict[str, Any] = {"model": "m", "replicas": 2, "backend": {"type": "local", "endpoint": {"port": 9000}}}


def of(cwd: str = "/w", name: str = "n", text: str = "", **changes: Any) -> str:
    spec = SwarmSpec.model_validate({**SAID, **changes})
    return digest(spec, cwd=cwd, name=name, text=text, port=("backend", "endpoint", "port"))


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"engine": "vllm"}, True),  # the default, said
        ({"backend": {"type": "local"}}, True),  # the port that it has will do
        ({"backend": {"type": "local", "gpus": ["0"]}}, False),
        ({"replicas": 3}, False),
        ({"secret_env": {"KEY": {"env": "KEY"}}}, False),
        ({"cwd": "/elsewhere"}, False),
        ({"name": "o"}, False),
        ({"text": "#!/bin/sh"}, False),
    ],
)
def test_the_same_is_what_a_user_would_call_the_same(changes: dict[str, Any], is_same: bool) -> None:
    assert (of(**changes) == of()) is is_same
