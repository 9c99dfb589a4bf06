"""The engine's own queue, read from the Prometheus text of its `/metrics`."""

from __future__ import annotations

import math
from typing import Final

from remuda.base.prometheus import parse, total

#: (requests that wait, requests being worked on) by engine.
NAMES: Final = (
    ("vllm:num_requests_waiting", "vllm:num_requests_running"),
    ("llamacpp:requests_deferred", "llamacpp:requests_processing"),
    ("sglang:num_queue_reqs", "sglang:num_running_reqs"),
)
_KNOWN: Final = tuple(name for pair in NAMES for name in pair)


def read_queue(text: str) -> tuple[float, float] | None:
    """Waiting and running requests, summed over models and workers; None when the text has no such metric."""
    # Nothing else of a megabyte is taken apart.
    lines = [line for line in text.splitlines() if line.startswith(_KNOWN)]
    samples = tuple(one for one in parse("\n".join(lines)) if 0 <= one.value < math.inf)
    for waiting, running in NAMES:
        if any(one.name == waiting for one in samples):
            return total(samples, waiting), total(samples, running)
    return None
