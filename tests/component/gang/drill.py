"""Ranks as processes over our S3 server, which kills them at the puts that are chosen; and what must hold afterwards.

python -m tests.component.gang.drill --seeds 100
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tests.component.gang.rank import ELEMENTS, EVERY, RANKS, ROUNDS
from tests.fakes.s3 import Fault, S3Server
from tests.unit.gang.contents import contribution, marks, shard
from tests.warm.forked import program

if TYPE_CHECKING:
    from tests.fakes.s3 import Request

#: Every kind of object of `remuda.gang.objects.keys`, and the probe of a store.
KINDS: Final = {
    "probe": r"probe/\w+", "RUN.json": r"RUN\.json", "members": r"members/\d+", "left": r"left/\d+",
    "start part": r"start/s/.+", "start": r"start/state", "contribution": r"r\d+/c/\d+", "join": r"r\d+/join/\d+",
    "manifest": r"r\d+/manifest", "shard": r"r\d+/m/\d+", "commit": r"r\d+/COMMIT", "state part": r"r\d+/s/.+",
    "state": r"r\d+/state",
}  # fmt: skip
LIMIT_S: Final = 300.0


@dataclass(frozen=True)
class Place:
    """Where a rank is killed: at the n-th put of a kind that takes effect or would, before it does or after."""

    kind: str
    fault: Fault
    nth: int


def kind_of(key: str) -> str:
    """Which kind of object a key is of."""
    name = key.split("/", 1)[1]
    return next(kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, name))


@dataclass
class Drill:
    """One run of a gang under deaths, on a server that it shares with others.

    Args:
        server: of which it takes the faults over.
        run_id: of the run.
        places: where ranks are killed.
        options: of the ranks.
        late: whether who is killed begins again only when the others have ended.
    """

    server: S3Server
    run_id: str
    places: list[Place]
    options: dict[str, Any] = field(default_factory=dict)
    late: bool = False
    hit: list[Place] = field(default_factory=list)
    told: list[list[dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._puts: Counter[str] = Counter()
        self.complete: set[int] = set()
        self.summed: Counter[int] = Counter()
        self._copies: dict[int, subprocess.Popen[str]] = {}
        self._lives: Counter[int] = Counter()
        self._killed: list[int] = []
        self._is_first: list[bool] = []
        self.server.plan, self.server.took = self._plan, self._took

    def _plan(self, request: Request) -> Fault | None:
        is_late = "if-none-match" in request.headers and f"{request.bucket}/{request.key}" in self.server.objects
        if request.verb != "PUT" or is_late:
            return None
        kind = kind_of(request.key)
        self._puts[kind] += 1
        for place in self.places:
            if (place.kind, place.nth) == (kind, self._puts[kind]):
                self.hit.append(place)
                return place.fault
        return None

    def _took(self, request: Request) -> None:
        """An onlooker's book of what was given and what was summed."""
        if request.verb != "PUT":
            return
        kind = kind_of(request.key)
        if kind == "contribution":
            self.complete |= marks(contribution(bytes(request.body), ELEMENTS, RANKS))
        elif kind == "commit":
            folder = f"{request.bucket}/{request.key.removesuffix('COMMIT')}"
            ranks = json.loads(bytes(self.server.objects[f"{folder}manifest"].data).splitlines()[0])["ranks"]
            parts = [shard(bytes(self.server.objects[f"{folder}m/{number}"].data)) for number in range(RANKS)]
            self.summed.update(marks(np.concatenate(parts) * len(ranks)))

    def _start(self, rank: int) -> None:
        options = {"run_id": self.run_id, "timeout": LIMIT_S, "take_over": 1.0, **self.options}
        env = {**os.environ, **self.server.env, "REMUDA_RENDEZVOUS": "s3://drill", "OPENBLAS_NUM_THREADS": "1"}
        words = [str(rank), str(self._lives[rank]), json.dumps(options)]
        self._lives[rank] += 1
        self._copies[rank] = program(
            "tests.component.gang.rank", words, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self) -> None:
        """Start again whoever is killed, until all have ended; then look at what came of it."""
        deadline = time.monotonic() + LIMIT_S
        try:
            for rank in range(RANKS):
                self._start(rank)
            while self._copies:
                assert time.monotonic() < deadline, f"{self.run_id} does not end: {self.hit}"
                time.sleep(0.02)
                for rank, copy in list(self._copies.items()):
                    if copy.poll() is not None:
                        self._ended(rank, copy)
        finally:
            for copy in self._copies.values():
                copy.kill()
                copy.communicate()
        self._check()

    def _ended(self, rank: int, copy: subprocess.Popen[str]) -> None:
        out, err = copy.communicate()
        self.told.append([json.loads(line) for line in out.splitlines()])
        self._is_first.append(self._lives[rank] == 1)
        del self._copies[rank]
        assert copy.returncode in (0, -9), err
        if copy.returncode:
            self._killed.append(rank)
        while self._killed and not (self.late and self._copies):
            self._start(self._killed.pop())

    def _check(self) -> None:
        assert set(self.hit) == set(self.places), f"not hit: {set(self.places) - set(self.hit)}"
        assert len(self.told) == RANKS + len(self.hit), "a death cost nobody else its process"
        held: dict[int, set[str]] = defaultdict(set)
        owed: set[int] = set()
        for life, is_first in zip(self.told, self._is_first, strict=True):
            rounds = [line for line in life if "sha" in line]
            steps = [line["steps"] for line in rounds]
            seen = steps if is_first else steps[1:]  # who was killed after its contribution finds that round over
            gaps = {late - early for early, late in pairwise(seen)}
            assert gaps <= {EVERY} or "quorum" in self.options, f"a death cost nobody else a step: {steps}"
            for line in rounds:
                held[line["steps"]].add(line["sha"])
            owed |= {mark for line in life for mark in line.get("owed", ())}
        assert len(held[EVERY * ROUNDS]) == 1, "the last round"
        assert all(len(shas) == 1 for shas in held.values()), "ranks hold other bytes"
        assert set(self.summed.values()) == {1}, "in two sums"
        assert not owed & set(self.summed), "in a sum and still owed"
        assert self.complete <= set(self.summed) | owed, "lost"


def drawn(seed: int) -> tuple[list[Place], dict[str, Any]]:
    """Places and options of a seed; each place comes in every run."""
    order = random.Random(seed)
    once = ["RUN.json", "start", "start part", "state", "state part"]
    kinds = order.sample([kind for kind in KINDS if kind not in (*once, "join")], order.randint(3, 6))
    kinds += order.sample(once, 2)
    places = [
        Place(kind, order.choice([Fault.KILL_BEFORE, Fault.KILL_AFTER]), 1 if kind in once else order.randint(1, 3))
        for kind in kinds
    ]
    if any(place.kind == "contribution" for place in places):
        places.append(Place("join", order.choice([Fault.KILL_BEFORE, Fault.KILL_AFTER]), 1))
    return places, order.choice([{}, {}, {"quorum": 2, "grace": 1.0}])


def main() -> int:
    """Run so many seeds; the first that fails is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    hits: Counter[str] = Counter()
    with S3Server() as server:
        for seed in range(asked.first, asked.first + asked.seeds):
            places, options = drawn(seed)
            drill = Drill(server, f"seed-{seed}", places, options)
            try:
                drill.run()
            except AssertionError as error:
                sys.stdout.write(f"seed {seed}, {options}, {places}: {error}\n")
                return 1
            hits.update(f"{place.kind}, {place.fault.name.lower()}" for place in drill.hit)
            server.objects.clear()
    for name, count in sorted(hits.items()):
        sys.stdout.write(f"{count:6} {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
