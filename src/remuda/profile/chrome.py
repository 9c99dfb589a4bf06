"""Trace events, as Perfetto (ui.perfetto.dev) and chrome://tracing open them: a slice a task attempt, counters a GPU.

A process of the trace is a node, its threads are tasks. Counters are means over so much time that the file stays small.
"""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from remuda.profile.analysis import NOBODY, UNKNOWN, Shares
from remuda.profile.columns import SECOND_US
from remuda.profile.thinning import thin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from remuda.profile.columns import Attempt, Recorded, Track

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


class _Span(NamedTuple):
    """One attempt of a task on one node."""

    begin: int
    end: int
    attempt: Attempt
    token: str
    gpus: tuple[str, ...]


def trace(recorded: Recorded) -> Iterator[str]:
    """The document in pieces; times are µs since the first sample or note, as a viewer drops what is before 0."""
    begin = min([note.at_us for note in recorded.notes[:_MARKS]], default=recorded.begin_us)
    begin = min(begin, recorded.begin_us) if recorded.begin_us else begin
    of_all = [*(one.node for one in recorded.tracks), *(note.node for note in recorded.notes[:_MARKS])]
    nodes = {node: number for number, node in enumerate(dict.fromkeys(of_all), 1)}
    yield json.dumps({"displayTimeUnit": "ms", "otherData": {"recording": recorded.name, "begin_us": begin}})[:-1]
    separator = ', "traceEvents":[\n'
    for event in itertools.chain(_names(nodes), *(of(recorded, nodes, begin) for of in (_slices, _gaps, _notes))):
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    for text in _counters(recorded, nodes, begin):
        yield separator + text
        separator = ",\n"
    yield "\n]}\n" if separator == ",\n" else separator + "]}\n"


def _names(nodes: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for node, pid in nodes.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": node}}


def _slices(recorded: Recorded, nodes: Mapping[str, int], start: int) -> Iterator[dict[str, Any]]:
    """One for each task attempt on each node, from the first sample beside it to the last; a thread a task."""
    for thread, ((node, task), spans) in enumerate(_spans(recorded).items(), 1):
        yield _thread(nodes[node], thread, task)
        for span, after in itertools.zip_longest(spans, spans[1:]):
            end = span.end if after is None else min(span.end, after.begin)  # slices of a thread do not overlap
            number = span.attempt.number
            yield {
                "ph": "X", "name": f"{task} attempt {number}" if number else task, "cat": "task", "pid": nodes[node],
                "tid": thread, "ts": span.begin - start, "dur": end - span.begin,
                "args": {"token": span.token, "gpus": span.gpus},
            }  # fmt: skip


def _spans(recorded: Recorded) -> dict[tuple[str, str], list[_Span]]:
    """Of each task on each node: its attempts in the order of time."""
    found: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for track in recorded.tracks:
        for owner, mask in Shares(track).masks().items():
            if owner not in (NOBODY, UNKNOWN):
                first, last = np.flatnonzero(mask)[[0, -1]]
                end = int(track.times[last]) + round(float(track.steps[last]) * SECOND_US)
                found.setdefault((track.node, owner), []).append((int(track.times[first]), end, track.gpu.uuid))
    spans: dict[tuple[str, str], list[_Span]] = {}
    for (node, owner), times in found.items():
        attempt, gpus = recorded.attempt_of(owner), tuple(dict.fromkeys(time[2] for time in times))
        span = _Span(min(time[0] for time in times), max(time[1] for time in times), attempt, owner, gpus)
        spans.setdefault((node, attempt.task), []).append(span)
    return {key: sorted(mine, key=lambda one: one.begin) for key, mine in spans.items()}


def _gaps(recorded: Recorded, nodes: Mapping[str, int], start: int) -> Iterator[dict[str, Any]]:
    """Slices where no sample was taken: a counter has its last value there."""
    for track in recorded.tracks:
        if track.gaps:
            yield _thread(nodes[track.node], _GAPS + track.gpu.index, f"GPU {track.gpu.index} not sampled")
        for begin, end in track.gaps[:_MARKS]:
            yield {
                "ph": "X", "name": "not sampled", "cat": "gap", "pid": nodes[track.node],
                "tid": _GAPS + track.gpu.index, "ts": begin - start, "dur": end - begin,
            }  # fmt: skip


def _thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _notes(recorded: Recorded, nodes: Mapping[str, int], start: int) -> Iterator[dict[str, Any]]:
    for note in sorted(recorded.notes[:_MARKS], key=lambda one: one.at_us):
        yield {
            "ph": "i", "s": "p", "name": f"{note.kind}: {note.text}"[:300], "pid": nodes[note.node], "tid": 0,
            "ts": note.at_us - start,
        }  # fmt: skip


def _counters(recorded: Recorded, nodes: Mapping[str, int], start: int) -> Iterator[str]:
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
        for at, mean in zip((times[known] - start).tolist(), means[known].tolist(), strict=True):
            if (value := f"{mean:.6g}") != before:
                yield f'{head},"ts":{at},"args":{{"{unit}":{value}}}}}'
                before = value


def _has(track: Track, column: str) -> bool:
    return len(track.times) > 0 and track.gauge(column) is not None
