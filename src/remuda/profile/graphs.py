"""Which pictures a recording makes: a map of all GPUs over time, and lines. Pure. Page and paper draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from remuda.base.pages.charts import COLOURS, Chart, Line
from remuda.profile.columns import SECOND_US
from remuda.profile.counters import rate
from remuda.profile.thinning import means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from remuda.profile.columns import Floats, Recorded, Track

_SPANS: Final = 240
#: Title, unit, column (of several counters the sum of their rates), factor.
_CHARTS: Final = (
    ("Busy", "%", "busy", 1.0), ("SM active", "%", "sm_active", 0.01), ("Memory", "GiB", "memory", 2.0**-30),
    ("Memory", "%", "memory_percent", 0.01), ("Power", "W", "power", 1e-3),
    ("Temperature", "°C", "temperature", 1.0), ("SM clock", "MHz", "sm_clock", 1.0),
    ("PCIe", "MB/s", "pcie_sent pcie_received", 1e-6), ("NVLink", "MB/s", "nvlink_sent nvlink_received", 1.024e-3),
)  # fmt: skip
_WORDS: Final = {
    "Busy": "Share of the time in which any kernel ran, as the driver tells it; one small kernel makes it 100 %.",
    "SM active": "Share of the multiprocessors with work.",
    "PCIe": "Sent and received together.",
    "NVLink": "Sent and received together, over all links.",
}
#: From so many seconds on the axis has the next unit.
_UNITS: Final = ((86400 * 4, 86400.0, "days"), (3 * 3600, 3600.0, "hours"), (180, 60.0, "minutes"), (0, 1.0, "seconds"))


@dataclass(frozen=True)
class Heat:
    """How busy each GPU was over time.

    Attributes:
        names: of the rows.
        levels: rows × spans, in %; NaN where nothing is known.
        end: where the last span ends, in units of the axis.
        x: label of the axis.
    """

    names: tuple[str, ...]
    levels: Floats
    end: float
    x: str


@dataclass(frozen=True)
class RecordingGraphs:
    """All pictures of a recording.

    Attributes:
        heat: None where nobody knows how busy GPUs were.
        charts: a value each, with what is said of it.
        names: of the lines, where there is one a GPU.
    """

    heat: Heat | None
    charts: tuple[tuple[Chart, str], ...]
    names: tuple[str, ...]


def graphs_of(recorded: Recorded) -> RecordingGraphs:
    """Means over at most 240 spans of time."""
    rows = _rows(recorded)
    count, width_us = _spans(recorded)
    unit_s, unit = next((size, word) for least, size, word in _UNITS if recorded.span_s >= least)
    begin = datetime.fromtimestamp(recorded.begin_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")
    x = f"{unit} since {begin} UTC"
    places = [(number + 0.5) * width_us / SECOND_US / unit_s for number in range(count)]
    names = _names([tracks[0] for tracks in rows])
    charts = []
    for title, y, column, factor in _CHARTS:
        matrix = np.array([_row(tracks, column, recorded.begin_us, width_us, count) for tracks in rows]) * factor
        if np.isfinite(matrix).any():
            lines, words = _lines(matrix, places, names)
            charts.append((Chart(title, x, y, lines), f"{_WORDS.get(title, '')} {words}".strip()))
    levels = np.array([_row(tracks, "busy", recorded.begin_us, width_us, count) for tracks in rows])
    heat = Heat(names, levels, count * width_us / SECOND_US / unit_s, x) if np.isfinite(levels).any() else None
    return RecordingGraphs(heat, tuple(charts), names if len(names) <= COLOURS else ())


def _rows(recorded: Recorded) -> list[list[Track]]:
    found: dict[tuple[str, str], list[Track]] = {}
    for track in recorded.tracks:
        if len(track.times):
            found.setdefault((track.node, track.gpu.uuid), []).append(track)
    return list(found.values())


def _spans(recorded: Recorded) -> tuple[int, int]:
    """How many, and how long in µs."""
    span_us = max(1, recorded.end_us - recorded.begin_us)
    shortest = min((track.interval_s for track in recorded.tracks), default=1.0) * SECOND_US
    count = max(1, min(_SPANS, int(span_us / shortest)))
    return count, max(1, -(-span_us // count))


def _names(tracks: Sequence[Track]) -> tuple[str, ...]:
    has_nodes = len({track.node for track in tracks}) > 1
    return tuple(f"{track.node} {track.gpu.index}" if has_nodes else track.name for track in tracks)


def _row(tracks: Sequence[Track], column: str, begin_us: int, width_us: int, count: int) -> Floats:
    """Of one GPU: where several recordings overlap, the newest counts."""
    found = np.full(count, np.nan)
    for track in tracks:
        values = _values(track, column)
        if values is not None:
            more = means(track, values, begin_us, width_us, count)
            found = np.where(np.isfinite(more), more, found)
    return found


def _values(track: Track, column: str) -> Floats | None:
    names = column.split()
    if len(names) == 1:
        return track.gauge(column)
    rates = [one for one in (rate(track, name) for name in names) if one is not None]
    return np.asarray(np.sum(rates, axis=0)) if rates else None


def _lines(matrix: Floats, places: Sequence[float], names: Sequence[str]) -> tuple[list[Line], str]:
    if len(matrix) <= COLOURS:
        return [line for number, row in enumerate(matrix) for line in _line(names[number], number, row, places)], ""
    known = np.flatnonzero(np.isfinite(matrix).any(axis=0))
    mean, high, low = (np.full(len(places), np.nan) for _ in range(3))
    for into, of in ((mean, np.nanmean), (high, np.nanmax), (low, np.nanmin)):
        into[known] = of(matrix[:, known], axis=0)
    lines = [
        *_line("highest", 1, high, places, is_dashed=True), *_line("mean", 0, mean, places),
        *_line("lowest", 2, low, places, is_dashed=True),
    ]  # fmt: skip
    return lines, f"Mean, highest and lowest of {len(matrix)} GPUs."


def _line(
    name: str, number: int, row: Floats, places: Sequence[float], *, is_dashed: bool = False
) -> list[Line]:  # fmt: skip
    """One piece for each stretch without gaps; the name stands at the last."""
    known = np.flatnonzero(np.isfinite(row))
    if not len(known):
        return []
    pieces = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)
    paths = [[(places[at], round(float(row[at]), 3)) for at in piece] for piece in pieces]
    return [Line(name if path is paths[-1] else "", number, path, (), is_dashed) for path in paths]
