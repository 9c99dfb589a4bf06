"""The framed log: whatever is cut off its end or damaged within, all other records are read back."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import RemudaError
from remuda.batch.output.log import HEAD_BYTES, LogWriter, Scan, read_many, salvage, scan

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS = [b"a", b"bc" * 10, b"\0\0\0\0", b"last one"]


def write(path: Path, payloads: list[bytes]) -> list[int]:
    log = LogWriter(path, 0)
    offsets = [log.append(payload) for payload in payloads]
    log.flush()
    log.sync()
    log.close()
    return offsets


def test_torn_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "log"
    offsets = write(path, PAYLOADS)
    whole = path.read_bytes()
    ends = [offset + HEAD_BYTES + len(payload) for offset, payload in zip(offsets, PAYLOADS, strict=True)]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        expected = [payload for payload, end in zip(PAYLOADS, ends, strict=True) if end <= length]
        assert [payload for _, payload in scan(path)] == expected


def test_flipped_at_every_bit_costs_the_record_that_has_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    offsets = write(path, PAYLOADS)
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
            hit = max((n for n, offset in enumerate(offsets) if offset <= at), default=-1)
            found = Scan(path)
            payloads = [payload for _, payload in found]
            assert payloads in (PAYLOADS, [item for n, item in enumerate(PAYLOADS) if n != hit])
            # A mark is no part of the record: it can be lost alone. What looks like a torn tail is no damage.
            assert found.damaged == 1 or hit == len(PAYLOADS) - 1
            assert found.lost == len(PAYLOADS) - len(payloads) or found.end == offsets[-1]


@settings(deadline=None)
@given(
    payloads=st.lists(st.binary(min_size=1, max_size=300), max_size=20),
    hits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=40)), min_size=1, max_size=4),
    cut=st.floats(0.5, 1),
)
def test_damage_costs_no_record_that_it_did_not_touch(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], hits: list[tuple[float, bytes]], cut: float
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    offsets = write(path, payloads)
    raw, good = bytearray(path.read_bytes()), bytearray(path.read_bytes())
    for where, junk in hits:
        at = int(where * (len(raw) - 1))
        raw[at : at + len(junk)] = junk[: len(raw) - at]
    del raw[int(cut * len(raw)) :]
    path.write_bytes(raw)
    ends = [offset + HEAD_BYTES + len(payload) for offset, payload in zip(offsets, payloads, strict=True)]
    untouched = {
        start: payload
        for start, end, payload in zip(offsets, ends, payloads, strict=True)
        if raw[start:end] == good[start:end]
    }
    found = dict(scan(path))
    assert untouched.items() <= found.items()
    assert found.items() <= dict(zip(offsets, payloads, strict=True)).items(), "nothing is read that was not written"


def test_a_damaged_length_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    offsets = write(path, [b"x" * 1000] * 50)
    raw = bytearray(path.read_bytes())
    for offset in offsets[::2]:
        raw[offset + 11] = 4
    path.write_bytes(raw)
    with path.open("ab") as file:
        file.truncate(80 << 20)
    tracemalloc.start()
    found = Scan(path)
    assert len(list(zip(range(25), found, strict=False))) == 25
    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()


def test_a_salvaged_log_is_whole_and_the_damaged_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.log"
    offsets = write(path, PAYLOADS)
    raw = bytearray(path.read_bytes())
    raw[offsets[1] + HEAD_BYTES] ^= 1
    path.write_bytes(raw)
    kept = salvage(path)
    assert kept == tmp_path / "results.damaged-1.log"
    assert kept.read_bytes() == raw
    again = Scan(path)
    assert [payload for _, payload in again] == [PAYLOADS[0], *PAYLOADS[2:]]
    assert (again.damaged, again.lost) == (0, 0)
    path.write_bytes(raw)
    assert salvage(path).name == "results.damaged-2.log"
    assert sorted(item.name for item in tmp_path.iterdir()) == [
        "results.damaged-1.log",
        "results.damaged-2.log",
        "results.log",
    ]


def test_zeroed_tail_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, PAYLOADS)
    with path.open("ab") as file:
        file.write(bytes(4096))
    assert len(list(scan(path))) == len(PAYLOADS)


@settings(deadline=None)
@given(payloads=st.lists(st.binary(min_size=1, max_size=300), max_size=20), tail=st.binary(max_size=20))
def test_written_is_read_and_appending_cuts_the_tail(
    tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes], tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    offsets = write(path, payloads)
    end = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    log = LogWriter(path, end)
    log.append(b"next")
    log.flush()
    assert [payload for _, payload in log.read_many(offsets)] == payloads
    log.close()
    assert [payload for _, payload in scan(path)] == [*payloads, b"next"]


def test_frames_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "log"
    payloads = [b"x" * 3_000_000, b"y", b"z" * 1_048_560, b"w" * 20_000_000]
    offsets = write(path, payloads)
    assert [payload for _, payload in scan(path)] == payloads
    with path.open("rb") as file:
        assert [payload for _, payload in read_many(file.fileno(), reversed(offsets))] == payloads[::-1]


def test_damage_is_reported_when_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    offsets = write(path, PAYLOADS)
    raw = bytearray(path.read_bytes())
    raw[offsets[1] + HEAD_BYTES + 1] ^= 1
    path.write_bytes(raw)
    with path.open("rb") as file, pytest.raises(RemudaError, match="damaged"):
        list(read_many(file.fileno(), offsets))


def test_frame_is_mark_number_length_crc_payload(tmp_path: Path) -> None:
    log = LogWriter(tmp_path / "log", 0, number=7)
    log.append(b"abc")
    log.flush()
    assert (tmp_path / "log").read_bytes()[8:] == bytes.fromhex("f5524d440700000003000000222631b9") + b"abc"
