"""An OpenAI-compatible engine that misbehaves on demand: `python -m tests.fakes.engine --port P …`.

It stands for every model server that hangs, lies or dies, starts in a tenth of a second and needs the standard library
only. With `--control FILE` a test changes the behaviour of a running one: the file is read again at each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MODES: Final = ("ok", "deaf", "500", "slow", "hang")
"""`deaf`: takes connections and never answers · `500`: refuses all with a status · `slow`: answers late · `hang`: a
stream stops in the middle and stays open, other requests are never answered. Health answers in `slow` and `hang`."""
HEAD_LIMIT: Final = 65536
#: Tokens that stand around each prompt of an engine with a tokenizer.
TEMPLATE: Final = 7
WORDS: Final = ("the", "old", "horse", "walks", "along", "a", "quiet", "river", "and", "then", "it", "stands", "still")


@dataclass
class Behaviour:
    """What the engine does now."""

    mode: str = "ok"
    slow_s: float = 1.0
    status: int = 500
    token_s: float = 0.0
    """Pause between two tokens."""
    die_after: int = 0
    """Ends without an answer when so many requests have come; 0: never."""
    unhealthy_after_s: float = 0.0
    """From start until health answers 503; 0: never."""
    echo: bool = False
    """Answers with the prompt, so that an answer in the wrong row is seen."""
    tokenizer: str = ""
    """`vllm` or `llama.cpp`: answers at `/tokenize` as that does; a word of more than five letters is two tokens."""

    def updated(self, change: dict[str, Any]) -> Behaviour:
        """With the fields of a control document; unknown ones are errors.

        Raises:
            ValueError: the mode is unknown.
        """
        made = Behaviour(**{**self.__dict__, **change})
        if made.mode not in MODES:
            raise ValueError(f"mode {made.mode!r} is none of {', '.join(MODES)}")
        return made


@dataclass
class Request:
    """One request as read."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, Any]:
        """The body as an object; empty when it is none."""
        try:
            data = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}


