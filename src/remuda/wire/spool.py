"""What a recording of GPUs looks like on disk: a spool, written by a node, read by anybody.

A recording is a folder; each start of a recorder adds one *spool* to it, a folder `000`, `001`, … with

- `header.json`: a `Header`.
- `open`: the records of the minute under way, one a second.
- `blocks-000000`, `blocks-000001`, …: the finished minutes, one record each, 60 in a file. Where a minute is in both
  (the writer died between them), the one in `blocks` counts; `Batch.first` and `end` tell.

and `status.json` beside the spools: what a `Status` says of the recorder now.

A record is `length u32, CRC32 u32, kind u8, payload` (little endian; the CRC is of kind and payload). Kind 1: the
payload is a batch; kind 2: the payload is a batch, packed by zlib. A reader stops at the first record that is not whole
or whose CRC is wrong, and everything before it counts. A batch is

    varint first, end     numbers of the rounds that it stands for: first, first + 1, … end - 1; at least one
    varint n              rounds that are in it; fewer than end - first where it was thinned, or tells notes alone
    column                n times of the rounds, µs on the node's monotonic clock
    column                n offsets of its wall clock (wall - monotonic, µs), present where it was looked at anew
    varint gpus           then for each GPU of the header, in its order:
        varint k          then k times
            varint index, column      of `Header.values`, n values
    varint rows           then, of processes, six columns of that many rows: round (0 … n - 1), GPU (place in the
                          header), place in `who`, and as in `GpuProcess`
    varint length, JSON   {"who": [[pid, name, owner], …], "notes": [[µs, kind, text], …]}
    planes                of the numbers of all columns

and a column of n whole numbers from 0 to 2⁶⁴ - 1, of which each may be missing, is

    u8 head               bits 0-3: bytes of one number (0: all are equal to the first; 1, 2, 4, 8) · bit 4: some are
                          missing · bit 5: all are, and nothing follows · bit 6: differences to the least
    bitmap                if some are missing: a bit a value, 1 for present, lowest bit first
    varint                the first that is present, or the least

with its numbers in the planes: differences from each present value to the next, little endian two's complement, modulo
2⁶⁴; with bit 6: of each to the least, unsigned. A plane is one byte of each number of one column, the lowest first.
Planes stand in the order of what they are of (times, clock, values by index, columns of processes), then of the byte,
then of the GPU: what is alike stands together, as zlib wants it.

Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from contextlib import suppress
from itertools import accumulate, compress
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.wire.recording import Batch, GpuProcess, Header, RecordingNote

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.wire.recording import Column

HEADER, OPEN, BLOCKS, STATUS = "header.json", "open", "blocks-", "status.json"
CLOSED = "recording.parquet"
"""What becomes of a recording that has ended."""
FRAME, BLOCK = 1, 2
"""Kinds of records."""
MAX_RECORD_BYTES, MAX_ROWS = 256 << 20, 1 << 24
"""Of a record, packed or unpacked, and of a column."""
MAX_VALUES = 1 << 25
"""Of all columns of a batch: a minute of 16 GPUs at 1 kHz has 13 million."""
MAX_HEADER_BYTES = 1 << 20
_RECORD = struct.Struct("<IIB")
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_SOME_MISSING, _ALL_MISSING, _TO_LEAST = 0x10, 0x20, 0x40
_ALL = 1 << 64
_SIGN = 1 << 63
_TIMES, _CLOCK, _VALUES, _PROCESSES = 0, 1, 2, 1 << 20
"""What planes are of, in their order."""


# --- records ---------------------------------------------------------------------------------------------------------


def frame(batch: Batch, values: tuple[str, ...]) -> bytes:
    """The record of one second, to be added to `open`."""
    return record(FRAME, encode(batch, values))


def block(batch: Batch, values: tuple[str, ...]) -> bytes:
    """The record of one minute, to be added to `blocks-…`."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 15, 8, zlib.Z_FILTERED)
    packed = bytearray()
    for piece in _pieces(batch, values):  # each with codes of its own
        packed += packer.compress(piece) + packer.flush(zlib.Z_BLOCK)
    return record(BLOCK, bytes(packed + packer.flush()))


def record(kind: int, payload: bytes) -> bytes:
    """A record of any kind."""
    return _RECORD.pack(len(payload), zlib.crc32(payload, zlib.crc32(bytes([kind]))), kind) + payload


