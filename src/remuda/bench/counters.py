"""What an engine itself has counted, out of its `/metrics`: read when nothing of ours is in flight. Pure.

Names are those of vLLM 0.32, SGLang 0.5, llama.cpp, and Dynamo 1.6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remuda.base.prometheus import parse, total

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.base.prometheus import Samples


@dataclass(frozen=True)
class Family:
    """Names of one engine's counters."""

    engine: str
    output: tuple[str, ...]
    input: tuple[str, ...]
    preempted: tuple[str, ...] = ()
    hits: tuple[str, ...] = ()


FAMILIES: Final = (
    Family(
        "vllm", ("vllm:generation_tokens_total",), ("vllm:prompt_tokens_total",), ("vllm:num_preemptions_total",),
        ("vllm:prefix_cache_hits_total",),
    ),
    Family(
        "sglang", ("sglang:generation_tokens_total",), ("sglang:prompt_tokens_total",),
        ("sglang:num_retracted_requests_total", "sglang:num_retractions_total"), ("sglang:cached_tokens_total",),
    ),
    Family("llamacpp", ("llamacpp:tokens_predicted_total",), ("llamacpp:prompt_tokens_total",)),
    Family(
        "dynamo", ("dynamo_frontend_output_sequence_tokens_sum",), ("dynamo_frontend_input_sequence_tokens_sum",),
    ),
)  # fmt: skip
_STARTED: Final = "process_start_time_seconds"


@dataclass(frozen=True)
class Counters:
    """Sums over all engines behind an endpoint; -1 where the engine does not count that.

    Attributes:
        engine: whose names they are.
        output: tokens made.
        input: tokens of prompts.
        preempted: requests that were put back for want of memory.
        hits: tokens of prompts that a prefix cache knew.
        instances: what tells one start of an engine from another, sorted.
    """

    engine: str = ""
    output: float = -1.0
    input: float = -1.0
    preempted: float = 0.0
    hits: float = -1.0
    instances: tuple[str, ...] = ()


def read_counters(texts: Sequence[str]) -> Counters | None:
    """Sum the `/metrics` of all engines; None when none of them counts tokens, or they are of different kinds."""
    found = [_of(parse(text)) for text in texts]
    known = [one for one in found if one is not None]
    if not known or len(known) != len(found) or len({one.engine for one in known}) != 1:
        return None

    def added(values: list[float]) -> float:
        return sum(values) if min(values) >= 0 else -1.0

    return Counters(
        known[0].engine, added([one.output for one in known]), added([one.input for one in known]),
        sum(one.preempted for one in known), added([one.hits for one in known]),
        tuple(sorted(item for one in known for item in one.instances)),
    )  # fmt: skip


def _of(samples: Samples) -> Counters | None:
    names = {sample.name for sample in samples}

    def of(options: tuple[str, ...], missing: float) -> float:
        return next((total(samples, name) for name in options if name in names), missing)

    for family in FAMILIES:
        if not names.isdisjoint(family.output):
            started = tuple(f"{sample.value:.2f}" for sample in samples if sample.name == _STARTED)
            return Counters(
                family.engine, of(family.output, -1.0), of(family.input, -1.0), of(family.preempted, 0.0),
                of(family.hits, -1.0), started,
            )  # fmt: skip
    return None
