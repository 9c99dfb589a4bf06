"""Samples as Arrow tables, a row a sample of one GPU: made of spools, kept in Parquet, taken apart into tracks.

Columns of a row: `recording` (place in the file's list of them), `node`, `gpu` (UUID), `time` (µs since the epoch, by
the node's clock as it was when the recording began), `round`, then the values of `wire.recording.VALUES` in its units,
null where the driver did not tell, and `processes`: a list of {pid, name, owner, memory, busy, memory_busy}.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from remuda.profile.columns import COUNTERS, SECOND_US, Looks, Person, Said, Track, no_looks
from remuda.wire.fault import AMBIGUOUS, NODE, NODE_BUSY, Fault
from remuda.wire.recording import VALUES, Header, RecordingNote
from remuda.wire.spool import OPEN, block_files, decode, joined, records, unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from remuda.profile.columns import Floats, Ints
    from remuda.wire.recording import Batch, Column
    from remuda.wire.spool import Spool

KEYS: Final = ("recording", "node", "gpu", "time", "round")
PROCESSES: Final = "processes"
#: The last one, in 0.01 %, is of recordings of others that do not tell how large a memory is.
VALUE_NAMES: Final = (*(value.name for value in VALUES), "memory_percent")
_PERSON: Final = pa.struct([
    ("pid", pa.uint64()), ("name", pa.string()), ("owner", pa.string()), ("memory", pa.uint64()),
    ("busy", pa.uint64()), ("memory_busy", pa.uint64()),
])  # fmt: skip
_WORD: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "recording": pa.uint16(), "node": _WORD, "gpu": _WORD, "time": pa.timestamp("us", "UTC"), "round": pa.uint64(),
    PROCESSES: pa.list_(_PERSON),
}  # fmt: skip
#: Seconds that have not become a minute are gathered up to so many rounds' time.
_MINUTE_US: Final = 50_000_000
_WHOLE: Final = frozenset({*COUNTERS, "limits"})


@dataclass
class SpoolSource:
    """What of a spool is no sample.

    Attributes:
        header: of the spool.
        notes: in order; times on the node's monotonic clock.
        offsets: (monotonic, wall - monotonic), µs, where the clock was looked at and had changed.
        names: of the columns that it has.
    """

    header: Header
    notes: list[RecordingNote] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    @property
    def key(self) -> tuple[str, int, int]:
        """Tells spools apart."""
        return self.header.boot, self.header.monotonic_ns, self.header.wall_ns

    @property
    def offset_us(self) -> int:
        """From the monotonic clock to the wall clock as it was at the start."""
        return (self.header.wall_ns - self.header.monotonic_ns) // 1000

    @property
    def shift_us(self) -> int:
        """What the node's clock was set by since then."""
        return self.offsets[-1][1] - self.offset_us if self.offsets else 0

    def said(self) -> list[Said]:
        """The notes, by the wall clock."""
        offset = self.offset_us + self.shift_us
        return [Said(note.at_us + offset, self.header.node, *_words(note)) for note in self.notes]

    def to_json(self) -> dict[str, Any]:
        """For the file's own words."""
        header = json.loads(self.header.to_json())
        return {"header": header, "notes": self.notes, "offsets": self.offsets, "names": sorted(self.names)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SpoolSource:
        """Read them again.

        Raises:
            ValueError: of another version.
            KeyError, TypeError: something is not there.
        """
        notes = [RecordingNote(int(at), str(kind), str(text)) for at, kind, text in data["notes"]]
        offsets = [(int(at), int(offset)) for at, offset in data["offsets"]]
        return cls(Header.from_json(json.dumps(data["header"])), notes, offsets, set(data["names"]))


def _words(note: RecordingNote) -> tuple[str, str]:
    """Kind and text for people; a fault comes as JSON."""
    if note.kind != "fault":
        return note.kind, note.text
    try:
        fault = Fault.from_dict(json.loads(note.text))
    except ValueError:
        return note.kind, note.text
    where = f" on {fault.device}" if fault.device else ""
    kind = note.kind if fault.kind in (NODE, NODE_BUSY, AMBIGUOUS) else "seen"
    return kind, f"{fault.name}{where}: {fault.line}"


def minutes(spool: Spool, source: SpoolSource, number: int, last_s: float = 0.0) -> Iterator[pa.Table]:
    """The samples of a spool, about a minute at a time; fills in `source` on the way.

    Args:
        spool: any, also one that is being written.
        source: of this spool.
        number: its place in the file's list.
        last_s: only the minutes in which its last so many seconds are; 0 for all.
    """
    pending: list[Batch] = []
    for batch in newest(spool, last_s) if last_s else spool.batches():
        _learn(source, batch)
        if batch.times:
            pending.append(batch)
        if pending and pending[-1].times[-1] - pending[0].times[0] >= _MINUTE_US:
            yield _table(joined(pending), source, number)
            pending = []
    if pending:
        yield _table(joined(pending), source, number)


def newest(spool: Spool, last_s: float) -> list[Batch]:
    """The batches in which the last seconds are, in order; what is before them is not unpacked."""
    seconds = list(_batches(spool, [spool.folder / OPEN]))  # First: what is moved from there meanwhile is met below.
    times = [batch.times[-1] for batch in seconds if batch.times]
    found: list[Batch] = []
    for batch in _batches(spool, block_files(spool.folder)[::-1], backwards=True):
        found.insert(0, batch)
        times += batch.times[-1:]
        if batch.times and batch.times[0] < max(times) - last_s * SECOND_US:
            break
    known = found[-1].end if found else 0
    return [*found, *(batch for batch in seconds if batch.end > known)]


def _batches(spool: Spool, paths: Iterable[Path], *, backwards: bool = False) -> Iterator[Batch]:
    for path in paths:
        with suppress(OSError, ValueError):
            told = records(path.read_bytes())[0]
            for record in reversed(told) if backwards else told:
                yield decode(unpack(*record), spool.header.values)


def _learn(source: SpoolSource, batch: Batch) -> None:
    source.notes += batch.notes
    for at, offset in zip(batch.times, batch.clock, strict=True):
        if offset is not None and (not source.offsets or source.offsets[-1][1] != offset):
            source.offsets.append((at, offset))
    for gpu in batch.gpus:
        source.names.update(gpu)
    if batch.processes:
        source.names.add(PROCESSES)


def _table(batch: Batch, source: SpoolSource, number: int) -> pa.Table:
    """The rows of a batch, by GPU, then by time; a GPU that told nothing in a round has none."""
    header, count = source.header, len(batch.times)
    places = [place for place, gpu in enumerate(batch.gpus) if gpu and place < len(header.gpus)]
    total = count * len(places)
    times = np.array(batch.times, np.int64) + source.offset_us
    rounds = _rounds(batch)
    columns: dict[str, Any] = {
        "recording": pa.array(np.full(total, number, np.uint16)),
        "node": pa.DictionaryArray.from_arrays(np.zeros(total, np.int32), pa.array([header.node])),
        "gpu": pa.DictionaryArray.from_arrays(
            np.repeat(np.arange(len(places), dtype=np.int32), count),
            pa.array([header.gpus[place].uuid for place in places], pa.string()),
        ),
        "time": pa.array(np.tile(times, len(places))).cast(pa.timestamp("us", "UTC")),
        "round": pa.array(np.tile(rounds, len(places)).astype(np.uint64)),
    }
    missing: Column = [None] * count
    for name in source.names & {*VALUE_NAMES}:
        whole = [value for place in places for value in batch.gpus[place].get(name, missing)]
        columns[name] = pa.array(whole, pa.uint64())
    if PROCESSES in source.names:
        columns[PROCESSES] = _processes(batch, places, count)
    table = pa.table(columns)
    return _without_empty(table, [name for name in VALUE_NAMES if name in columns])


def _rounds(batch: Batch) -> Ints:
    """Numbers of the rounds; a batch that was thinned says only where it begins and ends."""
    count = len(batch.times)
    if batch.end - batch.first == count:
        return np.arange(batch.first, batch.end, dtype=np.int64)
    return np.linspace(batch.first, max(batch.first, batch.end - 1), count).astype(np.int64)


def _processes(batch: Batch, places: Sequence[int], count: int) -> pa.ListArray:
    row_of = {place: number * count for number, place in enumerate(places)}
    seen = sorted((one for one in batch.processes if one.gpu in row_of), key=lambda one: row_of[one.gpu] + one.round)
    rows = np.array([row_of[one.gpu] + one.round for one in seen], np.int64)
    offsets = np.searchsorted(rows, np.arange(len(places) * count + 1)).astype(np.int32)
    told = [
        {"pid": one.pid, "name": one.name, "owner": one.owner, "memory": one.memory, "busy": one.busy,
         "memory_busy": one.memory_busy}
        for one in seen
    ]  # fmt: skip
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(told, _PERSON))