def records(data: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """What a file holds: (kind, payload) of each record, and how many bytes of it are whole records."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at + _RECORD.size <= len(data):
        size, crc, kind = _RECORD.unpack_from(data, at)
        end = at + _RECORD.size + size
        if size > MAX_RECORD_BYTES or end > len(data):
            break
        payload = data[at + _RECORD.size : end]
        if zlib.crc32(payload, zlib.crc32(bytes([kind]))) != crc:
            break
        found.append((kind, payload))
        at = end
    return found, at


def unpack(kind: int, payload: bytes) -> bytes:
    """The encoded batch of a record.

    Raises:
        ValueError: of a kind that this version does not know, or not what zlib packs.
    """
    if kind == FRAME:
        return payload
    if kind != BLOCK:
        raise ValueError(f"a record of unknown kind {kind}")
    try:
        unpacked = zlib.decompressobj().decompress(payload, MAX_RECORD_BYTES + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(unpacked) > MAX_RECORD_BYTES:
        raise ValueError(f"a record unpacks to more than {MAX_RECORD_BYTES >> 20} MiB")
    return unpacked


# --- batches ---------------------------------------------------------------------------------------------------------


def encode(batch: Batch, values: tuple[str, ...]) -> bytes:
    """A batch as bytes.

    Args:
        batch: each of its columns as long as its `times`.
        values: of the header.
    """
    return b"".join(_pieces(batch, values))


def _pieces(batch: Batch, values: tuple[str, ...]) -> list[bytes]:
    """The same in pieces: the heads, then for each value and byte the planes of all GPUs."""
    out = bytearray()
    planes: dict[tuple[int, int], list[bytes]] = {}

    def put(of: int, column: list[Any]) -> None:
        for place, plane in enumerate(_put_head(out, column)):
            planes.setdefault((of, place), []).append(plane)

    for number in (batch.first, batch.end, len(batch.times)):
        _put_varint(out, number)
    put(_TIMES, batch.times)
    put(_CLOCK, [None if value is None else value % _ALL for value in batch.clock])
    _put_varint(out, len(batch.gpus))
    for gpu in batch.gpus:
        kept = [(index, gpu[name]) for index, name in enumerate(values) if name in gpu]
        _put_varint(out, len(kept))
        for index, column in kept:
            _put_varint(out, index)
            put(_VALUES + index, column)
    who = {key: place for place, key in enumerate({(one.pid, one.name, one.owner): 0 for one in batch.processes})}
    _put_varint(out, len(batch.processes))
    rows = [
        (one.round, one.gpu, who[one.pid, one.name, one.owner], one.memory, one.busy, one.memory_busy)
        for one in batch.processes
    ]
    for place, row in enumerate(zip(*rows)):
        put(_PROCESSES + place, list(row))
    text = json.dumps({"who": list(who), "notes": batch.notes}, separators=(",", ":")).encode()
    _put_varint(out, len(text))
    return [bytes(out + text), *(b"".join(planes[key]) for key in sorted(planes))]


def decode(data: bytes, values: tuple[str, ...]) -> Batch:
    """The batch that `encode` made bytes of.

    Args:
        data: the bytes.
        values: of the header.

    Raises:
        ValueError: it did not.
    """
    source = _Source(data)
    try:
        first, end, count = source.varint(), source.varint(), source.varint()
        heads: list[_Head] = [source.head(_TIMES, count), source.head(_CLOCK, count)]
        places: list[dict[str, int]] = [{} for _ in range(min(source.varint(), len(data)))]
        for gpu in places:
            for _ in range(source.varint()):
                index = source.varint()
                gpu[values[index]] = len(heads)
                heads.append(source.head(_VALUES + index, count))
        rows = source.varint()
        first_row = len(heads)
        heads += [source.head(_PROCESSES + place, rows) for place in range(6 if rows else 0)]
        told = json.loads(source.take(source.varint()))
        columns = _columns(source, heads)
        processes = []
        who = [(int(pid), str(name), str(owner)) for pid, name, owner in told["who"]]
        for at, place, person, memory, busy, memory_busy in zip(*columns[first_row:]):
            pid, name, owner = who[person or 0]
            processes.append(GpuProcess(at or 0, place or 0, pid, memory, busy, memory_busy, name, owner))
        notes = [RecordingNote(int(at), str(kind), str(text)) for at, kind, text in told["notes"]]
        times = [time for time in columns[0] if time is not None]
        clock = [None if value is None else _signed(value) for value in columns[1]]
        gpus = [{name: columns[place] for name, place in gpu.items()} for gpu in places]
    except (IndexError, KeyError, TypeError, struct.error, RecursionError) as error:
        raise ValueError(f"not a batch of a recording: {error}") from error
    return Batch(first, end, times, clock, gpus, processes, notes)


def renumbered(data: bytes, first: int) -> bytes:
    """An encoded batch with its rounds numbered from `first` on; the rest is not looked at.

    Raises:
        ValueError: it is no batch.
    """
    source = _Source(data)
    try:
        before, end = source.varint(), source.varint()
    except IndexError as error:
        raise ValueError(str(error)) from error
    out = bytearray()
    _put_varint(out, first)
    _put_varint(out, first + end - before)
    return bytes(out) + source.rest()


def joined(batches: list[Batch]) -> Batch:
    """Many batches of one spool, in order, as one."""
    if len(batches) == 1:
        return batches[0]
    whole = Batch(batches[0].first, batches[-1].end)
    whole.gpus = [{} for _ in range(max(len(batch.gpus) for batch in batches))]
    for batch in batches:
        before, count = len(whole.times), len(batch.times)
        whole.times += batch.times
        whole.clock += batch.clock
        for gpu, more in zip(whole.gpus, batch.gpus):
            for name in more:
                if name not in gpu:
                    gpu[name] = [None] * before
        for place, gpu in enumerate(whole.gpus):
            more = batch.gpus[place] if place < len(batch.gpus) else {}
            for name, column in gpu.items():
                column += more.get(name) or [None] * count
        whole.processes += [one._replace(round=one.round + before) for one in batch.processes]
        whole.notes += batch.notes
    return whole


# --- numbers ---------------------------------------------------------------------------------------------------------


def _put_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)


def _put_head(out: bytearray, column: list[Any]) -> list[bytes]:
    """Write what is told of a column; its planes."""
    present = column
    head = 0
    bitmap = b""
    if None in column:
        present = [value for value in column if value is not None]
        if present:
            head = _SOME_MISSING
            bits = "".join(["0" if value is None else "1" for value in reversed(column)])
            bitmap = int(bits, 2).to_bytes((len(column) + 7) // 8, "little")
    if not present:
        out.append(_ALL_MISSING)
        return []
    how, first, planes = _numbers(present)
    out.append(head | how)
    out += bitmap
    _put_varint(out, first)
    return planes


def _numbers(present: list[int]) -> tuple[int, int, list[bytes]]:
    """How values are told, which one in full, and the numbers: noise to the least, what rises from one to another."""
    least, most = min(present), max(present)
    if least == most:
        return 0, least, []
    deltas = [after - before for before, after in zip(present, present[1:])]
    low, high = min(deltas), max(deltas)
    if most - least <= high - low:
        width = next(width for width in _CODES if most - least < 1 << 8 * width)
        numbers = array(_CODES[width].upper(), [value - least for value in present])
        return _TO_LEAST | width, least, _planes(numbers, width)
    if low < -_SIGN or high >= _SIGN:
        deltas = [_signed(delta % _ALL) for delta in deltas]
        low, high = -_SIGN, _SIGN - 1
    width = next(width for width in _CODES if max(high, ~low) < 1 << 8 * width - 1)
    return width, present[0], _planes(array(_CODES[width], deltas), width)


def _planes(numbers: array[int], width: int) -> list[bytes]:
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return [raw[place::width] for place in range(width)]


def _signed(value: int) -> int:
    return value - _ALL if value >= _SIGN else value


class _Source:
    """Takes numbers off the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = self._values = 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._at + size
        if end > len(self._data):
            raise IndexError("it is cut short")
        self._at, begin = end, self._at
        return self._data[begin:end]

    def rest(self) -> bytes:
        """All that is left."""
        return self._data[self._at :]

    def varint(self) -> int:
        """The next whole number."""
        number = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise IndexError("a number is too long")

    def head(self, of: int, count: int) -> _Head:
        """What is told of the next column, of so many values."""
        head = self.take(1)[0]
        self._values += count
        if count > MAX_ROWS or self._values > MAX_VALUES:  # what is equal takes no room: a wrong count would take all
            raise IndexError("too many rows")
        if head & _ALL_MISSING:
            return _Head(of, count, 0, 0, b"", 0)
        held = count
        bitmap = b""
        if head & _SOME_MISSING:
            bitmap = self.take((count + 7) // 8)
            held = bin(int.from_bytes(bitmap, "little")).count("1")
        return _Head(of, count, held, head, bitmap, self.varint())


class _Head(NamedTuple):
    """What is told of a column before its planes."""

    of: int
    rows: int
    held: int
    """Present values."""
    how: int
    bitmap: bytes
    """Empty where none, or all, are missing."""
    first: int

    @property
    def width(self) -> int:
        """Planes."""
        return self.how & 15

    @property
    def numbers(self) -> int:
        """Bytes of a plane."""
        return max(0, self.held if self.how & _TO_LEAST else self.held - 1)


def _columns(source: _Source, heads: list[_Head]) -> list[Column]:
    """The values of columns, whose planes follow."""
    planes: dict[tuple[int, int], bytes] = {}
    asked = sorted((head.of, byte, place) for place, head in enumerate(heads) for byte in range(head.width))
    for _, byte, place in asked:
        planes[place, byte] = source.take(heads[place].numbers)
    return [_column(head, [planes[place, byte] for byte in range(head.width)]) for place, head in enumerate(heads)]


def _column(head: _Head, planes: list[bytes]) -> Column:
    if head.held == 0:
        return [None] * head.rows
    values = _values(head, planes)
    if not head.bitmap:
        return values
    bits = bin(int.from_bytes(head.bitmap, "little") | 1 << head.rows)[:2:-1]
    column: Column = [None] * head.rows
    for place, value in zip(compress(range(head.rows), map("1".__eq__, bits)), values):
        column[place] = value
    return column


def _values(head: _Head, planes: list[bytes]) -> Column:
    width, first = head.width, head.first
    if width == 0:
        return [first] * head.held
    mixed = bytearray(width * head.numbers)
    for place, plane in enumerate(planes):
        mixed[place::width] = plane
    numbers = array(_CODES[width].upper() if head.how & _TO_LEAST else _CODES[width], bytes(mixed))
    if sys.byteorder == "big":
        numbers.byteswap()
    if head.how & _TO_LEAST:
        return [first + number for number in numbers]
    values = list(accumulate(numbers, initial=first))
    if min(values) < 0 or max(values) >= _ALL:
        values = [value % _ALL for value in values]
    return list(values)


# --- folders ---------------------------------------------------------------------------------------------------------


class Spool(NamedTuple):
    """One spool as it was when it was opened; its batches are read as they are asked for."""

    folder: Path
    header: Header

    def batches(self) -> Iterator[Batch]:
        """Minutes, then what is there of the seconds after them: each round once, in order.

        A file that ends within a record, or is wrong from there on, counts up to there.
        """
        last = _bytes(self.folder / OPEN)  # first: what is moved from here meanwhile is met in the blocks
        known = 0
        for path in block_files(self.folder):
            for batch in self._of(_bytes(path)):
                known = max(known, batch.end)
                yield batch
        for batch in self._of(last):
            if batch.end > known:
                yield batch

    def _of(self, data: bytes) -> Iterator[Batch]:
        with suppress(ValueError):
            for kind, payload in records(data)[0]:
                yield decode(unpack(kind, payload), self.header.values)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def block_files(folder: Path) -> list[Path]:
    """Files of finished minutes of a spool, oldest first."""
    return sorted(folder.glob(f"{BLOCKS}??????"))


def spools(recording: Path) -> list[Spool]:
    """The spools of a recording, oldest first; of a folder that is a spool itself, that one.

    Those of nodes beside the first are in folders with their names.

    One whose header cannot be read holds nothing yet, and is left out.
    """
    own = _spool(recording)
    paths = [path for place in ("", "*/") for path in sorted(recording.glob(f"{place}[0-9][0-9][0-9]"))]
    found = [_spool(path) for path in paths] if own is None else [own]
    return [spool for spool in found if spool is not None]


def _spool(folder: Path) -> Spool | None:
    try:
        with (folder / HEADER).open(encoding="utf-8") as file:
            return Spool(folder, Header.from_json(file.read(MAX_HEADER_BYTES)))
    except (OSError, ValueError):
        return None
