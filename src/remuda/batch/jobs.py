"""The built-in jobs: each builds request bodies and reads replies; nothing here waits but for the answer.

Keyword arguments that a job does not know go into the request body as they are (`temperature`, `max_tokens`, ...),
those under `extra_body` too.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from remuda.base.errors import InputError
from remuda.batch.job import SwarmJob
from remuda.batch.pipeline.answer import RowAnswer, RowError
from remuda.batch.pipeline.conform import compile_schema, read_schema
from remuda.batch.pipeline.lenient import count, excerpt, numbers, text, word

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Posts a JSON body to a path and gives the parsed answer.
Ask = Callable[[str, bytes], Awaitable[dict[str, Any]]]
_CHAT = "/v1/chat/completions"
_COMPLETION = "/v1/completions"
_NOT_OURS = ("api_key", "extra_headers", "extra_query", "stream", "stream_options")


class RequestJob(SwarmJob):
    """A job whose rows are questions to an OpenAI-compatible server, over the lean path.

    Subclasses implement `answer`. `revision` is part of the job's fingerprint: raise it when answers change.
    """

    revision: ClassVar[int] = 1
    outputs: ClassVar[int] = 1
    """Columns that an answer fills."""
    usage: ClassVar[bool] = True
    """Whether the output gets token columns."""
    likes_order = True
    types: ClassVar[tuple[str, ...]] = ()
    """Types of the first output columns, `string` or `double`; those of the others are found from the values."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if (named := len(self.output_names)) != self.outputs:
            names = ", ".join(self.output_names)
            columns = f"one ({names})" if named == 1 else f"{named} columns ({names})"
            fills = f"{self.outputs} columns" if self.outputs > 1 else "one column"
            raise InputError(
                f"the job's answers fill {fills}, not {columns}", hint="name as many", where="--output-column"
            )
        for name in _NOT_OURS:
            if name in self.kwargs:
                hint = "give the key by --api-key-env or --api-key-file" if name == "api_key" else ""
                raise InputError(f"job argument {name!r} is not supported", hint=hint, where="--job-kwargs")
        extra = self.kwargs.get("extra_body") or {}
        if not isinstance(extra, dict):
            raise InputError("extra_body must be a JSON object", where="--job-kwargs")
        self._fields = {name: value for name, value in self.kwargs.items() if name != "extra_body"} | extra
        self._prefix: dict[str, bytes] = {}

    def body(self, field: str, value: Any, **more: Any) -> bytes:
        """The request body with the row's value under `field`; the part that all rows share is encoded once.

        Raises:
            RowError: JSON has no word for the value.
        """
        prefix = self._prefix.get(field)
        if prefix is None:
            shared = orjson.dumps({"model": self.model, **more, **self._fields})
            prefix = self._prefix[field] = shared[:-1] + b',"' + field.encode() + b'":'
        try:
            return prefix + orjson.dumps(value) + b"}"
        except TypeError as error:
            raise RowError(f"the value cannot be sent as JSON: {error}") from error

    def known_types(self) -> dict[str, str]:
        """Types of output columns by name, as far as they are known before the first answer."""
        several = int(self.kwargs.get("n") or 1) > 1
        return {} if several else dict(zip(self.output_names, self.types, strict=False))

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """Answer one row.

        Raises:
            RowError: the item cannot be asked, or the reply is no answer.
            Transient: the try failed for a passing reason.
        """
        raise NotImplementedError

    async def transform_items(self, items: list[Any]) -> Sequence[Any]:
        """Answer items outside the driver, all at once; a failed item raises."""
        from remuda.base.endpoint import default_key
        from remuda.batch.pipeline.ask import Asker
        from remuda.batch.pipeline.transport import AiohttpTransport

        key = default_key(self.endpoint) if self._api_key is None else self._api_key
        transport = AiohttpTransport(self.endpoint, api_key=key)
        asker = Asker(transport, api_key=key)
        try:
            async with asyncio.timeout(self.timeout):
                answers = await asyncio.gather(*(self.answer(item, asker.ask) for item in items))
        finally:
            await transport.close()
        return [answer.outputs[0] if len(answer.outputs) == 1 else tuple(answer.outputs) for answer in answers]


def unreadable(what: str, reply: Any) -> RowError:
    """The error for a reply without what it was asked for; it carries the beginning of what came instead."""
    return RowError(f"the answer has no {what}: {excerpt(reply)}")


def first_choice(reply: dict[str, Any]) -> dict[str, Any]:
    """The first choice of a reply.

    Raises:
        RowError: there is none.
    """
    choices = reply.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    raise unreadable("choices", reply)


def said(choice: Any) -> str | None:
    """What a choice of a chat says: its content, else its tool calls as JSON; None where it says nothing."""
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    if content is None:
        content = message.get("tool_calls") or None
    return content if content is None else text(content)


