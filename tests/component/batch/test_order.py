"""Which order a job takes, and that its output does not show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from remuda.batch.endpoint import ask_slots
from remuda.batch.pipeline.transport import Reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fakes.stub_process import StubProcess

    from remuda.batch.request import Summary

PAGES = [f"Page {number}: " + f"the horses of page {number} ran far and wide that day. " * 4 for number in range(8)]
PROMPTS = [f"{PAGES[number % 8]}Question {number}?" for number in range(200)]


@pytest.mark.parametrize(
    ("fields", "order", "lanes"),
    [
        pytest.param({}, "input", 0, id="an engine that nobody knows keeps the input's order"),
        pytest.param({"slots": -1}, "input", 0, id="a router before engines that nobody knows"),
        pytest.param({"slots": 0}, "prefix", 8, id="one cache for all requests"),
        pytest.param({"slots": 3}, "prefix", 3, id="a lane for each slot"),
        pytest.param({"order": "prefix"}, "prefix", 8, id="asked for"),
        pytest.param({"order": "input", "slots": 3}, "input", 0, id="asked not to"),
        pytest.param({"slots": 3, "job": "embeddings"}, "input", 0, id="embeddings share nothing"),
    ],
)
def test_what_is_chosen(
    stub: StubProcess, prompts: Callable[..., Path], run: Callable[..., Summary],
    rows: Callable[[], list[dict[str, Any]]], fields: dict[str, Any], order: str, lanes: int,
) -> None:  # fmt: skip
    summary = run(stub.url, prompts(PROMPTS), **fields)
    assert (summary.order, summary.lanes, summary.done, summary.failed) == (order, lanes, 200, 0)
    assert [row["prompt"] for row in rows()] == PROMPTS
    if "job" not in fields:
        assert [row["result"] for row in rows()] == [f"echo: {prompt}" for prompt in PROMPTS]


class Scripted:
    """A server that answers these paths."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    async def get(self, path: str) -> Reply:
        return Reply(200, orjson.dumps(self.answers[path])) if path in self.answers else Reply(404, b"{}")

    async def post(self, path: str, body: bytes) -> Reply:
        raise AssertionError

    async def close(self) -> None:
        """Nothing is open."""


def models(*owners: str) -> dict[str, Any]:
    return {"/v1/models": {"data": [{"id": owner, "owned_by": owner} for owner in owners]}}


@pytest.mark.parametrize(
    ("answers", "slots"),
    [
        pytest.param({"/props": {"total_slots": 4}, **models("llamacpp")}, 4, id="llama.cpp"),
        pytest.param(models("vllm"), 0, id="vLLM"),
        pytest.param(models("sglang"), 0, id="SGLang"),
        pytest.param(models("self_hosted"), None, id="smg"),
        pytest.param({}, None, id="nothing"),
        pytest.param({"/props": {"total_slots": "many"}}, None, id="nonsense"),
        pytest.param({"/props": []}, None, id="no object"),
        pytest.param({"/props": {"total_slots": 10**18}}, None, id="more than anybody has"),
        pytest.param({"/props": {"total_slots": -4}}, None, id="less than none"),
    ],
)
async def test_how_many_slots(answers: dict[str, Any], slots: int | None) -> None:
    assert await ask_slots(Scripted(answers)) == slots