def _without_empty(table: pa.Table, names: Sequence[str]) -> pa.Table:
    if not names or any(table[name].null_count == 0 for name in names):
        return table
    known = np.zeros(len(table), bool)
    for name in names:
        known |= table[name].is_valid().to_numpy()
    return table.filter(pa.array(known))


def schema(names: Iterable[str]) -> pa.Schema:
    """Of a file with these values."""
    kept = [*KEYS, *(name for name in VALUE_NAMES if name in set(names)), *([PROCESSES] if PROCESSES in names else [])]
    return pa.schema([(name, _TYPES.get(name, pa.uint64())) for name in kept])


def fitted(table: pa.Table, to: pa.Schema) -> pa.Table:
    """The table with all columns of a schema, those that it lacks null."""
    columns = [
        table[one.name] if one.name in table.column_names else pa.nulls(len(table), one.type) for one in to
    ]  # fmt: skip
    return pa.table(columns, names=to.names).cast(to)


# Taken apart


def tracks(table: pa.Table, sources: Sequence[SpoolSource]) -> list[Track]:
    """A track for each GPU of each recording."""
    if not len(table):
        return []
    gpu = table["gpu"].combine_chunks() if table["gpu"].num_chunks != 1 else table["gpu"].chunk(0)
    gpu = pa.chunked_array([gpu]).unify_dictionaries().chunk(0)
    uuids = gpu.dictionary.to_pylist()
    of_gpu = gpu.indices.to_numpy(zero_copy_only=False).astype(np.uint32)
    of_recording = table["recording"].to_numpy().astype(np.uint32)
    key = (of_recording * len(uuids) + of_gpu).astype(np.uint32)
    times = table["time"].cast(pa.int64()).to_numpy()
    order = np.lexsort((times, key))
    firsts = np.flatnonzero(np.append(True, np.diff(key[order].astype(np.int64)) != 0))
    ends = np.append(firsts[1:], len(order))
    values = {name: _values(table, name)[order] for name in VALUE_NAMES if name in table.column_names}
    times = times[order]
    looks = _Looks(table, order)
    found = []
    for first, end in zip(firsts, ends, strict=True):
        source = sources[int(of_recording[order[first]])]
        known = {one.uuid: one for one in source.header.gpus}
        uuid = uuids[int(of_gpu[order[first]])]
        if uuid not in known:
            continue
        header = source.header
        found.append(Track(
            known[uuid], header.node, header.token, header.boot, header.interval_us / 1e6,
            times[first:end] + source.shift_us, {name: column[first:end] for name, column in values.items()},
            looks.of(int(first), int(end), source.shift_us),
        ))  # fmt: skip
    return found


