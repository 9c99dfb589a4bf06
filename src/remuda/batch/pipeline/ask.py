"""One question to the endpoint and its parsed answer, with failures sorted into passing and lasting ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.batch.pipeline.answer import RowError, Transient
from remuda.batch.pipeline.lenient import clean_text, count, excerpt, parse
from remuda.batch.pipeline.retry import RETRYABLE
from remuda.batch.pipeline.transport import Reply

if TYPE_CHECKING:
    from remuda.batch.pipeline.transport import Transport

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
        if reply.status != 200:
            raise self._failure(reply)
        if not reply.whole:
            raise RowError("the answer is larger than 64 MiB", status=200)
        try:
            parsed = parse(reply.body)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise Transient(f"the answer is not a JSON object: {self.clean(reply.body[:200])}")
        if not (parsed.get("choices") or parsed.get("data")) and is_error(parsed):
            raise self._told(parsed, reply)
        return parsed

    def _told(self, parsed: dict[str, Any], reply: Reply) -> Transient | RowError:
        """What an error means that came with status 200: its code counts where that is an HTTP status."""
        told = parsed.get("error")
        code = count(told.get("code") if isinstance(told, dict) else parsed.get("code"))
        if 400 <= code <= 599:
            return self._failure(Reply(code, reply.body))
        return RowError(f"the server answered with an error: {self.clean(error_text(reply.body))}", status=200)

    def _failure(self, reply: Reply) -> Transient | RowError:
        if 300 <= reply.status < 400:
            where = self.clean(reply.location) or "a place that it does not name"
            return RowError(f"redirects (HTTP {reply.status}) to {where}", status=reply.status)
        message = f"HTTP {reply.status}: {self.clean(error_text(reply.body))}"
        if reply.status in RETRYABLE:
            return Transient(message, status=reply.status, retry_after=reply.retry_after)
        return RowError(message, status=reply.status)

    def clean(self, text: str | bytes) -> str:
        """Text for an error: cut, and without the key."""
        shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        shown = clean_text(shown.strip()[:_LONGEST_MESSAGE])
        return shown.replace(self._api_key, "********") if self._api_key else shown


def is_error(parsed: dict[str, Any]) -> bool:
    """Whether a document says that it is an error, as OpenAI's API and old versions of vLLM do."""
    return bool(parsed.get("error")) or parsed.get("object") == "error"


def error_text(body: bytes) -> str:
    """The message inside an error body as OpenAI, vLLM, llama.cpp and FastAPI write it; else the body itself."""
    try:
        parsed = parse(body)
    except ValueError:
        return body.decode("utf-8", "replace") or "no message"
    for key in ("error", "message", "detail"):
        value = parsed.get(key) if isinstance(parsed, dict) else None
        if isinstance(value, dict):
            value = value.get("message") or value
        if value:
            return value if isinstance(value, str) else excerpt(value)
    return body.decode("utf-8", "replace")
