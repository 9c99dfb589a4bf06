"""Spools: what is written is read, each round once, up to the first byte that is wrong."""

from __future__ import annotations

import json
import random
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.wire import spool
from remuda.wire.recording import VALUES, Batch, Gpu, GpuProcess, Header, RecordingNote, Status
from remuda.wire.spool import BLOCKS, HEADER, OPEN, block, decode, encode, frame, joined, records, spools, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from remuda.wire.recording import Column

NAMES = tuple(value.name for value in VALUES)
GPUS = (Gpu(0, "GPU-a", "H100", "0000:3b:00", 80 << 30), Gpu(1, "GPU-b", is_mig=True))
HEAD = Header("boot", "machine", "n1", 1_700_000_000_000_000_000, 5_000_000_000, 100_000, GPUS, token="t")
NUMBERS = st.integers(0, 2**64 - 1)


def test_what_unpacks_to_more_than_a_record_is_none() -> None:
    bomb = zlib.compress(b"\0" * ((256 << 20) + 1), 1)
    assert len(bomb) < 2 << 20
    with pytest.raises(ValueError, match="unpacks to more than 256 MiB"):
        unpack(spool.BLOCK, bomb)


def test_columns_of_equal_values_are_counted_as_they_are_in_memory() -> None:
    column: Column = [5] * (1 << 20)
    gpus = [dict.fromkeys(NAMES[:8], column)] * 8
    data = encode(Batch(0, 1, [5] * (1 << 20), [None] * (1 << 20), gpus), NAMES)
    assert len(data) < 1000
    with pytest.raises(ValueError, match="too many rows"):
        decode(data, NAMES)


def second(number: int, per: int = 3) -> Batch:
    """Rounds of one second, all of them different."""
    rounds = range(number * per, number * per + per)
    batch = Batch(rounds[0], rounds[-1] + 1, [1_000_000 + round_ * 100_000 for round_ in rounds])
    batch.clock = [-7, *[None] * (per - 1)]
    energy = [10**12 + 31_000 * round_ + round_ * round_ for round_ in rounds]
    busy = [None if round_ % 5 == 2 else round_ % 101 for round_ in rounds]
    batch.gpus = [{"energy": list(energy), "busy": list(busy)}, {}]
    batch.processes = [GpuProcess(0, 0, 4000 + number, 1 << 30, None, 3, "python", "task:t")]
    batch.notes = [RecordingNote(1_000_000, "gap", f"second {number}")]
    return batch


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    count = draw(st.integers(0, 12))
    column = st.lists(st.none() | NUMBERS, min_size=count, max_size=count)
    gpus = draw(st.lists(st.dictionaries(st.sampled_from(NAMES), column, max_size=4), max_size=3))
    kept = [{name: seen for name, seen in gpu.items() if set(seen) - {None}} for gpu in gpus]
    times = draw(st.lists(NUMBERS, min_size=count, max_size=count))
    clock = draw(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count))
    share = st.none() | NUMBERS
    people = st.builds(
        GpuProcess, st.integers(0, 99), st.integers(0, 7), st.integers(1, 2**22), share, share, share,
        st.text(max_size=3), st.text(max_size=3),
    )  # fmt: skip
    notes = st.builds(RecordingNote, st.integers(0, 2**60), st.text(max_size=3), st.text(max_size=5))
    few = draw(st.lists(people, max_size=4)), draw(st.lists(notes, max_size=2))
    return Batch(draw(NUMBERS), draw(NUMBERS), times, clock, kept, *few)


@settings(max_examples=30)
@given(batches())
def test_what_is_encoded_is_decoded(batch: Batch) -> None:
    assert decode(encode(batch, NAMES), NAMES) == batch
    ((kind, payload),) = records(block(batch, NAMES))[0]
    assert decode(unpack(kind, payload), NAMES) == batch


@given(st.binary(max_size=200), st.integers(0, 500), st.integers(0, 255))
def test_no_bytes_raise_but_what_is_said(raw: bytes, place: int, byte: int) -> None:
    good = bytearray(encode(second(1), NAMES))
    good[place % len(good)] = byte
    for data in (raw, bytes(good)):
        with suppress(ValueError):
            decode(data, NAMES)


def test_seconds_joined_are_a_minute() -> None:
    seconds = [second(number) for number in range(4)]
    seconds[2].gpus = [{"power": [1, 2, 3]}, {"busy": [4, 5, 6]}]
    whole = joined(seconds)
    assert (whole.first, whole.end, len(whole.times)) == (0, 12, 12)
    assert whole.gpus[0]["power"] == [None] * 6 + [1, 2, 3] + [None] * 3
    assert whole.gpus[0]["energy"] == [*seconds[0].gpus[0]["energy"], *seconds[1].gpus[0]["energy"], *[None] * 3,
                                       *seconds[3].gpus[0]["energy"]]  # fmt: skip
    assert [one.round for one in whole.processes] == [0, 3, 6, 9]
    assert len(whole.notes) == 4


def written(folder: Path, blocks: list[list[int]], last: list[int]) -> Path:
    """A recording of one spool with these seconds in its minutes, and these in the open one."""
    place = folder / "000"
    place.mkdir()
    (place / HEADER).write_text(HEAD.to_json())
    for number, minute in enumerate(blocks):
        (place / f"{BLOCKS}{number:06}").write_bytes(block(joined([second(one) for one in minute]), NAMES))
    (place / OPEN).write_bytes(b"".join(frame(second(one), NAMES) for one in last))
    return place


