"""Recordings that nobody made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from remuda.profile.columns import MISSING, Looks, Person, Recorded, Track
from remuda.wire import spool as wire
from remuda.wire.recording import Batch, Gpu, GpuProcess, Header, RecordingNote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BEGIN_S = 1_790_000_000
BEGIN_US = BEGIN_S * 1_000_000
NAMES = ("busy", "memory", "power", "energy", "pcie_sent", "limits")


def gpu(index: int = 0, node: str = "n1") -> Gpu:
    return Gpu(index, f"GPU-{node}-{index}", "H100", memory_bytes=80 << 30)


def track(
    values: Mapping[str, Sequence[float | None]], times: Sequence[float] = (), *, interval_s: float = 1.0,
    index: int = 0, node: str = "n1", token: str = "", boot: str = "b", looks: Looks | None = None,
) -> Track:  # fmt: skip
    """One GPU.

    Args:
        values: by name; None: missing.
        times: seconds since the beginning; empty for one every interval.
    """
    count = max((len(column) for column in values.values()), default=len(times))
    at = np.array(times, float) if len(times) else np.arange(count) * interval_s
    columns = {name: _column(name, column) for name, column in values.items()}
    whole = np.rint(at * 1e6).astype(np.int64) + BEGIN_US
    more = {} if looks is None else {"looks": looks}
    return Track(gpu(index, node), node, token, boot, interval_s, whole, columns, **more)


def _column(name: str, column: Sequence[float | None]) -> Any:
    if name in ("limits", "energy", "heat_limited", "power_limited", "ecc_uncorrected", "pcie_sent", "pcie_received"):
        return np.array([MISSING if value is None else value for value in column], np.int64)
    return np.array([np.nan if value is None else value for value in column], np.float64)


def looks(rows: Sequence[tuple[float, str, float | None]], memory: float = 2.0**30) -> Looks:
    """What was seen of processes: (seconds since the beginning, token or empty, busy), a process an owner."""
    people = list(dict.fromkeys(owner for _, owner, _ in rows))
    return Looks(
        np.array([BEGIN_US + round(at * 1e6) for at, _, _ in rows], np.int64),
        np.array([people.index(owner) for _, owner, _ in rows], np.int64), np.full(len(rows), memory),
        np.array([np.nan if busy is None else busy for _, _, busy in rows], float),
        tuple(Person(100 + place, "python", f"task:{owner}" if owner else "") for place, owner in enumerate(people)),
    )  # fmt: skip


def recorded(*tracks: Track, **said: Any) -> Recorded:
    return Recorded(tuple(tracks), **said)


# On disk


def header(begin_s: float = 0.0, *, gpus: int = 2, node: str = "n1", token: str = "", boot: str = "b") -> Header:
    """One that begins so many seconds after the beginning; the monotonic clock began at 1,000 then."""
    return Header(
        boot, "m", node, round((BEGIN_S + begin_s) * 1e9), round((1000 + begin_s) * 1e9), 100_000,
        tuple(gpu(index, node) for index in range(gpus)), token=token, name="exp1",
    )  # fmt: skip


def batch(of: Header, first: int, count: int, *, seed: int = 0) -> Batch:
    """Rounds of a spool with values by chance, some of them missing."""
    chance = np.random.default_rng([seed, first])
    begin_us = of.monotonic_ns // 1000
    made = Batch(first, first + count)
    made.times = [begin_us + (first + at) * 100_000 + int(chance.integers(0, 500)) for at in range(count)]
    made.clock = [(of.wall_ns - of.monotonic_ns) // 1000 if at == 0 else None for at in range(count)]
    for place in range(len(of.gpus)):
        columns: dict[str, Any] = {name: chance.integers(0, 100, count).tolist() for name in NAMES}
        columns["energy"] = [10**9 + place + 30_000 * (first + at) for at in range(count)]
        columns["power"] = [None if value < 10 else 1000 * value for value in columns["power"]]
        made.gpus.append(columns)
    made.processes = [
        GpuProcess(
            0, place, 40 + place, 1 << 30, int(chance.integers(0, 100)), None, "python", f"task:{of.token or 't'}"
        )
        for place in range(len(of.gpus))
    ]
    made.notes = [RecordingNote(made.times[0], "start", "")] if first == 0 else []
    return made


def write_spool(folder: Path, of: Header, seconds: int, *, minutes: int = 0, seed: int = 0) -> Path:
    """Whole minutes in blocks, and seconds behind them."""
    folder.mkdir(parents=True)
    (folder / wire.HEADER).write_text(of.to_json())
    if minutes:
        blocks = b"".join(wire.block(batch(of, 600 * at, 600, seed=seed), of.values) for at in range(minutes))
        (folder / f"{wire.BLOCKS}000000").write_bytes(blocks)
    frames = [wire.frame(batch(of, 600 * minutes + 10 * at, 10, seed=seed), of.values) for at in range(seconds)]
    (folder / wire.OPEN).write_bytes(b"".join(frames))
    return folder


def same(one: Recorded, other: Recorded) -> bool:
    """Whether two have the same samples and processes."""
    if len(one.tracks) != len(other.tracks):
        return False
    return all(_same(a, b) for a, b in zip(one.tracks, other.tracks, strict=True))


def _same(a: Track, b: Track) -> bool:
    return (
        a.gpu == b.gpu and (a.node, a.token, a.boot) == (b.node, b.token, b.boot)
        and np.array_equal(a.times, b.times) and a.values.keys() == b.values.keys()
        and all(np.array_equal(a.values[name], b.values[name], equal_nan=a.values[name].dtype.kind == "f")
                for name in a.values)
        and np.array_equal(a.looks.at, b.looks.at) and np.array_equal(a.looks.busy, b.looks.busy, equal_nan=True)
        and [a.looks.people[who] for who in a.looks.who] == [b.looks.people[who] for who in b.looks.who]
    )  # fmt: skip
