"""Each built-in job against the stub."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fakes.stub_process import StubProcess

    from remuda.batch.request import Summary

    Run = Callable[..., Summary]
    Rows = Callable[[], list[dict[str, Any]]]
    Prompts = Callable[..., Path]

SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


def test_chat_takes_messages_without_their_null_fields(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows
) -> None:
    messages = [
        [{"role": "system", "content": "be kind"}, {"role": "user", "content": "one", "name": "me"}],
        [{"role": "user", "content": "two"}],
        [{"role": "user"}, {"content": "no role"}],
        [],
    ]
    assert run(stub.url, prompts(messages, column="messages")).failed == 2
    assert [row["result"] for row in rows()] == ["echo: one", "echo: two", None, None]
    assert rows()[3]["error"] == "expected text or a list of messages, got an empty list"


def test_chat_takes_messages_as_json_text(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts(['[{"role": "user", "content": "from csv"}]', "[{not json", '[{"role" broken']))
    assert [row["result"] for row in rows()] == ["echo: from csv", "echo: [{not json", 'echo: [{"role" broken']


def test_chat_with_several_choices(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts(["a"]), job="domyn_swarm.jobs:MultiChatCompletionJob", job_kwargs={"n": 2})
    assert rows()[0]["result"] == ["echo: a", "echo: a"]


def test_completion(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    assert run(stub.url, prompts(["a", "b"]), job="completion", job_kwargs={"extra_body": {"top_k": 1}}).failed == 0
    assert rows()[1]["result"] == "echo: b"


def test_multi_turn_answers_each_open_turn(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts([["first", "second"]], column="turns"), job="multi-turn")
    assert rows()[0]["result"] == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "echo: first"},
        {"role": "user", "content": "second"},
        {"role": "assistant", "content": "echo: second"},
    ]
    assert rows()[0]["completion_tokens"] == 4


def test_multi_turn_keeps_answers_that_are_there(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    said = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "kept"},
        {"role": "user", "content": "b"},
    ]
    run(stub.url, prompts([said], column="messages"), job="multi-turn")
    assert [turn["content"] for turn in rows()[0]["result"]] == ["a", "kept", "b", "echo: b"]
    assert stub.stats()["requests"] == 1


def test_embeddings(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows) -> None:
    run(stub.url, prompts(["abc", "de"], column="text"), job="embeddings")
    assert [row["result"] for row in rows()] == [[3.0, 0.5], [2.0, 0.5]]


@pytest.mark.parametrize("of", ["reply", "text"])
def test_perplexity(stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, of: str) -> None:
    run(stub.url, prompts(["a b c"]), job="perplexity", job_kwargs={"of": of})
    row = rows()[0]
    assert row["perplexity"] == pytest.approx(math.exp(0.5))
    assert row["logprobs"] == ([-0.5] * 4 if of == "reply" else [-0.5] * 2)
    assert row["result"] == ("echo: a b c" if of == "reply" else "a b c")


def test_structured_output_is_checked(
    stub: StubProcess, prompts: Prompts, run: Run, rows: Rows, tmp_path: Path
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    source = prompts(["fine", "[unstructured] prose"])
    assert run(stub.url, source, job="structured", job_kwargs={"schema": str(path)}).failed == 1
    found = rows()
    assert json.loads(found[0]["result"]) == {"answer": "fine"}
    assert found[1]["error"].startswith("the reply is not JSON: echo:")
    strict = {**SCHEMA, "properties": {"answer": {"type": "integer"}}}
    tag = {"checkpoint_tag": "strict", "job_kwargs": {"schema": strict}}
    assert run(stub.url, source, job="structured", **tag).failed == 2
    assert rows()[0]["error"] == 'the reply does not conform to the schema: answer: "fine" is not of type "integer"'
