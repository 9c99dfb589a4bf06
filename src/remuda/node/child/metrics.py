"""The few numbers that matter from an engine's Prometheus page, under one name whatever the engine calls them. Pure.

Names as the engines document them: vLLM `vllm:…`, SGLang `sglang:…`, llama.cpp's server `llamacpp:…`.
"""

from __future__ import annotations

import math

MAX_BYTES = 1 << 20
"""Of a page that is read; the pages of today's engines have 20 to 200 KB."""

NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "generated_tokens",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:prompt_tokens_total": "prompt_tokens",
    "sglang:generation_tokens_total": "generated_tokens",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
    "llamacpp:prompt_tokens_total": "prompt_tokens",
    "llamacpp:tokens_predicted_total": "generated_tokens",
}


def parse(page: bytes) -> dict[str, float]:
    """`running`, `waiting` (requests), `prompt_tokens`, `generated_tokens` (totals), each where the page tells.

    Samples of one name (one per model, rank or engine core) are summed. Lines that cannot be read are passed over.
    """
    found: dict[str, float] = {}
    for raw in page.split(b"\n"):
        if not raw.startswith((b"vllm:", b"sglang:", b"llamacpp:")):
            continue
        line = raw.decode("utf-8", "replace").strip()
        name = NAMES.get(line.split("{", 1)[0].split(None, 1)[0])
        value = _value(line)
        if name is not None and value is not None:
            found[name] = found.get(name, 0.0) + value
    return found


RATES = (("generated_tokens", "tokens_per_s"), ("prompt_tokens", "prompt_tokens_per_s"))


def with_rates(numbers: dict[str, float], before: dict[str, float], elapsed_s: float) -> dict[str, float]:
    """`numbers` with what their totals grew by in each second since `before`; without, where that is not known.

    A total that shrank is of an engine that was started again: what it did since is its whole.
    """
    found = dict(numbers)
    for total, rate in RATES:
        if elapsed_s > 0 and total in numbers and total in before:
            grown = numbers[total] - before[total]
            found[rate] = round((grown if grown >= 0 else numbers[total]) / elapsed_s, 3)
    return found


def _value(line: str) -> float | None:
    """The sample's value: first word after the labels; a time stamp may follow."""
    words = line.rpartition("}")[2].split() if "{" in line else line.split()[1:]
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) else None
