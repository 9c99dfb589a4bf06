"""An OpenAI-compatible server that answers at once, or misbehaves on demand: for tests and benchmarks of clients.

It is much faster than any client in Python, so that a benchmark measures the client. Replies repeat the prompt, so
that a test can tell whose answer it holds. What it does can be changed while it runs:

- by words in the prompt: `[400]` refuses, `[500]` always fails, `[500 once]`, `[429 once]`, `[503 once]` fail the first
  time, `[hang]` stops in the middle of the body, `[reset]` closes the connection, `[garbage]` answers no JSON;
  what follows `[body]` is the body of the answer;
- by `POST /stub/set` with a JSON object of `Behaviour` fields.

`GET /stub/stats` says how many requests it had and how often each prompt was asked; `GET /stub/forget` begins anew.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import dataclasses
import random
import re
import signal
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BODY = "[body]"
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
_METRICS = {
    "vllm": ("vllm:num_requests_waiting", "vllm:num_requests_running"),
    "llamacpp": ("llamacpp:requests_deferred", "llamacpp:requests_processing"),
    "sglang": ("sglang:num_queue_reqs", "sglang:num_running_reqs"),
}


@dataclass
class Behaviour:
    """What the stub does; every field can be changed while it runs."""

    latency_s: float = 0.0
    """Seconds until an answer, without queueing."""
    slots: int = 0
    """Requests worked on at once; the others queue. 0 means no bound."""
    rate_429: float = 0.0
    rate_500: float = 0.0
    retry_after: str = ""
    """Value of the Retry-After header of 429 and 503 answers; empty sends none."""
    queue_limit: int = 0
    """Answer 503 when more than this many requests are queued. 0 means never."""
    status: int = 200
    """Answer everything with this status."""
    hang: bool = False
    """Accept requests and never answer."""
    leave_after: int = 0
    """Never answer what comes after so many questions, so that whatever is to happen then meets some. 0: answer all."""
    models: str = "stub"
    """Comma-separated names for /v1/models."""
    api_key: str = ""
    metrics: str = ""
    """Whose metrics to show: vllm, llamacpp, sglang, or empty for none."""
    fast: bool = False
    """Answer a fixed reply without reading the request."""
    location: str = ""
    """Location header of answers with a 3xx `status`; paths that begin with `/moved/` are answered whatever it is."""
    gateway: int = 0
    """Answer 504 to what comes while so many are worked on, as a gateway that waited too long; -1: always, 0: never."""


@dataclass
class State:
    """Behaviour and what has happened so far."""

    behaviour: Behaviour
    random: random.Random
    requests: int = 0
    active: int = 0
    peak: int = 0
    prompts: collections.Counter[str] = field(default_factory=collections.Counter)
    keys: int = 0
    """Requests that came with a key, of whatever value."""
    encoding: str | None = None
    """What the first request said that it accepts."""
    queue: collections.deque[Callable[[], None]] = field(default_factory=collections.deque)

    def stats(self) -> dict[str, object]:
        """What `/stub/stats` answers."""
        return {
            "requests": self.requests,
            "active": self.active,
            "waiting": len(self.queue),
            "peak": self.peak,
            "prompts": dict(self.prompts),
            "keys": self.keys,
            "encoding": self.encoding,
        }


def encode(status: int, body: bytes, headers: str = "") -> bytes:
    """A whole HTTP/1.1 response."""
    reason = _REASONS.get(status, "Status")
    head = (
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    )
    return head.encode() + body


def error_body(status: int, message: str) -> bytes:
    """An error as OpenAI-compatible servers write it."""
    return orjson.dumps({"error": {"message": message, "type": "stub", "code": status}})


def prompt_of(body: dict[str, Any]) -> str:
    """The text that identifies a request: the last message, the prompt, or the input."""
    messages = body.get("messages")
    if messages:
        return str(messages[-1].get("content"))
    value = body.get("prompt", body.get("input", ""))
    return value if isinstance(value, str) else str(value)


def _usage(prompt: str, reply: str) -> dict[str, int]:
    asked, answered = len(prompt.split()), len(reply.split())
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def _logprobs(reply: str) -> list[dict[str, object]]:
    return [{"token": word, "logprob": -0.5, "top_logprobs": []} for word in reply.split()]


def _reply_text(body: dict[str, Any], prompt: str) -> str:
    if "response_format" in body and "[unstructured]" not in prompt:
        return orjson.dumps({"answer": prompt}).decode()
    return f"echo: {prompt}"


def answer(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The reply to one well-formed request."""
    prompt = prompt_of(body)
    model = body.get("model", "stub")
    if path.endswith("/embeddings"):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [{"object": "embedding", "index": i, "embedding": [float(len(t)), 0.5]} for i, t in enumerate(texts)]
        return {"object": "list", "model": model, "data": data, "usage": _usage(prompt, "")}
    text = _reply_text(body, prompt)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    if path.endswith("/chat/completions"):
        choice["message"] = {"role": "assistant", "content": text}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": _logprobs(text)}
    else:
        echoed = f"{prompt} {text}" if body.get("echo") else text
        choice["text"] = echoed
        if body.get("logprobs") is not None:
            words = echoed.split()
            choice["logprobs"] = {"tokens": words, "token_logprobs": [None, *[-0.5] * (len(words) - 1)]}
    choices = [{**choice, "index": i} for i in range(int(body.get("n") or 1))]
    return {"id": "stub", "object": "completion", "model": model, "choices": choices, "usage": _usage(prompt, text)}


