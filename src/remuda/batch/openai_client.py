"""The `openai` client for users' own jobs; the only module that imports it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remuda.base.endpoint import base_url, default_key
from remuda.base.errors import InputError

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def make_client(endpoint: str, api_key: str | None, *, timeout_s: float) -> AsyncOpenAI:
    """A client without retries of its own, over aiohttp where the package has that.

    Args:
        endpoint: base URL, with or without `/v1`.
        api_key: None takes the environment's (`default_key`).
        timeout_s: bound of one request.

    Raises:
        InputError: the package is not installed, or there is no endpoint.
    """
    try:
        import openai
    except ImportError as error:
        raise InputError("self.client needs the openai package", hint="pip install 'remuda[openai]'") from error
    if not endpoint:
        raise InputError("the job has no endpoint to ask", hint="pass --endpoint or --name, or set $ENDPOINT")
    options: dict[str, Any] = {}
    try:
        options["http_client"] = openai.DefaultAioHttpClient(timeout=timeout_s)
    except (AttributeError, RuntimeError, ImportError):
        # The package was installed without its aiohttp extra: its default transport works too, only slower.
        options = {}
    key = default_key(endpoint) if api_key is None else api_key
    return openai.AsyncOpenAI(
        base_url=f"{base_url(endpoint)}/v1", api_key=key or "none", max_retries=0, timeout=timeout_s, **options
    )
