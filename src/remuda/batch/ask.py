"""One question to the endpoint and its parsed answer, with failures sorted into passing and lasting ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from remuda.batch.answer import RowError, Transient
from remuda.batch.retry import RETRYABLE

if TYPE_CHECKING:
    from remuda.batch.transport import Reply, Transport

_LONGEST_MESSAGE = 1000


class Asker:
    """Asks one endpoint. What servers say in errors is cut and cleaned of the key before anyone keeps it."""

    def __init__(self, transport: Transport, *, api_key: str = "") -> None:
        self.transport = transport
        self._api_key = api_key

    async def ask(self, path: str, body: bytes) -> dict[str, Any]:
        """Post `body` to `path` and parse the answer.

        Raises:
            Transient: no answer, or one that may be different next time.
            RowError: the endpoint refuses this request.
        """
        reply = await self.transport.post(path, body)
        if reply.status == 200:
            try:
                parsed = orjson.loads(reply.body)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                return parsed
            raise Transient(f"the answer is not a JSON object: {self._clean(reply.body[:200])}")
        raise self._failure(reply)

    def _failure(self, reply: Reply) -> Transient | RowError:
        message = f"HTTP {reply.status}: {self._clean(error_text(reply.body))}"
        if reply.status in RETRYABLE:
            return Transient(message, status=reply.status, retry_after=reply.retry_after)
        return RowError(message, status=reply.status)

    def _clean(self, text: str | bytes) -> str:
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        shown = shown.strip()[:_LONGEST_MESSAGE]
        return shown.replace(self._api_key, "********") if self._api_key else shown


def error_text(body: bytes) -> str:
    """The message inside an error body as OpenAI, vLLM, llama.cpp and FastAPI write it; else the body itself."""
    try:
        parsed = orjson.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace") or "no message"
    for key in ("error", "message", "detail"):
        value = parsed.get(key) if isinstance(parsed, dict) else None
        if isinstance(value, dict):
            value = value.get("message", value)
        if value:
            return value if isinstance(value, str) else orjson.dumps(value).decode()
    return body.decode("utf-8", "replace")
