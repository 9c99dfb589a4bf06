"""The tiny model in llama.cpp's real server, started by our launcher."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from tests.component.serving.conftest import replicas, status_of
from tests.component.serving.crowding import wait
from tests.component.serving.load import Outcome, chat, load

from remuda.enter import words
from remuda.serving.smg import SmgRouter
from remuda.serving.tiny import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.component.serving.conftest import Server

    Start = Callable[..., Server]

pytestmark = pytest.mark.real
#: As many tokens as a stream may have take minutes.
LONG = ("--ctx-size", "65536")
LAUNCHER = [sys.executable, *words("llamacpp")]


@pytest.fixture
def llamacpp(serve: Start, tiny_model: Path) -> Start:
    def start(*flags: str, **more: object) -> Server:
        argv = [*LAUNCHER, "--model", str(tiny_model), "--port", "{port}", "--alias", "tiny", "--threads", "1"]
        return serve([*argv, *flags], **more)

    return start


def run(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCHER, *flags], capture_output=True, text=True, timeout=300, check=False)


async def test_it_answers_all_that_a_job_asks(llamacpp: Start) -> None:
    import openai

    server = llamacpp("--embeddings", "--metrics")
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        assert [model.id async for model in client.models.list()] == ["tiny"]
        answer = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "Who is there?"}], max_tokens=40, temperature=0
        )
        text = answer.choices[0].message.content or ""
        assert text.isascii()
        assert text[0].isupper()
        assert len(text.split()) > 3
        assert answer.usage is not None
        assert answer.usage.completion_tokens > 3
        stream = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Who is there?"}],
            max_tokens=40,
            temperature=0,
            stream=True,
        )
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]) == text
        completion = await client.completions.create(
            model="tiny", prompt="Once", max_tokens=12, extra_body={"ignore_eos": True}
        )
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 12
        vectors = await client.embeddings.create(model="tiny", input=["the old horse", "a river"])
        assert {len(item.embedding) for item in vectors.data} == {64}
        scored = await client.chat.completions.create(
            model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=4, logprobs=True, top_logprobs=2
        )
        assert scored.choices[0].logprobs is not None
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as metrics:
        assert b"llamacpp:tokens_predicted_total" in metrics.read()


async def test_structured_output_ends_by_itself(llamacpp: Start) -> None:
    import openai

    server = llamacpp()
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "tags"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        for seed in range(8):
            answer = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": f"Describe thing {seed}"}],
                max_tokens=800,
                seed=seed,
                extra_body={"response_format": shape},
            )
            assert answer.choices[0].finish_reason == "stop"
            assert isinstance(json.loads(answer.choices[0].message.content or "")["name"], str)


async def test_health_answers_while_many_requests_wait(llamacpp: Start) -> None:
    server = llamacpp("--parallel", "1", *LONG, "--metrics")
    looks: list[int] = []

    def waiting() -> int:
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
            words = (line.split() for line in answer.read().decode().splitlines())
            return next(int(line[1]) for line in words if line[0] == "llamacpp:requests_deferred")

    # A stream has the only slot for as long as we hold it: all others wait, and health waits for none of them.
    with endless_stream(server) as stream:

        def look() -> None:
            wait(lambda: waiting() == 32)
            looks.append(status_of(f"{server.url}/health"))
            looks.append(waiting())
            stream.close()

        outcome = await load(server.url, in_flight=32, after=0, action=look, max_tokens=20, ignore_eos=True)
    assert looks == [200, 32]
    assert outcome.answers == {"ok": 32}, outcome


def endless_stream(server: Server) -> Any:
    """One whose first line has come."""
    body = chat("go on", stream=True, ignore_eos=True, max_tokens=1_000_000)
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(body).encode())
    stream = urllib.request.urlopen(request, timeout=60)
    stream.readline()
    return stream


async def test_two_real_replicas_behind_the_router(llamacpp: Start, router: Start) -> None:
    first, second, gate = llamacpp(), llamacpp(), router()
    smg = SmgRouter()
    assert len((await smg.sync(gate.url, replicas({first.url, second.url}), wait_s=60.0)).added) == 2

    def warm(outcome: Outcome) -> bool:
        return outcome.answers["ok"] >= 32

    outcome = await load(gate.url, in_flight=16, after=10, when=warm, action=second.kill, max_tokens=16)
    assert outcome.answers.keys() == {"ok"}, outcome


def test_the_key_is_asked_for(llamacpp: Start) -> None:
    server = llamacpp("--api-key-env", "K", env={"K": "s3cr3t"})
    request = urllib.request.Request(f"{server.url}/v1/chat/completions", json.dumps(chat("hi")).encode())
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(request, timeout=60)
    refused.value.close()
    request.add_header("Authorization", "Bearer s3cr3t")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def test_it_ends_at_once_with_a_stream_in_flight(llamacpp: Start) -> None:
    server = llamacpp(*LONG)
    with endless_stream(server) as stream:
        assert server.end() == 0  # the stream would go on for minutes
        with contextlib.suppress(OSError, http.client.HTTPException):
            stream.read()


def test_health_is_not_good_before_the_model_is_there(llamacpp: Start) -> None:
    server = llamacpp(wait=False)
    seen = set()
    deadline = time.monotonic() + 180
    while 200 not in seen and time.monotonic() < deadline and server.process and server.process.poll() is None:
        seen.add(status_of(f"{server.url}/health"))
    assert seen <= {0, 503, 200}
    assert 200 in seen


def test_what_cannot_work_is_one_sentence(tiny_model: Path, tmp_path: Path) -> None:
    unknown = run("--model", str(tiny_model), "--wings", "2")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "--wings" in unknown.stderr
    absent = run("--model", str(tmp_path / "absent.gguf"))
    assert (absent.returncode, absent.stderr.count("\n")) == (2, 1)
    keyless = run("--model", str(tiny_model), "--api-key-env", "REMUDA_NO_SUCH_KEY")
    assert (keyless.returncode, keyless.stderr.count("\n")) == (2, 1)
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(tiny_model.read_bytes()[:1000])
    assert run("--model", str(torn)).returncode == 1


def test_a_port_in_use_is_an_error(llamacpp: Start, tiny_model: Path) -> None:
    server = llamacpp()
    again = run("--model", str(tiny_model), "--port", server.url.rpartition(":")[2])
    assert again.returncode == 1
    assert "Failed to init server" in again.stderr


def test_a_missing_wheel_is_one_sentence(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('no wheel')")
    answer = subprocess.run(
        [*LAUNCHER, "--model", str(tiny_model)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=False,
    )
    assert answer.returncode == 2
    assert "pip install 'remuda[llamacpp]'" in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_the_same_model_everywhere_in_no_time(tiny_model: Path, tmp_path: Path) -> None:
    start = time.process_time()
    again = make_tiny_model(tmp_path / "again.gguf")
    assert time.process_time() - start < 10
    assert again.read_bytes() == tiny_model.read_bytes()
    assert again.stat().st_size < 4 << 20
    assert [path.name for path in tmp_path.iterdir()] == ["again.gguf"]
