"""The framed log: whatever is cut off its end, what lies before is read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.base.errors import RemudaError
from remuda.batch.log import MAGIC, LogWriter, frame, read_many, scan

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
    ends = [offset + 8 + len(payload) for offset, payload in zip(offsets, PAYLOADS, strict=True)]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        expected = [payload for payload, end in zip(PAYLOADS, ends, strict=True) if end <= length]
        assert [payload for _, payload in scan(path)] == expected


def test_flipped_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write(path, PAYLOADS)
    whole = path.read_bytes()
    for at in range(len(MAGIC), len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        found = [payload for _, payload in scan(path)]
        assert found == PAYLOADS[: len(found)]
        assert len(found) < len(PAYLOADS)


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
    payloads = [b"x" * 3_000_000, b"y", b"z" * 1_048_568]
    offsets = write(path, payloads)
    assert [payload for _, payload in scan(path)] == payloads
    with path.open("rb") as file:
        assert [payload for _, payload in read_many(file.fileno(), reversed(offsets))] == payloads[::-1]


def test_damage_is_reported_when_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    offsets = write(path, PAYLOADS)
    raw = bytearray(path.read_bytes())
    raw[offsets[1] + 9] ^= 1
    path.write_bytes(raw)
    with path.open("rb") as file, pytest.raises(RemudaError, match="damaged"):
        list(read_many(file.fileno(), offsets))


def test_frame_is_length_crc_payload() -> None:
    assert frame(b"abc") == bytes.fromhex("03000000c2412435") + b"abc"
