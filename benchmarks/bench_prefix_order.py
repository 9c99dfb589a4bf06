"""What asking rows in the order of their beginnings saves, on llama.cpp's own server with a tiny model.

Each job gets a fresh engine, so that nothing is in its cache; rounds take turns, and the median counts. The engine's
own numbers say how many prompt tokens it computed, and its CPU seconds what a row cost. With this model a prompt costs
next to nothing beside the tokens that are generated, so rows/s hardly change; with models of usual size it is the other
way round. By default the engine keeps no prompts outside of its slots: the memory that llama.cpp sets aside for that
(8 GiB) holds some hundred prompts of a usual model, and all of this one's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from remuda.batch.driver import run_job
from remuda.batch.request import JobRequest
from remuda.serving.tiny import WORDS, make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOTS = 4
PORT = 18700
VOCABULARY = [word for words in WORDS.values() for word in words.split()]
ORDERS = ("input", "prefix")
SETS = ("shuffled", "grouped", "nested", "no prefixes")


def text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(VOCABULARY) for _ in range(words))


def prompts(kind: str, rows: int) -> list[str]:
    """Prompts of about 165 words: 16 share the first 150, or nothing; nested ones share 60, 140 or 180 of 195."""
    chance = random.Random(7)
    if kind == "no prefixes":
        return [text(chance, 165) for _ in range(rows)]
    made: list[str] = []
    if kind == "nested":
        system = text(chance, 60)
        while len(made) < rows:
            page = f"{system} {text(chance, 80)}"
            for _ in range(8):
                question = f"{page} {text(chance, 40)}"
                made += [f"{question} {text(chance, 15)}" for _ in range(8)]
    while len(made) < rows:
        page = text(chance, 150)
        made += [f"{page} {text(chance, 15)}" for _ in range(16)]
    if kind != "grouped":
        chance.shuffle(made)
    return made[:rows]


@contextmanager
def engine(model: Path, cache_mib: int) -> Iterator[tuple[str, int]]:
    """A fresh server; its URL and process."""
    argv = [sys.executable, "-m", "remuda.serving.llamacpp_server", "--model", str(model), "--port", str(PORT)]
    argv += ["--parallel", str(SLOTS), "--ctx-size", "1024", "--threads", "1", "--cache-ram", str(cache_mib)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{PORT}"
    try:
        until = time.monotonic() + 60
        while True:
            with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
                break
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"the engine did not start at port {PORT}")
            time.sleep(0.05)
        yield url, process.pid
    finally:
        process.kill()
        process.wait()


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(model: Path, source: Path, order: str, cache_mib: int) -> dict[str, float]:
    with engine(model, cache_mib) as (url, pid):
        request = JobRequest(url, "tiny", str(source), str(source.with_name("out.parquet")), order=order,
                             checkpointing=False, job_kwargs={"max_tokens": 16, "temperature": 0})  # fmt: skip
        start, before = time.perf_counter(), cpu_s(pid)
        summary = run_job(request)
        spent, used = time.perf_counter() - start, cpu_s(pid) - before
    assert summary.failed == 0
    return {
        "computed": summary.prompt_tokens - summary.cached_tokens,
        "cached": summary.cached_tokens / summary.prompt_tokens,
        "rows_per_s": summary.done / spent,
        "engine_ms_per_row": 1000 * used / summary.done,
    }


def bench(rows: int, rounds: int, cache_mib: int) -> dict[str, Any]:
    result: dict[str, Any] = {"rows": rows, "slots": SLOTS, "cache_mib": cache_mib, "sets": {}}
    with tempfile.TemporaryDirectory() as name:
        model = make_tiny_model(Path(name) / "tiny.gguf")
        for kind in SETS:
            source = Path(name) / "in.parquet"
            pq.write_table(pa.table({"prompt": prompts(kind, rows)}), source)
            seen: dict[str, list[dict[str, float]]] = {order: [] for order in ORDERS}
            for number in range(rounds):
                for order in ORDERS if number % 2 == 0 else reversed(ORDERS):
                    seen[order].append(measure(model, source, order, cache_mib))
            middle = {
                order: {key: statistics.median(each[key] for each in found) for key in found[0]}
                for order, found in seen.items()
            }
            ratios = {key: value / middle["input"][key] for key, value in middle["prefix"].items() if key != "cached"}
            result["sets"][kind] = {**middle, "ratio": ratios}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache-ram", type=int, default=0, help="MiB that the engine keeps for prompts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = bench(options.rows, options.rounds, options.cache_ram)
    if options.json:
        print(json.dumps(result))
        return
    for kind, found in result["sets"].items():
        one, other, ratio = found["input"], found["prefix"], found["ratio"]
        print(f"{kind:12} from the cache {one['cached']:6.1%} -> {other['cached']:6.1%}"
              f"   prompt tokens computed {ratio['computed']:.2f} x"
              f"   engine's CPU {one['engine_ms_per_row']:.1f} -> {other['engine_ms_per_row']:.1f} ms a row:"
              f" {ratio['engine_ms_per_row']:.2f} x   rows/s {ratio['rows_per_s']:.2f} x")  # fmt: skip
    if max(result["sets"][kind]["ratio"]["computed"] for kind in SETS[:3]) > 0.8:
        sys.exit("rows with common beginnings cost more than 0.8 of what they cost in input order")


if __name__ == "__main__":
    main()
