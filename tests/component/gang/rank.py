"""A rank that trains a model in which each of its updates has a place of its own; anybody may kill it.

    rank.py RANK LIFE OPTIONS

Prints a line at its start and after each round (`steps`, what it holds), and one at the end with what it still owes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from typing import Any

import numpy as np
from tests.unit.gang.contents import marks

from remuda.gang import DiLoCo, ObjectStoreAllReduce

RANKS, LIVES, ROUNDS, EVERY = 3, 40, 8, 2
ELEMENTS = RANKS * LIVES * ROUNDS


def tell(steps: int, held: Any) -> None:
    """What this rank holds after so many steps."""
    print(json.dumps({"steps": steps, "sha": hashlib.sha256(held.tobytes()).hexdigest()}), flush=True)


def main() -> int:
    """Train until the last round."""
    rank, life, options = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    os.environ["AWS_ACCESS_KEY_ID"] = f"pid-{os.getpid()}"
    store = ObjectStoreAllReduce(
        rank=rank, world_size=RANKS, state_every=2, sleep=lambda seconds: time.sleep(seconds / 5), **options
    )
    model = {"w": np.zeros(ELEMENTS, np.float32)}
    place = (rank * LIVES + life) * ROUNDS
    with DiLoCo(model, None, store, EVERY, outer_lr=1.0, outer_momentum=0.0, nesterov=False) as diloco:
        tell(diloco.steps, model["w"])
        while store.round < ROUNDS:
            if diloco.steps % EVERY == EVERY - 1:
                model["w"][place] -= 1
                place += 1
            if diloco.step():
                tell(diloco.steps, model["w"])
        owed = sorted(marks(store.residual))
    print(json.dumps({"owed": owed}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
