"""What counts as an answer of a deployment that was brought up."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from remuda.client import gate
from remuda.client.gate import tokens_of
from remuda.host.app import ScaleBody
from remuda.serving.client import HttpReply


@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        ({"usage": {"completion_tokens": 4}}, 4),
        ({"usage": {"completion_tokens": True}}, 0),
        ({"usage": {"completion_tokens": True}, "choices": [{"text": "so"}]}, 1),
        ({"usage": {"completion_tokens": "4"}}, 0),
        ([1], 0),
    ],
    ids=str,
)
def test_tokens_of_an_answer(answer: Any, tokens: int) -> None:
    assert tokens_of(answer) == tokens


def test_true_is_no_number_of_tasks() -> None:
    assert ScaleBody.model_validate({"groups": {"decode": 2}}).groups == {"decode": 2}
    for body in ({"groups": {"decode": True}}, {"groups": {"decode": "2"}}, {"replicas": True}):
        with pytest.raises(ValidationError):
            ScaleBody.model_validate(body)


class Deployment:
    """One of a prefill and a decode worker, whose parts are late by so many looks."""

    def __init__(self, frontend: str, late: int) -> None:
        workers = [{"role": role, "phase": "ready", "url": f"http://{role}/"} for role in ("prefill", "decode")]
        labels = {"frontend": frontend, "router": "smg"}
        self.counter = "sglang:prompt_tokens_total"
        if frontend == "dynamo":
            self.counter = 'dynamo_component_requests_total{dynamo_endpoint="generate"}'
        self.view = {"endpoint": "http://e", "model": "m", "api_key_file": "", "labels": labels, "tasks": workers}
        self.late = late
        self.looks: Counter[str] = Counter()

    def is_there(self, what: str) -> bool:
        self.looks[what] += 1
        return self.looks[what] > self.late

    def get(self, _: str) -> Any:
        return self.view if self.is_there("address") else self.view | {"endpoint": ""}

    def request(self, _: str, url: str, **__: Any) -> HttpReply:
        if url.endswith("/metrics"):
            moved = self.looks["asked"] and self.is_there("metrics")
            return HttpReply(200, f"{self.counter} {7 if moved else 0}\n".encode())
        if url.endswith("/health"):
            roles = ("prefill", "backend") if self.is_there("list") else ("backend",)
            listed = [{"component": role, "endpoint": "generate"} for role in roles]
            return HttpReply(200, json.dumps({"instances": listed}).encode())
        self.looks["asked"] += 1
        return HttpReply(200, b'{"usage": {"completion_tokens": 8}}')


@pytest.mark.parametrize(
    ("frontend", "late", "said"),
    [
        ("smg", 2, ["sglang:prompt_tokens_total of prefill: 0 → 7"]),
        ("dynamo", 2, ["the frontend at http://e lists prefill 1/1, decode 1/1",
                       "dynamo_component_requests_total of prefill: 0 → 7"]),
    ],
)  # fmt: skip
def test_what_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch, frontend: str, late: int, said: list[str]) -> None:
    there = Deployment(frontend, late)
    monkeypatch.setattr(gate, "PAUSE_S", 0.0)
    monkeypatch.setattr(gate, "connect", lambda **_: there)
    monkeypatch.setattr(gate, "request", there.request)
    assert [line for line in gate.look("d") if "was answered with 8 tokens" not in line] == said


@pytest.mark.parametrize(
    ("missing", "sentence"),
    [
        ("address", "the endpoint of d has no address"),
        ("list", "the frontend at http://e lists prefill 0/1, decode 1/1, though all of them are ready"),
        ("metrics", "the request bypassed the prefill workers: dynamo_component_requests_total did not change"),
    ],
)
def test_what_never_comes_is_said(monkeypatch: pytest.MonkeyPatch, missing: str, sentence: str) -> None:
    there = Deployment("dynamo", 0)
    monkeypatch.setattr(there, "is_there", lambda what: what != missing)
    monkeypatch.setattr(gate, "PATIENCE_S", 0.0)
    monkeypatch.setattr(gate, "connect", lambda **_: there)
    monkeypatch.setattr(gate, "request", there.request)
    with pytest.raises(gate.Closed, match=f"^{sentence}$"):
        gate.look("d")