@dataclass
class Engine:
    """State of one running engine."""

    model: str
    behaviour: Behaviour
    control: Path | None = None
    api_key: str = ""
    name: str = ""
    """Sent with each answer as `system_fingerprint` and header `x-engine`, to tell who answered."""
    started: float = field(default_factory=time.monotonic)
    requests: int = 0
    running: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0

    def now(self) -> Behaviour:
        """Behaviour at this moment: the control file's, when there is a readable one."""
        if self.control is None:
            return self.behaviour
        try:
            return self.behaviour.updated(json.loads(self.control.read_text()))
        except (OSError, ValueError, TypeError):
            return self.behaviour  # absent, or being written

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends."""
        try:
            while (request := await read_request(reader)) is not None:
                await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self.now().mode == "deaf":
            await asyncio.Event().wait()
        if request.path == "/health":
            await send(writer, self._health_status(), {})
        elif request.path == "/metrics":
            await send(writer, 200, self.metrics(), kind="text/plain; version=0.0.4")
        elif self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            await send(writer, 401, error("wrong key", "invalid_api_key"))
        elif request.path == "/v1/models":
            await send(writer, 200, {"object": "list", "data": [model_card(self.model)]})
        elif request.path == "/tokenize" and self.behaviour.tokenizer:
            text = request.json().get("prompt" if self.behaviour.tokenizer == "vllm" else "content", "")
            await send(writer, 200, {"tokens": pieces(text)})
        elif request.method == "POST" and request.path in ANSWERS:
            await self._serve(request, writer)
        else:
            await send(writer, 404, error(f"no route {request.path}", "not_found"))

    def _health_status(self) -> int:
        behaviour = self.now()
        if behaviour.mode == "500":
            return behaviour.status
        late = behaviour.unhealthy_after_s and time.monotonic() - self.started > behaviour.unhealthy_after_s
        return 503 if late else 200

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        self.running += 1
        try:
            behaviour = self.now()
            if behaviour.die_after and self.requests >= behaviour.die_after:
                os._exit(70)
            if behaviour.mode == "500":
                await send(writer, behaviour.status, error("told to fail", "server_error"))
                return
            if behaviour.mode == "slow":
                await asyncio.sleep(behaviour.slow_s)
            body = request.json()
            if body.get("stream"):
                await self._stream(request.path, body, behaviour, writer)
                return
            if behaviour.mode == "hang":
                await asyncio.Event().wait()
            await asyncio.sleep(behaviour.token_s * wanted_tokens(body))
            whole = self._whole(request.path, body, echo=behaviour.echo)
            await send(writer, 200, whole, headers={"x-engine": self.name})
        finally:
            self.running -= 1

    def _whole(self, path: str, body: dict[str, Any], *, echo: bool) -> dict[str, Any]:
        words = prompt_of(body).split() if echo else [WORDS[i % len(WORDS)] for i in range(wanted_tokens(body))]
        prompt = self._count(body)
        self.prompt_tokens += prompt
        frame = {"id": f"{self.name}-{self.requests}", "object": ANSWERS[path], "created": int(time.time())}
        frame |= {"model": self.model, "system_fingerprint": self.name}
        if path == "/v1/embeddings":
            inputs = body.get("input")
            count = len(inputs) if isinstance(inputs, list) else 1
            data = [{"object": "embedding", "index": i, "embedding": [0.6, 0.8]} for i in range(count)]
            return {**frame, "data": data, "usage": {"prompt_tokens": prompt, "total_tokens": prompt}}
        self.generated_tokens += len(words)
        usage = {"prompt_tokens": prompt, "completion_tokens": len(words), "total_tokens": prompt + len(words)}
        return {**frame, "choices": [choice(path, " ".join(words), "stop", part="message")], "usage": usage}

    async def _stream(
        self, path: str, body: dict[str, Any], behaviour: Behaviour, writer: asyncio.StreamWriter
    ) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        writer.write(f"{head}x-engine: {self.name}\r\n\r\n".encode())
        async for event in self._events(path, body, behaviour):
            data = f"data: {event}\n\n".encode()
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _events(self, path: str, body: dict[str, Any], behaviour: Behaviour) -> AsyncIterator[str]:
        total = wanted_tokens(body)
        frame = {"id": f"{self.name}-{self.requests}", "object": f"{ANSWERS[path]}.chunk", "created": int(time.time())}
        frame |= {"model": self.model, "system_fingerprint": self.name}
        prompt = self._count(body)
        self.prompt_tokens += prompt
        for index in range(total):
            if behaviour.mode == "hang" and index == max(1, total // 2):
                await asyncio.Event().wait()
            await asyncio.sleep(behaviour.token_s)
            word = WORDS[index % len(WORDS)] + " "
            self.generated_tokens += 1
            last = "stop" if index == total - 1 else None
            yield json.dumps({**frame, "choices": [choice(path, word, last, part="delta")]})
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": prompt, "completion_tokens": total, "total_tokens": prompt + total}
            yield json.dumps({**frame, "choices": [], "usage": usage})
        yield "[DONE]"

    def _count(self, body: dict[str, Any]) -> int:
        if not self.behaviour.tokenizer:
            return count_prompt(body)
        prompt = body.get("prompt")
        return len(prompt) if isinstance(prompt, list) else TEMPLATE + len(pieces(prompt_of(body)))

    def metrics(self) -> str:
        """Prometheus text under the names that vLLM uses."""
        values = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0,
            "vllm:prompt_tokens_total": self.prompt_tokens,
            "vllm:generation_tokens_total": self.generated_tokens,
            "engine_requests_total": self.requests,
        }
        return "".join(f'{name}{{model_name="{self.model}"}} {value}\n' for name, value in values.items())


ANSWERS: Final = {
    "/v1/chat/completions": "chat.completion",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "list",
}
"""Path -> `object` of its answers."""


def model_card(model: str) -> dict[str, Any]:
    """One entry of the model list."""
    return {"id": model, "object": "model", "created": 0, "owned_by": "remuda", "max_model_len": 4096}


def error(message: str, kind: str) -> dict[str, Any]:
    """An error document as OpenAI's API has it."""
    return {"error": {"message": message, "type": kind, "code": kind}}


def choice(path: str, text: str, finish: str | None, *, part: str) -> dict[str, Any]:
    """One choice of an answer (`part` message) or of a stream's event (`part` delta)."""
    content = {part: {"role": "assistant", "content": text}} if path.endswith("chat/completions") else {"text": text}
    return {"index": 0, **content, "finish_reason": finish, "logprobs": None}


