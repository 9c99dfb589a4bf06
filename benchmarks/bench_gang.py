"""What a round of a gang costs in bytes, requests, seconds and memory, beside everybody reading everybody.

python benchmarks/bench_gang.py [--mib 64] [--ranks 4] [--rounds 3] [--json]

Bytes and requests are those that the S3 server logged, which is ours and on this machine: it stands for a bucket.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from tests.fakes.s3 import S3Server

from harness import Figure, finish

if TYPE_CHECKING:
    from tests.fakes.s3 import Logged

FIRST = 1
"""The first round that is measured: before it are imports and the coming together."""
EVERYBODY = "everybody reads everybody"


class Now(NamedTuple):
    """When something was, and what CPU time this process had used by then."""

    at: float
    cpu: float


class Took(NamedTuple):
    """Seconds of a round (median), CPU seconds of a copy in it, and a copy's memory beside its vector, in vectors."""

    wall: float
    cpu: float
    memory: float


def now() -> Now:
    """Now."""
    return Now(time.time(), time.process_time())


def everybody(url: str, rank: int, ranks: int, vector: Any, rounds: int) -> list[Now]:
    """The way that needs no protocol: each copy writes its vector and reads all others'; when each round ended."""
    from remuda.gang.objects.bucket import open_store

    store, ends = open_store(url), []
    for number in range(rounds):
        store.put(f"all/r{number}/{rank}", vector.view(np.uint8).data, use_multipart=False)
        while sum(len(chunk) for chunk in store.list(f"all/r{number}/")) < ranks:
            time.sleep(0.05)
        total = np.zeros_like(vector)
        for other in range(ranks):
            total += np.frombuffer(store.get(f"all/r{number}/{other}").bytes(), np.float32)
        total /= np.float32(ranks)
        ends.append(now())
    return ends


def ours(url: str, rank: int, ranks: int, vector: Any, rounds: int, options: dict[str, Any]) -> list[Now]:
    """When each round ended."""
    from remuda.gang import ObjectStoreAllReduce

    store, ends = ObjectStoreAllReduce(url, run_id="all", rank=rank, world_size=ranks, **options), []
    while store.round < rounds:
        store.allreduce(vector)
        ends.append(now())
    store.close()
    return ends


def gloo(url: str, rank: int, ranks: int, vector: Any, rounds: int) -> list[Now]:
    """All-reduce of torch, for copies that do reach each other."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=ranks)
    ends = []
    for _ in range(rounds):
        dist.all_reduce(torch.from_numpy(vector.copy()))
        ends.append(now())
    dist.destroy_process_group()
    return ends


def copy() -> int:
    """One copy, as a process; prints what it found."""
    way, url, options = sys.argv[2], sys.argv[3], json.loads(sys.argv[7])
    rank, ranks, elements = (int(word) for word in sys.argv[4:7])
    rounds = options.pop("rounds")
    os.environ["AWS_ACCESS_KEY_ID"] = f"pid-{os.getpid()}"
    vector = np.random.default_rng(rank).standard_normal(elements, np.float32)
    import obstore.store  # noqa: F401 - before memory is measured

    before = peak_kib()
    if way == "ours":
        ends = ours(url, rank, ranks, vector, rounds, options)
    else:
        ends = {"everybody": everybody, "gloo": gloo}[way](url, rank, ranks, vector, rounds)
    sys.stdout.write(json.dumps({"ends": ends, "peak": 1024 * (peak_kib() - before) / vector.nbytes}) + "\n")
    return 0


def peak_kib() -> int:
    """Largest memory of this process so far; `getrusage` would tell that of the process that started it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


