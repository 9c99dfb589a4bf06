"""What is in contributions and shards of float32, read as the protocol's page says it, beside the product's code.

Tests give vectors in which each one has a place of its own: so a sum tells what is in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def contribution(data: bytes, elements: int, shards: int) -> Any:
    """The values of a contribution."""
    step = -(-elements // (shards * 256)) * 256
    values, at = [], 1024
    for shard in range(shards):
        count = min((shard + 1) * step, elements) - min(shard * step, elements)
        values.append(np.frombuffer(data[at + 64 : at + 64 + 4 * count], "<f4"))
        at += 64 + 4 * count
    assert at == len(data)
    return np.concatenate(values)


def shard(data: bytes) -> Any:
    """The values of a reduced shard."""
    return np.frombuffer(data[1024 + 64 :], "<f4")


def marks(values: Any, step: int = 1) -> set[int]:
    """Which vectors are in a sum, each of them `step` values of 1; each is there once, or not."""
    if values is None:
        return set()
    whole = np.rint(values).astype(int)
    assert set(np.unique(whole).tolist()) <= {0, 1}, "counted twice"
    return {int(place) // step for place in np.flatnonzero(whole)}
