"""What a recording of GPUs weighs and how long it takes to say what they did: an hour of 64 GPUs at 10 Hz.

Power (σ 6 W), energy, clocks and PCIe (up to 64 KiB) change in every sample, by chance. Sizes are of ten values a
GPU-sample; the JSON is gswarm's layout of the same samples, which has four of them. Times are CPU seconds, the least of
three.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.profile import analyse, export, page, read, tables
from remuda.profile.columns import Looks, Person, Recorded, Track
from remuda.wire.recording import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN_US = 1_790_000_000_000_000
HZ = 10
BOUND_BYTES = 12
BOUND_S = 3


def track(chance: np.random.Generator, place: int, seconds: int) -> Track:
    """One GPU that works in bursts; its process is looked at once a second. GPUs of a node are looked at together."""
    count = seconds * HZ
    jitter = np.random.default_rng(place // 8).integers(0, 200, count)
    times = BEGIN_US + np.arange(count) * (1_000_000 // HZ) + jitter
    is_on = np.sin(np.arange(count) / (200.0 + place)) > -0.5
    power = np.where(is_on, 420_000, 95_000) + chance.normal(0, 6_000, count).astype(np.int64)
    values: dict[str, Any] = {
        "busy": np.where(is_on, chance.integers(90, 101, count), 0).astype(float),
        "memory_busy": np.where(is_on, chance.integers(30, 50, count), 0).astype(float),
        "memory": 40.0 * 2**30 + 2.0**21 * (np.arange(count) // 300),
        "power": power.astype(float),
        "temperature": 55.0 + np.where(is_on, 8, 0) + chance.integers(0, 2, count),
        "sm_clock": 1980.0 - 15 * chance.integers(0, 12, count),
        "memory_clock": np.full(count, 2619.0),
        "energy": 10**9 + np.cumsum(power // HZ),
        "pcie_sent": 10**12 + np.cumsum(1_000_000 + chance.integers(0, 1 << 16, count)),
        "pcie_received": 10**12 + np.cumsum(5_000_000 + chance.integers(0, 1 << 16, count)),
    }
    gpu = Gpu(place % 8, f"GPU-{place:08x}-1c5e-4f6e-9d0c-000000000000", "NVIDIA H100 80GB HBM3", memory_bytes=80 << 30)
    at = times[::HZ]
    looks = Looks(
        at, np.zeros(len(at), np.int64), np.full(len(at), 39.0 * 2**30), chance.integers(0, 100, len(at)).astype(float),
        (Person(1000 + place, "python", f"task:train-{place // 8}"),),
    )  # fmt: skip
    return Track(gpu, f"node{place // 8}", f"train-{place // 8}", "boot", 1.0 / HZ, times, values, looks)


def least(what: Callable[[], Any]) -> float:
    taken = []
    for _ in range(3):
        begin = time.process_time()
        what()
        taken.append(time.process_time() - begin)
    return min(taken)


def figures(gpus: int, minutes: int) -> dict[str, float]:
    """Sizes in bytes a GPU-sample, times in seconds."""
    chance = np.random.default_rng(7)
    recorded = Recorded(tuple(track(chance, place, 60 * minutes) for place in range(gpus)), "bench")
    samples = sum(len(one.times) for one in recorded.tracks)
    with tempfile.TemporaryDirectory() as folder:
        path, as_json, trace = (Path(folder) / name for name in ("r.parquet", "r.json", "trace.json"))
        export(recorded, "parquet", path)
        minute = Recorded(tuple(one.within(BEGIN_US, BEGIN_US + 60_000_000) for one in recorded.tracks[:8]), "bench")
        export(minute, "json", as_json)
        kept = read(path)
        analysis = analyse(kept)
        return {
            "samples": samples,
            "parquet_bytes": path.stat().st_size / samples,
            "json_bytes": as_json.stat().st_size / sum(len(one.times) for one in minute.tracks),
            "read_s": least(lambda: read(path)),
            "analyse_s": least(lambda: tables(analyse(kept))),
            "page_s": least(lambda: page(kept, analysis, now=0.0)),
            "page_bytes": len(page(kept, analysis, now=0.0)),
            "trace_s": least(lambda: export(kept, "chrome", trace)),
            "trace_bytes": trace.stat().st_size,
        }


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--gpus", type=int, default=64)
    words.add_argument("--minutes", type=int, default=60)
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    found = figures(asked.gpus, asked.minutes)
    took = found["read_s"] + found["analyse_s"]
    if asked.json:
        print(json.dumps(found))
    else:
        print(f"{asked.gpus} GPUs × {asked.minutes} min × {HZ} Hz: {found['samples']:,} GPU-samples of ten values")
        print(f"parquet         {found['parquet_bytes']:6.1f} B a GPU-sample (bound {BOUND_BYTES})")
        print(f"gswarm's JSON   {found['json_bytes']:6.1f} B, of four of the values")
        print(f"read            {found['read_s']:6.2f} s of CPU")
        print(f"analyse         {found['analyse_s']:6.2f} s: {took:.2f} s together (bound {BOUND_S} s)")
        print(f"draw the page   {found['page_s']:6.2f} s, {found['page_bytes'] / 1e6:.1f} MB")
        print(f"chrome trace    {found['trace_s']:6.2f} s, {found['trace_bytes'] / 1e6:.1f} MB")
    return 0 if took < BOUND_S and found["parquet_bytes"] <= BOUND_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
