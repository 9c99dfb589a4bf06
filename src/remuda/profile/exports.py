"""Recordings in the formats of others, each file whole or not there."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from remuda.base.errors import InputError
from remuda.base.text import did_you_mean
from remuda.profile import files
from remuda.profile.chrome import trace
from remuda.profile.columns import MISSING, SECOND_US
from remuda.profile.gswarm import frames
from remuda.profile.rows import VALUE_NAMES, SpoolSource, fitted, schema
from remuda.wire.recording import Header, RecordingNote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from remuda.profile.columns import Recorded, Track

#: And what their files end in.
FORMATS: Final = {"parquet": ".parquet", "json": ".json", "chrome": ".json", "csv": ".csv"}
_MINUTE_US: Final = 60 * SECOND_US


def export(recorded: Recorded, kind: str, path: Path) -> None:
    """Write a recording.

    Args:
        recorded: any.
        kind: of `FORMATS`: `parquet` has everything and is read again; `json` is gswarm's layout, read again, too;
            `chrome` trace events for Perfetto, thinned to 50 MB; `csv` a row a sample.
        path: of the file; where it ends in `.gz`, JSON and CSV are packed.

    Raises:
        InputError: there is no such format.
        Unwritable: the file cannot be written.
    """
    if kind not in FORMATS:
        hint = did_you_mean(kind, FORMATS, f"there are {', '.join(FORMATS)}")
        raise InputError(f"there is no format {kind!r}", hint=hint, where="--format")
    if kind == "parquet":
        files.write(path, lambda sources: _rows(recorded, sources))
    elif kind == "csv":
        _write(path, lambda: _csv(recorded))
    else:
        pieces = trace if kind == "chrome" else frames
        _write(path, lambda: (piece.encode() for piece in pieces(recorded)))


def _write(path: Path, pieces: Callable[[], Iterator[bytes]]) -> None:
    with files.whole(path) as part, part.open("xb") as raw:
        if path.suffix == ".gz":
            with gzip.GzipFile(path.stem, "wb", 6, raw, mtime=0) as packed:
                packed.writelines(pieces())
        else:
            raw.writelines(pieces())


def _csv(recorded: Recorded) -> Iterator[bytes]:
    sources: list[SpoolSource] = []
    names = {name for track in recorded.tracks for name in track.values}
    to = schema([name for name in VALUE_NAMES if name in names])
    first = True
    for table in _rows(recorded, sources):
        out = pa.BufferOutputStream()
        options = pa.csv.WriteOptions(include_header=first)
        pa.csv.write_csv(
            _spelt(fitted(table.select([n for n in table.column_names if n in to.names]), to)), out, options
        )
        yield out.getvalue().to_pybytes()
        first = False


def _spelt(table: pa.Table) -> pa.Table:
    """Arrow writes no dictionaries to CSV. What a spreadsheet takes for a formula gets an apostrophe."""
    columns = {
        name: pc.replace_substring_regex(table[name].cast(pa.string()), r"^([=+\-@\t\r])", r"'\1")
        if name in ("node", "gpu")
        else table[name]
        for name in table.column_names
    }
    return pa.table({name: column for name, column in columns.items() if name not in ("recording", "round")})


def _rows(recorded: Recorded, sources: list[SpoolSource]) -> Iterator[pa.Table]:
    """The rows of all tracks, a minute of a recording at a time; fills the list of sources."""
    groups: dict[tuple[str, str, str], list[Track]] = {}
    for track in recorded.tracks:
        groups.setdefault((track.node, track.boot, track.token), []).append(track)
    for number, (key, mine) in enumerate(groups.items()):
        sources.append(_source(recorded, key, mine))
        begin = min(int(track.times[0]) for track in mine)
        end = max(int(track.times[-1]) for track in mine)
        for minute in range(begin, end + 1, _MINUTE_US):
            parts = [track.within(minute, minute + _MINUTE_US) for track in mine]
            tables = [_table(part, number) for part in parts if len(part.times)]
            if tables:
                names = [name for table in tables for name in table.column_names]
                yield pa.concat_tables([fitted(table, schema(names)) for table in tables])


def _source(recorded: Recorded, key: tuple[str, str, str], tracks: list[Track]) -> SpoolSource:
    node, boot, token = key
    begin = min(int(track.times[0]) for track in tracks)
    interval_us = round(max(track.interval_s for track in tracks) * SECOND_US)
    header = Header(
        boot, "", node, begin * 1000, 0, interval_us, tuple({one.gpu.uuid: one.gpu for one in tracks}.values()),
        token=token, name=recorded.name,
    )  # fmt: skip
    notes = [RecordingNote(note.at_us - begin, note.kind, note.text) for note in recorded.notes if note.node == node]
    return SpoolSource(header, notes)  # Each of a node has them all: who reads them takes each once.


def _table(track: Track, number: int) -> pa.Table:
    count = len(track.times)
    columns: dict[str, Any] = {
        "recording": pa.array(np.full(count, number, np.uint16)),
        "node": pa.array([track.node]).dictionary_encode().take(pa.array(np.zeros(count, np.int32))),
        "gpu": pa.array([track.gpu.uuid]).dictionary_encode().take(pa.array(np.zeros(count, np.int32))),
        "time": pa.array(track.times).cast(pa.timestamp("us", "UTC")),
    }
    for name in VALUE_NAMES:
        column = track.values.get(name)
        if column is not None:
            is_missing = column == MISSING if column.dtype.kind == "i" else np.isnan(column)
            columns[name] = pa.array(np.rint(np.where(is_missing, 0, column)).astype(np.uint64), mask=is_missing)
    columns["processes"] = _processes(track)
    return pa.table(columns)


def _processes(track: Track) -> pa.ListArray:
    looks = track.looks
    place = np.searchsorted(track.times, looks.at, "right") - 1
    offsets = np.searchsorted(place, np.arange(len(track.times) + 1)).astype(np.int32)
    people = [looks.people[who] for who in looks.who]
    columns = {
        "pid": pa.array([one.pid for one in people], pa.uint64()),
        "name": pa.array([one.name for one in people], pa.string()),
        "owner": pa.array([one.owner for one in people], pa.string()),
        "memory": _whole(looks.memory), "busy": _whole(looks.busy), "memory_busy": pa.nulls(len(people), pa.uint64()),
    }  # fmt: skip
    structs = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return pa.ListArray.from_arrays(pa.array(offsets), structs)


def _whole(values: Any) -> pa.Array:
    is_missing = np.isnan(values)
    return pa.array(np.where(is_missing, 0, values).astype(np.uint64), mask=is_missing)