def _values(table: pa.Table, name: str) -> Floats | Ints:
    column = table[name]
    if name in _WHOLE:
        filled = column.fill_null(2**64 - 1) if column.null_count else column
        return np.asarray(filled.to_numpy().view(np.int64))
    if column.null_count == 0:
        return np.asarray(column.to_numpy().astype(np.float64))
    whole = column.fill_null(0).to_numpy().astype(np.float64)
    whole[~column.is_valid().to_numpy()] = np.nan
    return np.asarray(whole)


class _Looks:
    """The processes of all rows, given out a stretch of ordered rows at a time."""

    def __init__(self, table: pa.Table, order: Ints) -> None:
        self._rows: Ints = np.empty(0, np.int64)
        if PROCESSES not in table.column_names:
            return
        lists = table[PROCESSES].combine_chunks()
        lists = lists if isinstance(lists, pa.ListArray) else pa.concat_arrays(lists.chunks)
        entries = lists.flatten()
        if not len(entries):
            return
        sizes = lists.value_lengths().fill_null(0).to_numpy()
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        rows = place[np.repeat(np.arange(len(sizes)), sizes)]
        by_row = np.argsort(rows, kind="stable")
        self._rows = rows[by_row]
        self._at = table["time"].cast(pa.int64()).to_numpy()[order]
        self._people, who = _people(entries)
        self._who = who[by_row]
        self._memory, self._busy = (_floats(entries.field(name))[by_row] for name in ("memory", "busy"))

    def of(self, first: int, end: int, shift_us: int) -> Looks:
        begin, stop = np.searchsorted(self._rows, [first, end])
        if begin == stop:
            return no_looks()
        mine = slice(begin, stop)
        used, who = np.unique(self._who[mine], return_inverse=True)
        people = tuple(self._people[place] for place in used)
        at = self._at[self._rows[mine]] + shift_us
        return Looks(at, who.astype(np.int64), self._memory[mine], self._busy[mine], people)


def _people(entries: pa.StructArray) -> tuple[list[Person], Ints]:
    """Who there is, and of each entry who it is."""
    names, owners = (entries.field(name).fill_null("").dictionary_encode() for name in ("name", "owner"))
    pid = entries.field("pid").to_numpy(zero_copy_only=False).astype(np.int64)
    triple = np.stack([pid, names.indices.to_numpy(), owners.indices.to_numpy()])
    unique, who = np.unique(triple, axis=1, return_inverse=True)
    called, owned = names.dictionary.to_pylist(), owners.dictionary.to_pylist()
    people = [Person(int(pid), called[int(name)], owned[int(owner)]) for pid, name, owner in unique.T]
    return people, np.asarray(who).reshape(-1)


def _floats(column: pa.Array) -> Floats:
    if column.null_count == 0:
        return np.asarray(column.to_numpy(zero_copy_only=False).astype(np.float64))
    whole = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    whole[~column.is_valid().to_numpy(zero_copy_only=False)] = np.nan
    return np.asarray(whole)