class StubProtocol(asyncio.Protocol):
    """One connection: requests one after another, keep-alive."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.buffer = b""
        self.transport: asyncio.Transport | None = None
        self.fast = encode(200, orjson.dumps(answer("/v1/chat/completions", {"messages": [{"content": "hello"}]})))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.transport = None

    def data_received(self, data: bytes) -> None:
        """Cut whole requests out of the stream."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            length = _content_length(head)
            total = end + 4 + length
            if len(self.buffer) < total:
                return
            body, self.buffer = self.buffer[end + 4 : total], self.buffer[total:]
            self.request(head, body)

    def request(self, head: bytes, body: bytes) -> None:
        """Serve one request."""
        behaviour = self.state.behaviour
        if behaviour.fast and head.startswith(b"POST /v1/chat"):
            self.state.requests += 1
            self.later(behaviour.latency_s, self.fast)
            return
        path = head.split(b" ", 2)[1].decode()
        self.state.keys += b"\r\nauthorization:" in head.lower()
        if self.state.encoding is None:
            found = re.search(rb"\r\naccept-encoding:[ \t]*([^\r]*)", head, re.IGNORECASE)
            self.state.encoding = found[1].decode() if found else ""
        if behaviour.location and not path.startswith(("/moved/", "/stub/")):
            self.write(encode(behaviour.status, b"", f"location: {behaviour.location}\r\n"))
            return
        path = path.removeprefix("/moved")
        if behaviour.hang and not path.startswith("/stub/"):
            return
        if behaviour.api_key and not path.startswith("/stub/") and not _authorized(head, behaviour.api_key):
            self.write(encode(401, error_body(401, "wrong API key")))
        elif head.startswith(b"POST ") and path.startswith("/v1/"):
            self.model_request(path, body)
        else:
            self.write(self.admin(path, body))

    def admin(self, path: str, body: bytes) -> bytes:
        """Models, health, metrics, and the stub's own paths."""
        state, behaviour = self.state, self.state.behaviour
        match path:
            case "/v1/models" if behaviour.status == 200:
                data = [{"id": name, "object": "model"} for name in behaviour.models.split(",")]
                return encode(200, orjson.dumps({"object": "list", "data": data}))
            case "/v1/models":
                return encode(behaviour.status, error_body(behaviour.status, "scripted"))
            case "/health":
                return encode(200, b"{}")
            case "/metrics" if behaviour.metrics:
                waiting, running = _METRICS[behaviour.metrics]
                label = '{model_name="stub"}' if behaviour.metrics != "llamacpp" else ""
                text = f"# TYPE {waiting} gauge\n{waiting}{label} {len(state.queue)}\n{running}{label} {state.active}\n"
                return encode(200, text.encode())
            case "/stub/stats":
                return encode(200, orjson.dumps(state.stats()))
            case "/stub/forget":
                state.requests, state.keys = 0, 0
                state.prompts.clear()
                return encode(200, b"{}")
            case "/stub/set":
                for name, value in orjson.loads(body).items():
                    setattr(behaviour, name, value)
                return encode(200, orjson.dumps(dataclasses.asdict(behaviour)))
            case _:
                return encode(404, error_body(404, f"no {path} here"))

    def model_request(self, path: str, raw: bytes) -> None:
        """Count, misbehave where scripted, else answer after the latency, in a slot."""
        state, behaviour = self.state, self.state.behaviour
        state.requests += 1
        body = orjson.loads(raw)
        prompt = prompt_of(body)
        state.prompts[prompt] += 1
        if 0 < behaviour.leave_after < state.requests:
            return
        if prompt.startswith(_BODY):
            self.enqueue(encode(200, prompt.removeprefix(_BODY).encode()))
            return
        status = self.scripted_status(prompt, first=state.prompts[prompt] == 1)
        if status != 200:
            retry = (
                f"retry-after: {behaviour.retry_after}\r\n" if behaviour.retry_after and status in {429, 503} else ""
            )
            self.write(encode(status, error_body(status, f"scripted {status}"), retry))
        elif "[reset]" in prompt:
            self.close()
        else:
            response = encode(200, orjson.dumps(answer(path, body)))
            if "[hang]" in prompt:
                response = response[:-20]
            elif "[garbage]" in prompt:
                response = encode(200, b"<html>not json</html>")
            self.enqueue(response)

    def scripted_status(self, prompt: str, *, first: bool) -> int:
        """Status for this prompt, 200 when it shall be answered."""
        behaviour, state = self.state.behaviour, self.state
        if behaviour.status != 200 and not behaviour.location:
            return behaviour.status
        if behaviour.gateway < 0 or (behaviour.gateway and state.active >= behaviour.gateway):
            return 504
        if behaviour.queue_limit and len(state.queue) >= behaviour.queue_limit:
            return 503
        if "[" in prompt:
            for status in (400, 404, 500, 504):
                if f"[{status}]" in prompt:
                    return status
            for status in (429, 500, 503):
                if first and f"[{status} once]" in prompt:
                    return status
        drawn = state.random.random()
        if drawn < behaviour.rate_429:
            return 429
        return 500 if drawn < behaviour.rate_429 + behaviour.rate_500 else 200

    def enqueue(self, response: bytes) -> None:
        """Answer after the latency, when a slot is free."""
        state, behaviour = self.state, self.state.behaviour
        if behaviour.slots <= 0:
            self.later(behaviour.latency_s, response)
            return

        def start() -> None:
            state.active += 1
            state.peak = max(state.peak, state.active)
            asyncio.get_running_loop().call_later(behaviour.latency_s, finish)

        def finish() -> None:
            state.active -= 1
            self.write(response)
            if state.queue:
                state.queue.popleft()()

        if state.active < behaviour.slots:
            start()
        else:
            state.queue.append(start)

    def later(self, seconds: float, response: bytes) -> None:
        """Write `response` after `seconds`."""
        if seconds > 0:
            asyncio.get_running_loop().call_later(seconds, self.write, response)
        else:
            self.write(response)

    def write(self, response: bytes) -> None:
        """Write unless the client has gone."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(response)

    def close(self) -> None:
        """Close without an answer."""
        if self.transport is not None:
            self.transport.abort()


def _content_length(head: bytes) -> int:
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    if at < 0:
        return 0
    line = lowered[at + 15 :].split(b"\r\n", 1)[0]
    return int(line)


def _authorized(head: bytes, key: str) -> bool:
    return f"\r\nauthorization: bearer {key}".encode().lower() in head.lower()


async def serve(behaviour: Behaviour, port: int, seed: int, ready: Callable[[int], None]) -> None:
    """Listen on 127.0.0.1 until SIGTERM or SIGINT; `ready` gets the port."""
    loop = asyncio.get_running_loop()
    state = State(behaviour, random.Random(seed))
    server = await loop.create_server(lambda: StubProtocol(state), "127.0.0.1", port, backlog=4096)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    ready(server.sockets[0].getsockname()[1])
    await stop.wait()
    server.close()


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line; prints the port as the first line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.stub_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--seed", type=int, default=0, help="of the random failures")
    for item in dataclasses.fields(Behaviour):
        flag = "--" + item.name.replace("_", "-")
        if isinstance(item.default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(item.default), default=item.default)
    options = vars(parser.parse_args(argv))
    port, seed = options.pop("port"), options.pop("seed")

    def ready(number: int) -> None:
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(Behaviour(**options), port, seed, ready))


if __name__ == "__main__":
    main()
