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
                          header), place in `who`, and as in `PROCESS_VALUES`
    varint length, JSON   {"who": [[pid, name, owner], …], "notes": [[µs, kind, text], …]}

and a column of n whole numbers from 0 to 2⁶⁴ - 1, of which each may be missing, is

    u8 head               bits 0-3: bytes of one number below (0: all are equal to the first; 1, 2, 4, 8) · bit 4:
                          some are missing · bit 5: all are, and nothing follows · bit 6: differences to the least
    bitmap                if some are missing: a bit a value, 1 for present, lowest bit first
    varint                the first that is present, or the least
    numbers               differences from each present value to the next, little endian two's complement, modulo 2⁶⁴;
                          with bit 6: of each to the least, unsigned. First the lowest bytes of all, then the next …:
                          what is alike stands together, as zlib wants it

Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.wire.recording import Batch, Header, Note, Process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from remuda.wire.recording import Column

HEADER, OPEN, BLOCKS, STATUS = "header.json", "open", "blocks-", "status.json"
FRAME, BLOCK = 1, 2
"""Kinds of records."""
MAX_RECORD_BYTES = 256 << 20
_RECORD = struct.Struct("<IIB")
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_SOME_MISSING, _ALL_MISSING, _TO_LEAST = 0x10, 0x20, 0x40
_ALL = 1 << 64
_SIGN = 1 << 63


# --- records ---------------------------------------------------------------------------------------------------------


def frame(batch: Batch, values: tuple[str, ...]) -> bytes:
    """The record of one second, to be added to `open`."""
    return record(FRAME, encode(batch, values))


def block(batch: Batch, values: tuple[str, ...]) -> bytes:
    """The record of one minute, to be added to `blocks-…`."""
    # Little memory is wanted: new codes every 256 bytes fit planes of bytes, each of another kind.
    packer = zlib.compressobj(6, zlib.DEFLATED, 15, 2, zlib.Z_FILTERED)
    return record(BLOCK, packer.compress(encode(batch, values)) + packer.flush())


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
        return zlib.decompress(payload)
    except zlib.error as error:
        raise ValueError(str(error)) from error


# --- batches ---------------------------------------------------------------------------------------------------------


def encode(batch: Batch, values: tuple[str, ...]) -> bytes:
    """A batch as bytes.

    Args:
        batch: each of its columns as long as its `times`.
        values: of the header.
    """
    out = bytearray()
    for number in (batch.first, batch.end, len(batch.times)):
        _put_varint(out, number)
    _put_column(out, batch.times)
    _put_column(out, [None if value is None else value % _ALL for value in batch.clock])
    _put_varint(out, len(batch.gpus))
    for gpu in batch.gpus:
        kept = [(index, gpu[name]) for index, name in enumerate(values) if name in gpu]
        _put_varint(out, len(kept))
        for index, column in kept:
            _put_varint(out, index)
            _put_column(out, column)
    who = {key: place for place, key in enumerate({(one.pid, one.name, one.owner): 0 for one in batch.processes})}
    _put_varint(out, len(batch.processes))
    rows = [
        (one.round, one.gpu, who[one.pid, one.name, one.owner], one.memory, one.busy, one.memory_busy)
        for one in batch.processes
    ]
    for row in zip(*rows):
        _put_column(out, list(row))
    text = json.dumps({"who": list(who), "notes": batch.notes}, separators=(",", ":")).encode()
    _put_varint(out, len(text))
    return bytes(out + text)


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
        times = [time for time in source.column(count) if time is not None]
        clock = [None if value is None else _signed(value) for value in source.column(count)]
        gpus: list[dict[str, Column]] = [{} for _ in range(min(source.varint(), len(data)))]
        for gpu in gpus:
            for _ in range(source.varint()):
                name = values[source.varint()]
                gpu[name] = source.column(count)
        rows = source.varint()
        columns = [source.column(rows) for _ in range(6)] if rows else []
        told = json.loads(source.take(source.varint()))
        who = [(int(pid), str(name), str(owner)) for pid, name, owner in told["who"]]
        processes = []
        for at, place, person, memory, busy, memory_busy in zip(*columns):
            pid, name, owner = who[person or 0]
            processes.append(Process(at or 0, place or 0, pid, memory, busy, memory_busy, name, owner))
        notes = [Note(int(at), str(kind), str(text)) for at, kind, text in told["notes"]]
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


def _put_column(out: bytearray, column: list[Any]) -> None:
    present = column
    head = 0
    bitmap = b""
    if None in column:
        present = [value for value in column if value is not None]
        if present:
            head = _SOME_MISSING
            bits = sum(1 << place for place, value in enumerate(column) if value is not None)
            bitmap = bits.to_bytes((len(column) + 7) // 8, "little")
    if not present:
        out.append(_ALL_MISSING)
        return
    how, first, numbers = _numbers(present)
    out.append(head | how)
    out += bitmap
    _put_varint(out, first)
    out += numbers


def _numbers(present: list[int]) -> tuple[int, int, bytes]:
    """How values are told, which one in full, and the numbers: noise to the least, what rises from one to another."""
    least, most = min(present), max(present)
    if least == most:
        return 0, least, b""
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


def _planes(numbers: array[int], width: int) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return raw if width == 1 else b"".join(raw[place::width] for place in range(width))


def _signed(value: int) -> int:
    return value - _ALL if value >= _SIGN else value


class _Source:
    """Takes numbers off the front of bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

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

    def column(self, count: int) -> Column:
        """The next column of so many values."""
        head = self.take(1)[0]
        if head & _ALL_MISSING:
            if count > len(self._data) * 64 + 64:  # what is all missing takes no room: a wrong count would take all
                raise IndexError("too many rows")
            return [None] * count
        held = count
        bitmap = b""
        if head & _SOME_MISSING:
            bitmap = self.take((count + 7) // 8)
            held = bin(int.from_bytes(bitmap, "little")).count("1")
        first = self.varint()
        values = self._values(first, held, head)
        if not bitmap:
            return values
        left = iter(values)
        return [next(left) if bitmap[place >> 3] >> (place & 7) & 1 else None for place in range(count)]

    def _values(self, first: int, held: int, head: int) -> Column:
        width = head & 15
        if width == 0:
            if held > 1 << 26:
                raise IndexError("too many rows")
            return [first] * held
        count = held if head & _TO_LEAST else held - 1
        raw = self.take(count * width)
        if width > 1:
            mixed = bytearray(len(raw))
            for place in range(width):
                mixed[place::width] = raw[place * count : (place + 1) * count]
            raw = bytes(mixed)
        numbers = array(_CODES[width].upper() if head & _TO_LEAST else _CODES[width], raw)
        if sys.byteorder == "big":
            numbers.byteswap()
        if head & _TO_LEAST:
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

    One whose header cannot be read holds nothing yet, and is left out.
    """
    own = _spool(recording)
    found = [_spool(path) for path in sorted(recording.glob("[0-9][0-9][0-9]"))] if own is None else [own]
    return [spool for spool in found if spool is not None]


def _spool(folder: Path) -> Spool | None:
    try:
        return Spool(folder, Header.from_json((folder / HEADER).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
