"""Recordings as gswarm's profiler writes them: one JSON document, a frame a period, lists over all GPUs. Both ways.

`{"frames": [{"frame_id", "time", "gpu_id": ["host:index:name"], "gpu_util": ["12.00"], "gpu_memory": ["40.00"], …}],
"summary_by_device": {…}, "summary_by_client": {…}}`: utilisation and memory are percentages, bandwidths GB/s over PCIe.
"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from remuda.base.disk.files import read_whole
from remuda.base.errors import InputError, NotFound
from remuda.profile.columns import SECOND_US, Track
from remuda.profile.counters import rate
from remuda.wire.recording import Gpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from remuda.profile.columns import Floats, Ints, Recorded

_BANDWIDTHS: Final = {"dram_bandwidth_rx": "pcie_received", "dram_bandwidth_tx": "pcie_sent"}
#: A day of eight GPUs ten times a second has 200 MB.
_MOST_BYTES: Final = 1 << 30
_LISTS: Final = ("gpu_util", "gpu_memory", *_BANDWIDTHS)


# In


def read_gswarm(path: Path) -> list[Track]:
    """A track for each GPU.

    Raises:
        NotFound: there is no such file.
        InputError: it has not that layout.
    """
    try:
        frames = orjson.loads(read_whole(path, _MOST_BYTES))["frames"]
        rows = _rows(frames)
        return [_track(gpu, mine) for gpu, mine in rows.items()]
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path}", hint="see: remuda profiler sessions") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"it is not a recording of gswarm: {what}", where=str(path)) from error


def _rows(frames: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, ...]]]:
    """Of each GPU: time and the values of `_LISTS`, NaN where a frame has none."""
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for frame in frames:
        at = _time(frame["time"])
        lists = [frame.get(name) or [] for name in _LISTS]
        for place, gpu in enumerate(frame["gpu_id"]):
            values = (float(one[place]) if place < len(one) else float("nan") for one in lists)
            found[str(gpu)].append((at, *values))
    return found


def _time(text: str) -> float:
    """Gswarm writes the time of its machine's zone without a zone: it is taken for ours."""
    return datetime.fromisoformat(text).timestamp()


def _track(told: str, rows: Sequence[tuple[float, ...]]) -> Track:
    table = np.array(sorted(rows))
    node, _, rest = told.partition(":")
    index, _, name = rest.partition(":")
    gpu = Gpu(int(index) if index.isdecimal() else 0, told, name)
    seconds = table[:, 0]
    interval_s = float(np.median(np.diff(seconds))) if len(seconds) > 1 else 1.0
    values: dict[str, Any] = {"busy": table[:, 1], "memory_percent": np.rint(100 * table[:, 2])}
    for place, column in enumerate(_BANDWIDTHS.values(), 3):
        rates = table[:, place]
        if np.isfinite(rates).any():
            values[column] = _counter(rates, seconds)
    return Track(gpu, node, "", "", interval_s or 1.0, np.rint(seconds * SECOND_US).astype(np.int64), values)


def _counter(rates: Floats, seconds: Floats) -> Any:
    """Bytes that would have been counted at that rate in GB/s."""
    steps = np.nan_to_num(rates[:-1]) * 1e9 * np.diff(seconds)
    return np.rint(np.concatenate([[0.0], np.cumsum(steps)])).astype(np.int64)


# Out


def frames(recorded: Recorded) -> Iterator[str]:
    """The document in pieces: a frame a sample, each GPU with its newest one."""
    yield '{"frames":['
    tracks = [track for track in recorded.tracks if len(track.times)]
    columns = [_columns(track) for track in tracks]
    has_bandwidth = any(name in values for values in columns for name in _BANDWIDTHS)
    ticks = _ticks(tracks)
    newest = [np.searchsorted(track.times, ticks, "right") - 1 for track in tracks]
    separator = ""
    for number, tick in enumerate(ticks):
        frame = _frame(number + 1, int(tick), tracks, columns, [int(at[number]) for at in newest])
        if frame["gpu_id"]:
            yield separator + json.dumps(frame if has_bandwidth else _without(frame), separators=(",", ":"))
            separator = ",\n"
    yield f'],\n"summary_by_device":{json.dumps(_summary(tracks, columns))},"summary_by_client":{{}}}}\n'


def _ticks(tracks: Sequence[Track]) -> Ints:
    """Times of frames: those of samples, of which two that belong together are one."""
    ticks: Ints = np.empty(0, np.int64)
    for track in sorted(tracks, key=lambda one: -len(one.times)):
        after = np.searchsorted(ticks, track.times)
        around = np.concatenate([[np.iinfo(np.int64).min // 2], ticks, [np.iinfo(np.int64).max // 2]])
        distance = np.minimum(track.times - around[after], around[after + 1] - track.times)
        ticks = np.sort(np.concatenate([ticks, track.times[distance > track.interval_s * SECOND_US / 2]]))
    return ticks


def _columns(track: Track) -> dict[str, Floats]:
    found = {}
    if (busy := track.gauge("busy")) is not None:
        found["gpu_util"] = busy
    if (memory := track.gauge("memory")) is not None and track.gpu.memory_bytes:
        found["gpu_memory"] = 100.0 * memory / track.gpu.memory_bytes
    elif (percent := track.gauge("memory_percent")) is not None:
        found["gpu_memory"] = percent / 100
    for name, column in _BANDWIDTHS.items():
        if (rates := rate(track, column, 1e-9)) is not None:
            found[name] = rates
    return found


def _frame(
    number: int, at_us: int, tracks: Sequence[Track], columns: Sequence[Mapping[str, Floats]], newest: Sequence[int]
) -> dict[str, Any]:
    """Samples that are older than a gap are left out."""
    frame: dict[str, Any] = {
        "frame_id": number, "time": datetime.fromtimestamp(at_us / SECOND_US, UTC).isoformat(), "gpu_id": [],
        "gpu_util": [], "gpu_memory": [], "dram_util": [], "disk_util": [], "dram_bandwidth": [],
        "dram_bandwidth_rx": [], "dram_bandwidth_tx": [], "gpu_bandwidth": [],
    }  # fmt: skip
    for track, values, place in zip(tracks, columns, newest, strict=True):
        if place < 0 or at_us - int(track.times[place]) > 2 * track.steps[place] * SECOND_US:
            continue
        frame["gpu_id"].append(f"{track.node}:{track.gpu.index}:{track.gpu.name}")
        told = {name: float(np.nan_to_num(values[name][place])) if name in values else 0.0 for name in _LISTS}
        for name, value in told.items():
            frame[name].append(f"{value:.2f}")
        frame["dram_bandwidth"].append(f"{told['dram_bandwidth_rx'] + told['dram_bandwidth_tx']:.2f}")
    return frame


def _without(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if "bandwidth" not in name}


def _summary(tracks: Sequence[Track], columns: Sequence[Mapping[str, Floats]]) -> dict[str, dict[str, str]]:
    found = {}
    for track, values in zip(tracks, columns, strict=True):
        means = {name: float(np.nanmean(values[name])) for name in ("gpu_util", "gpu_memory") if name in values}
        found[f"{track.node}:{track.gpu.index}:{track.gpu.name}"] = {
            f"avg_{name}": f"{mean:.2f}" for name, mean in means.items()
        }
    return found