def seconds_in(recording: Path) -> list[str]:
    (found,) = spools(recording)
    assert found.header == HEAD
    return [note.text.removeprefix("second ") for batch in found.batches() for note in batch.notes]


def test_each_second_is_read_once_although_its_writer_died_between_block_and_open(tmp_path: Path) -> None:
    written(tmp_path, [[0, 1], [2, 3, 4]], [2, 3, 4])
    assert seconds_in(tmp_path) == list("01234")
    assert seconds_in(tmp_path / "000") == list("01234")


def test_a_file_cut_at_any_byte_is_read_up_to_there(tmp_path: Path) -> None:
    place = written(tmp_path, [[0, 1]], [2, 3, 4])
    whole = (place / OPEN).read_bytes()
    ends = [len(whole[:0]) + sum(len(frame(second(one), NAMES)) for one in range(2, 2 + n)) for n in range(4)]
    for cut in range(len(whole) + 1):  # at each
        (place / OPEN).write_bytes(whole[:cut])
        assert len(seconds_in(tmp_path)) == 2 + sum(end <= cut for end in ends[1:])
        assert records(whole[:cut])[1] == max(end for end in ends if end <= cut)
    blocked = place / f"{BLOCKS}000000"
    minute = blocked.read_bytes()
    for cut in range(0, len(minute), 7):
        blocked.write_bytes(minute[:cut])
        assert seconds_in(tmp_path) == list("234")


def test_a_wrong_byte_ends_what_is_read(tmp_path: Path) -> None:
    place = written(tmp_path, [], [0, 1, 2])
    whole = bytearray((place / OPEN).read_bytes())
    whole[len(frame(second(0), NAMES)) + 20] ^= 4
    (place / OPEN).write_bytes(whole)
    assert seconds_in(tmp_path) == ["0"]


def test_what_has_no_header_holds_nothing(tmp_path: Path) -> None:
    assert spools(tmp_path) == []
    assert spools(tmp_path / "absent") == []
    (tmp_path / "000").mkdir()
    (tmp_path / "000" / HEADER).write_text('{"version": 99}')
    assert spools(tmp_path) == []


def test_headers_and_status_survive_newer_writers() -> None:
    newer = {**json.loads(HEAD.to_json()), "colour": "red"}
    newer["gpus"][0]["shape"] = "round"
    assert Header.from_json(json.dumps(newer)) == HEAD
    now = Status("recording", 12.5, rounds=4, gpus=({"busy": 4},))
    assert (
        Status.from_json(json.dumps({**json.loads(now.to_json()), "new": 1}))._replace(gpus=now.gpus, faults=()) == now
    )


@pytest.mark.parametrize("text", ["[]", "{}", '{"version": 1}', '{"version": 1, "gpus": 3}', "x", '{"state": 3}'])
def test_what_is_no_header_and_no_status(text: str) -> None:
    for kind in (Header, Status):
        with pytest.raises(ValueError, match=r"not the|Expecting|is a JSON object|missing"):
            kind.from_json(text)


def busy_minute(dice: random.Random, gpus: int, count: int = 600) -> Batch:
    """At 10 Hz: power, energy, traffic, clocks and shares of time change in every sample, heat and memory now and then.

    The other values are there, too, as they are with most.
    """
    moving: dict[str, Callable[[int], int]] = {
        "power": lambda _: dice.randrange(280_000, 320_000),
        "energy": lambda last: last + dice.randrange(28_000, 32_000),
        "pcie_sent": lambda last: last + dice.randrange(50_000_000, 70_000_000),
        "pcie_received": lambda last: last + dice.randrange(90_000_000, 110_000_000),
        "sm_clock": lambda _: 1700 + 15 * dice.randrange(20),
        "busy": lambda _: dice.randrange(90, 101),
        "memory_busy": lambda _: dice.randrange(40, 60),
        "temperature": lambda last: (last or 60) + (dice.random() < 0.05),
        "memory_temperature": lambda last: (last or 70) + (dice.random() < 0.05),
        "memory": lambda last: (last or 60 << 30) + (2 << 20) * (dice.random() < 0.05),
    }
    minute = Batch(0, count, [10**10 + 100_000 * place + dice.randrange(90) for place in range(count)])
    minute.clock = [10**15 if place % 10 == 0 else None for place in range(count)]
    for _ in range(gpus):
        seen: dict[str, Column] = {value.name: [0] * count for value in VALUES}
        for name, move in moving.items():
            now = 0
            seen[name] = [now := move(now) for _ in range(count)]
        for value in VALUES:
            if value.is_slow:
                seen[value.name] = [17 if place % 10 == 0 else None for place in range(count)]
        minute.gpus.append(seen)
    return minute


def test_ten_values_that_change_in_every_sample_take_twelve_bytes() -> None:
    minute = busy_minute(random.Random(24), 8)
    assert len(block(minute, NAMES)) / (600 * 8) <= 12


def test_the_format_is_written_down_where_it_is_made() -> None:
    assert "zlib" in str(spool.__doc__)
    assert len(set(NAMES)) == len(NAMES) < 128