def content_of(choice: dict[str, Any], reply: dict[str, Any]) -> str:
    """What the choice of a chat says.

    Raises:
        RowError: it says nothing; why, as far as the server tells.
    """
    content = said(choice)
    if content is not None:
        return content
    message = choice.get("message")
    if not isinstance(message, dict) or "content" not in message:
        raise unreadable("content", reply)
    if refusal := message.get("refusal"):
        raise RowError(f"the model refused: {excerpt(refusal)}")
    thought = ", only reasoning" if message.get("reasoning_content") or message.get("reasoning") else ""
    finish = word(choice.get("finish_reason"))
    raise RowError(f"the answer has no content{thought}" + (f" (finish_reason: {finish})" if finish else ""))


def continuation_of(choice: dict[str, Any], reply: dict[str, Any]) -> str:
    """What the choice of a completion says.

    Raises:
        RowError: it says nothing.
    """
    found = choice.get("text")
    if found is None:
        raise unreadable("text", reply)
    return text(found)


def with_usage(outputs: list[Any], reply: dict[str, Any], choice: dict[str, Any]) -> RowAnswer:
    """An answer with what the reply says about tokens; what is no number of tokens counts as not said."""
    usage = reply.get("usage")
    finish = word(choice.get("finish_reason"))
    if not isinstance(usage, dict):
        return RowAnswer(outputs, 0, 0, finish)
    details = usage.get("prompt_tokens_details")
    cached = count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    return RowAnswer(outputs, count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), finish, cached)


def messages_of(item: Any) -> list[dict[str, Any]]:
    """Chat messages from an item: text, a list of messages, or a list of messages written as JSON text.

    Fields that are null are left out: a parquet column gives every message all the fields that any message has.

    Raises:
        RowError: the item is none of these.
    """
    if isinstance(item, str):
        if item.startswith("[{") and '"role"' in item:
            try:
                item = orjson.loads(item)
            except ValueError:
                return [{"role": "user", "content": item}]
        else:
            return [{"role": "user", "content": item}]
    if isinstance(item, dict):
        item = [item]
    if not isinstance(item, (list, tuple)) or not item:
        raise RowError(f"expected text or a list of messages, got {describe(item)}")
    messages = []
    for message in item:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise RowError(f"a message needs a role and content, got {describe(message)}")
        messages.append({name: value for name, value in message.items() if value is not None})
    return messages


def text_of(item: Any) -> str:
    """Text from an item.

    Raises:
        RowError: the item is not text.
    """
    if isinstance(item, str):
        return item
    raise RowError(f"expected text, got {describe(item)}")


def describe(item: Any) -> str:
    """What an item is, for an error."""
    if item is None:
        return "null"
    if isinstance(item, (list, tuple)) and not item:
        return "an empty list"
    return f"{type(item).__name__} {str(item)[:60]!r}"


class ChatCompletionJob(RequestJob):
    """Messages (or text) in, the reply's text out; with `n` above one a list of texts."""

    columns = ("messages", "prompt", "text")
    types = ("string",)

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        reply = await ask(_CHAT, self.body("messages", messages_of(item)))
        choice = first_choice(reply)
        if len(reply["choices"]) > 1:
            texts = [said(entry) for entry in reply["choices"]]
            if any(entry is not None for entry in texts):
                return with_usage([texts], reply, choice)
        return with_usage([content_of(choice, reply)], reply, choice)


class CompletionJob(RequestJob):
    """Text in, its continuation out; with `n` above one a list of texts."""

    columns = ("prompt", "text", "messages")
    types = ("string",)

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        reply = await ask(_COMPLETION, self.body("prompt", text_of(item)))
        choice = first_choice(reply)
        if len(reply["choices"]) > 1:
            texts = [continuation_of(entry, reply) for entry in reply["choices"] if isinstance(entry, dict)]
            return with_usage([texts], reply, choice)
        return with_usage([continuation_of(choice, reply)], reply, choice)


class MultiTurnChatJob(RequestJob):
    """A conversation in, the conversation with every user turn answered out.

    The item is a list of messages or of texts (user turns). A user turn that an assistant message follows keeps that
    message; the others are asked in order, each with all that was said before.
    """

    columns = ("messages", "turns", "prompt")

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        if isinstance(item, (list, tuple)) and item and all(isinstance(turn, str) for turn in item):
            item = [{"role": "user", "content": turn} for turn in item]
        turns = messages_of(item)
        talk: list[dict[str, Any]] = []
        total = RowAnswer([])
        for index, turn in enumerate(turns):
            talk.append(turn)
            answered = index + 1 < len(turns) and turns[index + 1]["role"] != "user"
            if turn["role"] != "user" or answered:
                continue
            reply = await ask(_CHAT, self.body("messages", talk))
            choice = first_choice(reply)
            step = with_usage([], reply, choice)
            talk.append({"role": "assistant", "content": content_of(choice, reply)})
            total.prompt_tokens += step.prompt_tokens
            total.completion_tokens += step.completion_tokens
            total.cached_tokens += step.cached_tokens
            total.finish_reason = step.finish_reason
        total.outputs = [talk]
        return total


