"""The engine's own queue, read from the Prometheus text of its `/metrics`."""

from __future__ import annotations

import math
from typing import Final

#: (requests that wait, requests being worked on) by engine.
NAMES: Final = (
    ("vllm:num_requests_waiting", "vllm:num_requests_running"),
    ("llamacpp:requests_deferred", "llamacpp:requests_processing"),
    ("sglang:num_queue_reqs", "sglang:num_running_reqs"),
)


def read_queue(text: str) -> tuple[float, float] | None:
    """Waiting and running requests, summed over models and workers; None when the text has no such metric."""
    sums: dict[str, float] = {}
    known = {name for pair in NAMES for name in pair}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, _, rest = line.partition("{")
        value = rest.rpartition("}")[2] if rest else ""
        if not rest:
            name, _, value = line.partition(" ")
        if name in known:
            try:
                number = float(value.split()[0])
            except (ValueError, IndexError):
                continue
            if 0 <= number < math.inf:
                sums[name] = sums.get(name, 0.0) + number
    for waiting, running in NAMES:
        if waiting in sums:
            return sums[waiting], sums.get(running, 0.0)
    return None