def wanted_tokens(body: dict[str, Any]) -> int:
    """How many tokens the answer has: what was asked for, else eight."""
    wanted = body.get("max_completion_tokens") or body.get("max_tokens")
    return wanted if isinstance(wanted, int) and 0 < wanted <= 100_000 else 8


def prompt_of(body: dict[str, Any]) -> str:
    """The prompt, or the last message of a chat."""
    messages = body.get("messages")
    return str(messages[-1].get("content")) if messages else str(body.get("prompt"))


def count_prompt(body: dict[str, Any]) -> int:
    """Words of the prompt: near enough to tokens."""
    return len(json.dumps(body.get("messages") or body.get("prompt") or body.get("input") or "").split())


def pieces(text: str) -> list[int]:
    """Tokens of a text: as many as stand for its words."""
    return [number for word in text.split() for number in range(1 + (len(word) > 5))]


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; None when the other side closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target.partition("?")[0], headers, body)


async def send(
    writer: asyncio.StreamWriter,
    status: int,
    answer: dict[str, Any] | str,
    *,
    kind: str = "application/json",
    headers: dict[str, str] | None = None,
) -> None:
    """Write one whole answer."""
    data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
    extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n"
    writer.write(f"{head}{extra}\r\n".encode() + data)
    await writer.drain()


def parser() -> argparse.ArgumentParser:
    """All flags."""
    made = argparse.ArgumentParser(prog="python -m tests.fakes.engine", description=__doc__, allow_abbrev=False)
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, required=True, help="0 takes a free one; the first line of output tells it")
    made.add_argument("--model", default="tiny", help="model name")
    made.add_argument("--name", default="", help="tells engines apart in their answers (default: engine-PORT)")
    made.add_argument("--api-key-env", default="", help="environment variable with the key to ask for")
    made.add_argument("--control", type=Path, help='JSON such as {"mode": "deaf"}, read again at each request')
    made.add_argument("--deaf", action="store_true", help="take connections, never answer")
    made.add_argument("--slow", type=float, metavar="S", help="answer after so many seconds")
    made.add_argument("--status", type=int, help="answer everything with this status")
    made.add_argument("--hang-mid-stream", action="store_true", help="stop in the middle of streams")
    made.add_argument("--token-s", type=float, default=0.0, help="pause between tokens")
    made.add_argument("--start-delay", type=float, default=0.0, metavar="S", help="listen only after so long")
    made.add_argument("--die-at-start", type=int, metavar="CODE", help="end at once with this code")
    made.add_argument("--die-after", type=int, default=0, metavar="N", help="end at the N-th request, unanswered")
    made.add_argument("--echo", action="store_true", help="answer with the prompt")
    made.add_argument("--tokenizer", default="", choices=["vllm", "llama.cpp"], help="answer at /tokenize as it does")
    made.add_argument("--unhealthy-after", type=float, default=0.0, metavar="S", help="health says 503 from then on")
    return made


def behaviour_of(options: argparse.Namespace) -> Behaviour:
    """What the flags ask for; the gravest of several wins."""
    common = {
        "token_s": options.token_s,
        "die_after": options.die_after,
        "unhealthy_after_s": options.unhealthy_after,
        "echo": options.echo,
        "tokenizer": options.tokenizer,
    }
    if options.deaf:
        return Behaviour(mode="deaf", **common)
    if options.status is not None:
        return Behaviour(mode="500", status=options.status, **common)
    if options.hang_mid_stream:
        return Behaviour(mode="hang", **common)
    if options.slow is not None:
        return Behaviour(mode="slow", slow_s=options.slow, **common)
    return Behaviour(**common)


async def run(options: argparse.Namespace) -> None:
    """Listen until SIGTERM or SIGINT."""
    await asyncio.sleep(options.start_delay)
    key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
    engine = Engine(options.model, behaviour_of(options), options.control, key)
    server = await asyncio.start_server(engine.converse, options.host, options.port, limit=HEAD_LIMIT, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    engine.name = options.name or f"engine-{port}"
    sys.stdout.write(f"listening on http://{options.host}:{port}\n")
    sys.stdout.flush()
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    await done.wait()
    os._exit(0)  # connections in flight are cut, as a killed engine cuts them


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    options = parser().parse_args(argv)
    if options.die_at_start is not None:
        sys.stderr.write(f"told to die at start with {options.die_at_start}\n")
        return int(options.die_at_start)
    asyncio.run(run(options))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
