"""The body of a request. Pure."""

from __future__ import annotations

from typing import Any, Final

import orjson

PATHS: Final = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


def body(
    api: str,
    model: str,
    prompt: str | list[int],
    osl: int,
    *,
    stream: bool = True,
    forced: bool = True,
    counted: bool = False,
    extra: dict[str, Any] | None = None,
) -> bytes:
    """The JSON of one request.

    Args:
        api: `chat` or `completions`.
        model: as the endpoint names it.
        prompt: text, or numbers of tokens where `completions` is asked.
        osl: bound of output tokens.
        stream: ask for a stream that ends with its usage.
        forced: ask the engine to go on until `osl`; vLLM, SGLang and llama.cpp know these two words.
        counted: ask for usage in each piece; vLLM, SGLang and TensorRT-LLM know this word.
        extra: merged over all.
    """
    data: dict[str, Any] = {"model": model, "max_tokens": osl, "temperature": 0}
    if api == "chat":
        data["messages"] = [{"role": "user", "content": prompt}]
    else:
        data["prompt"] = prompt
    if stream:
        data |= {"stream": True, "stream_options": {"include_usage": True}}
        if counted:
            data["stream_options"]["continuous_usage_stats"] = True
    if forced:
        data |= {"ignore_eos": True, "min_tokens": osl}
    return orjson.dumps(data | (extra or {}))
