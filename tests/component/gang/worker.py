"""A copy that averages vectors which anybody can compute again; may be killed at a place chosen by count.

    worker.py URL RANK WORLD ROUNDS ELEMENTS CODEC DIE_BEFORE_PUT OPTIONS

`DIE_BEFORE_PUT` n: SIGKILL before its n-th put (from 1; 0: never). Prints one JSON line a round, and one at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from typing import Any

import numpy as np

from remuda.gang import ObjectStoreAllReduce
from remuda.gang.objects.layout import of_vector


def vector(rank: int, number: int, elements: int) -> Any:
    """What a rank gives to a round."""
    return np.random.default_rng(1000 * number + rank).standard_normal(elements).astype(np.float32)


class Dying:
    """A store whose user dies before its n-th put."""

    def __init__(self, raw: Any, at: int) -> None:
        self._raw, self._at, self._puts = raw, at, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def put(self, path: str, *args: Any, **options: Any) -> Any:
        self._puts += 1
        if self._puts == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._raw.put(path, *args, **options)


def main() -> None:
    url, rank, world, rounds, elements, codec, die, options = sys.argv[1:]
    store = ObjectStoreAllReduce(
        url, run_id="run", rank=int(rank), world_size=int(world), codec=codec, **json.loads(options)
    )
    if int(die):
        store._bucket.raw = Dying(store._bucket.raw, int(die))
    store.open(of_vector(int(elements)))
    while store.round < int(rounds):
        number = store.round
        mean = store.allreduce(vector(int(rank), number, int(elements)))
        said = {
            "pid": os.getpid(), "asked": number, "round": store.round - 1, "took_part": store.took_part,
            "sha": hashlib.sha256(mean.tobytes()).hexdigest(),
        }  # fmt: skip
        print(json.dumps(said), flush=True)
    counts = store.counts
    store.close()
    print(json.dumps({"requests": counts.requests, "up": counts.bytes_up, "down": counts.bytes_down}))


if __name__ == "__main__":
    main()
