"""Trace events, as Perfetto (ui.perfetto.dev) and chrome://tracing open them: a slice a task attempt, counters a GPU.

A process of the trace is a node, its threads are tasks. Counters are means over so much time that the file stays small.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from remuda.profile.analysis import NOBODY, UNKNOWN, Shares
from remuda.profile.columns import SECOND_US
from remuda.profile.thinning import thin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.profile.columns import Recorded, Track

MOST_BYTES: Final = 50_000_000
#: Of one counter in the file, at most.
_EVENT_BYTES: Final = 120
_COUNTERS: Final = (
    ("busy", "%", 1.0, "busy"), ("SM active", "%", 0.01, "sm_active"), ("memory", "GiB", 2.0**-30, "memory"),
    ("memory used", "%", 0.01, "memory_percent"), ("power", "W", 1e-3, "power"),
    ("temperature", "°C", 1.0, "temperature"), ("SM clock", "MHz", 1.0, "sm_clock"),
)  # fmt: skip
#: What is not a counter has room in this.
_RESERVED: Final = 0.1
#: Notes, and gaps of a GPU, that are told.
_MARKS: Final = 1000
#: The first thread of gaps; those before are tasks.
_GAPS: Final = 100_000


def trace(recorded: Recorded) -> Iterator[str]:
    """The document in pieces; times are µs since the recording began."""
    begin = recorded.begin_us
    nodes = {node: number for number, node in enumerate(dict.fromkeys(one.node for one in recorded.tracks), 1)}
    yield json.dumps({"displayTimeUnit": "ms", "otherData": {"recording": recorded.name, "begin_us": begin}})[:-1]
    separator = ', "traceEvents":[\n'
    for event in itertools.chain(_names(nodes), *(of(recorded, nodes) for of in (_slices, _gaps, _notes))):
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    for text in _counters(recorded, nodes):
        yield separator + text
        separator = ",\n"
    yield "\n]}\n" if separator == ",\n" else separator + "]}\n"


def _names(nodes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for node, pid in nodes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": node}}


def _slices(recorded: Recorded, nodes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """One for each task attempt on each node, from the first sample beside it to the last; a thread a task."""
    found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for track in recorded.tracks:
        for owner, mask in Shares(track).masks().items():
            if owner not in (NOBODY, UNKNOWN):
                first, last = np.flatnonzero(mask)[[0, -1]]
                end = int(track.times[last]) + round(float(track.steps[last]) * SECOND_US)
                found.setdefault((track.node, owner), []).append((int(track.times[first]), end, track.gpu.uuid))
    threads: dict[tuple[str, str], int] = {}
    for (node, owner), spans in found.items():
        attempt = recorded.attempt_of(owner)
        thread = threads.get((node, attempt.task))
        if thread is None:
            thread = threads[node, attempt.task] = len(threads) + 1
            yield _thread(nodes[node], thread, attempt.task)
        begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
        yield {
            "ph": "X", "name": f"{attempt.task} attempt {attempt.number}" if attempt.number else attempt.task,
            "cat": "task", "pid": nodes[node], "tid": thread, "ts": begin - recorded.begin_us, "dur": end - begin,
            "args": {"token": owner, "gpus": [span[2] for span in spans]},
        }  # fmt: skip


def _gaps(recorded: Recorded, nodes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Slices where no sample was taken: a counter has its last value there."""
    for track in recorded.tracks:
        if track.gaps:
            yield _thread(nodes[track.node], _GAPS + track.gpu.index, f"GPU {track.gpu.index} not sampled")
        for begin, end in track.gaps[:_MARKS]:
            yield {
                "ph": "X", "name": "not sampled", "cat": "gap", "pid": nodes[track.node],
                "tid": _GAPS + track.gpu.index, "ts": begin - recorded.begin_us, "dur": end - begin,
            }  # fmt: skip


def _thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _notes(recorded: Recorded, nodes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for note in recorded.notes[:_MARKS]:
        yield {
            "ph": "i", "s": "p", "name": f"{note.kind}: {note.text}"[:300], "pid": nodes.get(note.node, 0), "tid": 0,
            "ts": note.at_us - recorded.begin_us,
        }  # fmt: skip


def _counters(recorded: Recorded, nodes: Mapping[str, int]) -> Iterator[str]:
    """Each only where it changes."""
    series = [(track, *counter) for track in recorded.tracks for counter in _COUNTERS if _has(track, counter[-1])]
    room = MOST_BYTES * (1 - _RESERVED) / _EVENT_BYTES
    most = max(2, math.floor(room / max(1, len(series))))
    for track, name, unit, factor, column in series:
        values = track.gauge(column)
        assert values is not None
        head = json.dumps({"ph": "C", "name": f"GPU {track.gpu.index} {name}", "pid": nodes[track.node], "tid": 0})[:-1]
        times, means = thin(track, values * factor, most)
        known = np.isfinite(means)
        before = ""
        for at, mean in zip((times[known] - recorded.begin_us).tolist(), means[known].tolist(), strict=True):
            if (value := f"{mean:.6g}") != before:
                yield f'{head},"ts":{at},"args":{{"{unit}":{value}}}}}'
                before = value


def _has(track: Track, column: str) -> bool:
    return len(track.times) > 0 and track.gauge(column) is not None