@dataclass(frozen=True)
class Gang:
    """How many copies average how much how often."""

    ranks: int
    elements: int
    rounds: int

    def start(self, way: str, url: str, rank: int, env: dict[str, str], **options: Any) -> subprocess.Popen[str]:
        """One copy."""
        told = json.dumps({"rounds": FIRST + self.rounds, **options})
        words = [way, url, str(rank), str(self.ranks), str(self.elements), told]
        return subprocess.Popen(
            [sys.executable, __file__, "copy", *words], env={**os.environ, **env, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, way: str, url: str, env: dict[str, str], **options: Any) -> Took:
        """What rounds of all copies took, all of them processes."""
        copies = [self.start(way, url, rank, env, **options) for rank in range(self.ranks)]
        told = [json.loads(one.communicate(timeout=600)[0] or "{}") for one in copies]
        ends = [max(one["ends"][number][0] for one in told) for number in range(FIRST - 1, FIRST + self.rounds)]
        took = [late - early for early, late in pairwise(ends)]
        cpu = sum(one["ends"][-1][1] - one["ends"][FIRST - 1][1] for one in told) / self.ranks / self.rounds
        return Took(statistics.median(took), cpu, max(one["peak"] for one in told))

    def in_folder(self, way: str, **options: Any) -> Took:
        """The same over files."""
        folder = tempfile.mkdtemp(prefix="rb", dir="/tmp")
        try:
            return self.run(way, f"file://{folder}", {}, **options)
        finally:
            shutil.rmtree(folder)

    def after_a_kill(self, **options: Any) -> float:
        """Seconds from a copy's kill to the others' next COMMIT but one; without a quorum it is begun again at once."""
        with S3Server() as server:
            copies = [
                self.start("ours", "s3://bench/x", rank, server.env, **{**options, "rounds": 100_000})
                for rank in range(self.ranks)
            ]
            try:
                wait(lambda: commits(server.log) >= 3)
                copies[-1].send_signal(signal.SIGKILL)
                begun, count = time.monotonic(), commits(server.log)
                if not options.get("quorum"):
                    copies.append(self.start("ours", "s3://bench/x", self.ranks - 1, server.env, rounds=100_000))
                # The round under way may end without it: the one after that is the first that had to do without.
                wait(lambda: commits(server.log) >= count + 2)
                return time.monotonic() - begun
            finally:
                for one in copies:
                    one.kill()
                    one.communicate()


def commits(log: list[Logged]) -> int:
    """Rounds that are over."""
    return sum(one.verb == "PUT" and one.status == 200 and one.key.endswith("/COMMIT") for one in list(log))


def wait(ask: Any, limit_s: float = 120.0) -> None:
    """Until it is so."""
    until = time.monotonic() + limit_s
    while not ask():
        if time.monotonic() > until:
            raise SystemExit(f"not within {limit_s:.0f} s")
        time.sleep(0.005)


def over_s3(gang: Gang, way: str, **options: Any) -> tuple[float, dict[str, float]]:
    """Median seconds of a round, and bytes and requests of a copy and round."""
    with S3Server() as server:
        took = gang.run(way, "s3://bench/x", server.env, **options).wall
        log = [one for one in server.log if any(f"/r{FIRST + index}/" in one.key for index in range(gang.rounds))]
        lists = sum(one.verb == "GET" and not one.key for one in server.log) / (FIRST + gang.rounds)
    verbs = Counter(one.verb for one in log)
    per = gang.ranks * gang.rounds
    return took, {
        "up": sum(one.bytes_up for one in log if one.verb == "PUT") / per,
        "down": sum(one.bytes_down for one in log) / per,
        "gets": verbs["GET"] / per, "puts": verbs["PUT"] / per, "lists": lists / gang.ranks,
    }  # fmt: skip


def coding(codec: str, elements: int) -> float:
    """GB of float32 a CPU second: encoded, decoded, and what was lost kept."""
    from remuda.gang.objects import codec as codecs

    values = np.random.default_rng(0).standard_normal(elements, np.float32)
    raw, took = np.empty(codecs.size(codec, elements), np.uint8), []
    for _ in range(3):
        rest, begun = values.copy(), time.process_time()
        codecs.encode(codec, rest, raw)
        for place, piece in codecs.decoded(codec, raw, elements):
            rest[place] -= piece
        took.append(time.process_time() - begun)
    return values.nbytes / min(took) / 1e9


def figures(gang: Gang) -> list[Figure]:
    """All of them."""
    n, size = gang.ranks, 4 * gang.elements
    fp32, cost = over_s3(gang, "ours")
    int8, less = over_s3(gang, "ours", codec="int8")
    parts, _ = over_s3(gang, "ours", multipart_bytes=1)
    all_s3, _ = over_s3(gang, "everybody")
    all_files = gang.in_folder("everybody")
    files = gang.in_folder("ours")
    int8_files = gang.in_folder("ours", codec="int8")
    small = Gang(3, 4096, 3)
    found = [
        Figure("fp32: sent / D(1+1/N)", cost["up"] / (size * (1 + 1 / n)), "", 1.05),
        Figure("fp32: received / 2D(N-1)/N", cost["down"] / (2 * size * (n - 1) / n), "", 1.05),
        Figure("int8: bytes", (less["up"] + less["down"]) / 1e6, "MB", 1 / 3.9 * (cost["up"] + cost["down"]) / 1e6,
               (cost["up"] + cost["down"]) / 1e6, "fp32"),
        *(Figure(f"{verb} of a copy and round", cost[verb], "", bound)
          for verb, bound in (("gets", None), ("puts", 4.0), ("lists", None))),
        Figure("a round over files, fp32", files.wall, "s", None, all_files.wall, EVERYBODY),
        Figure("a round over files, int8", int8_files.wall, "s", None, all_files.wall, EVERYBODY),
        Figure("its CPU of a copy, fp32", files.cpu, "s", None, all_files.cpu, EVERYBODY),
        Figure("its CPU of a copy, int8", int8_files.cpu, "s", None, all_files.cpu, EVERYBODY),
        Figure("a round over S3, fp32", fp32, "s", None, all_s3, EVERYBODY),
        Figure("a round over S3, int8", int8, "s", None, all_s3, EVERYBODY),
        Figure("a round over S3, int8", int8, "s", None, fp32, "fp32"),
        Figure("a round over S3, fp32, every object in parts", parts, "s", None, fp32, "in one request"),
        Figure("memory of a copy beside its vector, fp32", files.memory, "D", 6.0),
        Figure("memory of a copy beside its vector, int8", int8_files.memory, "D", 6.0),
        Figure("int8 with feedback, a core", coding("int8", 1 << 24), "GB/s", None, coding("fp32", 1 << 24), "fp32"),
        Figure("killed and begun again -> the others' second COMMIT", small.after_a_kill(), "s"),
        Figure("killed, quorum 2, grace 1 s -> the same", small.after_a_kill(quorum=2, grace=1.0, take_over=1.0), "s"),
    ]  # fmt: skip
    try:
        import torch  # noqa: F401
    except ImportError:
        return found
    took = gang.run("gloo", "tcp://127.0.0.1:29511", {}).wall
    return [*found, Figure("a round over files, fp32", files.wall, "s", None, took, "gloo, no store between")]


def main() -> int:
    """Print what was found; 0 when the bounds hold."""
    if sys.argv[1:2] == ["copy"]:
        return copy()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    return finish(figures(Gang(asked.ranks, asked.mib << 18, asked.rounds)), as_json=asked.json)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if path != str(Path(__file__).parent)]
    sys.exit(main())