class EmbeddingJob(RequestJob):
    """Text in, its vector out."""

    columns = ("text", "input", "prompt", "messages")
    likes_order = False

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        reply = await ask("/v1/embeddings", self.body("input", text_of(item)))
        data = reply.get("data")
        first = data[0] if isinstance(data, list) and data else None
        found = first.get("embedding") if isinstance(first, dict) else None
        packed = isinstance(found, str) and self._fields.get("encoding_format") == "base64"
        vector = found if packed else numbers(found)
        if vector is None:
            raise unreadable("embedding", reply)
        return with_usage([vector], reply, {})


class PerplexityJob(RequestJob):
    """Log-probabilities and perplexity, of the reply or of the text itself.

    Outputs: the text, its perplexity (exp of the mean negative log-probability), one log-probability per token. With
    `of="reply"` (default) the messages are answered and the reply is measured; with `of="text"` the item itself is
    measured, by a completion that echoes it (vLLM and SGLang can; llama.cpp's server cannot).
    """

    columns = ("messages", "prompt", "text")
    outputs = 3
    types = ("string", "double")

    def __init__(self, *, of: str = "reply", **options: Any) -> None:
        if of not in {"reply", "text"}:
            raise InputError(f"perplexity of {of!r} is unknown", hint="known: reply, text", where="--job-kwargs")
        if options.get("output_cols", "result") == "result":
            options["output_cols"] = ["result", "perplexity", "logprobs"]
        super().__init__(**options)
        self.of = of

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        if self.of == "text":
            return await self._of_text(text_of(item), ask)
        reply = await ask(_CHAT, self.body("messages", messages_of(item), logprobs=True))
        choice = first_choice(reply)
        logprobs = choice.get("logprobs")
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        try:
            found = [float(entry["logprob"]) for entry in entries or ()]
        except (TypeError, KeyError, ValueError):
            found = []
        if not found:
            raise unreadable("logprobs", reply)
        return with_usage([content_of(choice, reply), perplexity(found), found], reply, choice)

    async def _of_text(self, item: str, ask: Ask) -> RowAnswer:
        # One token has to be generated; it comes after the echoed ones and is dropped.
        reply = await ask(_COMPLETION, self.body("prompt", item, echo=True, logprobs=1, max_tokens=1))
        choice = first_choice(reply)
        logprobs = choice.get("logprobs")
        found = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
        answer = with_usage([], reply, choice)
        echoed = answer.prompt_tokens
        kept = numbers(found[:echoed]) if isinstance(found, list) and 0 < echoed <= len(found) else None
        if kept is None or any(isinstance(value, list) for value in kept):
            raise RowError(f"the server did not echo the prompt with its logprobs: {excerpt(reply)}")
        # The first token has no log-probability: nothing precedes it.
        kept = [value for value in kept if value is not None]
        answer.outputs = [item, perplexity(kept), kept]
        return answer


def perplexity(logprobs: Sequence[float]) -> float | None:
    """exp(-mean) of natural log-probabilities; None for none."""
    if not logprobs:
        return None
    return math.exp(min(-sum(logprobs) / len(logprobs), 700.0))


class StructuredOutputJob(RequestJob):
    """Messages in, JSON that conforms to a schema out.

    The server is asked to decode by the schema (`response_format`); every reply is checked all the same, and one that
    does not conform is the row's error.

    Args:
        schema: a JSON schema as an object, as JSON text, or the path of a file.
        schema_name: what the server is told that it is called.
    """

    columns = ("messages", "prompt", "text")
    types = ("string",)

    def __init__(self, *, schema: Any = None, schema_name: str = "answer", **options: Any) -> None:
        if schema is None:
            raise InputError(
                "structured output needs a schema", hint="""--job-kwargs '{"schema": "schema.json"}'""", where="schema"
            )
        super().__init__(**options)
        self.schema = read_schema(schema)
        self._check = compile_schema(self.schema)
        self._format = {
            "type": "json_schema",
            "json_schema": {"name": schema_name, "schema": self.schema, "strict": True},
        }

    def settings(self) -> dict[str, Any]:
        """The schema itself, wherever it was read from."""
        return {"schema": self.schema}

    async def answer(self, item: Any, ask: Ask) -> RowAnswer:
        """See `RequestJob.answer`."""
        reply = await ask(_CHAT, self.body("messages", messages_of(item), response_format=self._format))
        choice = first_choice(reply)
        written = content_of(choice, reply)
        try:
            value = orjson.loads(written)
        except ValueError as error:
            cut = " (cut off: finish_reason is length)" if choice.get("finish_reason") == "length" else ""
            raise RowError(f"the reply is not JSON{cut}: {written[:200]}") from error
        if wrong := self._check(value):
            raise RowError(f"the reply does not conform to the schema: {wrong}")
        return with_usage([written], reply, choice)


#: Short names for `--job`.
BUILT_IN: dict[str, type[RequestJob]] = {
    "chat": ChatCompletionJob,
    "completion": CompletionJob,
    "multi-turn": MultiTurnChatJob,
    "embeddings": EmbeddingJob,
    "perplexity": PerplexityJob,
    "structured": StructuredOutputJob,
}
