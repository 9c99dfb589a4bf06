"""The recorder's pure parts: bytes of unions, whose process it is, which GPUs, which is broken, thinning."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.node.gpu import decoding, faults
from remuda.node.gpu.decoding import (
    DOUBLE,
    LONG_LONG,
    LOST,
    RESET_REQUIRED,
    SHORT,
    SIGNED,
    SIGNED_LONG_LONG,
    UNSIGNED,
)
from remuda.node.gpu.owners import Owner, Owners, owner_of
from remuda.node.gpu.visible import chosen
from remuda.node.recorder.spooling import MINUTES_A_FILE, Spooling, new_folder
from remuda.node.recorder.thinning import kept_places, thinned
from remuda.node.recorder.writer import Recorder
from remuda.wire.recording import VALUES, Batch, Gpu, GpuProcess, Header, RecordingNote
from remuda.wire.spool import encode, joined, spools

if TYPE_CHECKING:
    from pathlib import Path

NAMES = tuple(value.name for value in VALUES)
DIRT = 0xA5A5A5A5_00000000
ONE = Gpu(3, "GPU-aa", "H100", "0000:3b:00")


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        pytest.param(UNSIGNED, DIRT | 90_000, 90_000, id="four bytes beside dirt"),
        pytest.param(SHORT, DIRT | 7, 7, id="two bytes"),
        pytest.param(LONG_LONG, 2**64 - 1, 2**64 - 1, id="all eight"),
        pytest.param(SIGNED, DIRT | 35, 35, id="signed"),
        pytest.param(SIGNED, DIRT | (2**32 - 5), None, id="below nothing"),
        pytest.param(SIGNED_LONG_LONG, 2**63, None, id="far below"),
        pytest.param(DOUBLE, int.from_bytes(struct.pack("<d", 12.6), "little"), 13, id="a double"),
        pytest.param(DOUBLE, int.from_bytes(struct.pack("<d", float("nan")), "little"), None, id="no number"),
        pytest.param(99, 5, None, id="a type of a newer driver"),
    ],
)
def test_numbers_in_unions(kind: int, raw: int, expected: int | None) -> None:
    assert decoding.number(kind, raw) == expected


def test_shares_sizes_and_addresses() -> None:
    assert [decoding.share(value) for value in (0.0, 33.339, 100.0, -1.0, float("nan"))] == [0, 3334, 10000, None, None]
    assert [decoding.pci(text) for text in ("00000000:3B:00.0", "00010000:3B:00.0", "")] == [
        "0000:3b:00",
        "0000:3b:00",
        "",
    ]


HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("environ", "cgroup", "expected"),
    [
        pytest.param(b"A=1\0REMUDA_TOKEN=w-r-0\0", f"0::/docker/{HEX}", "task:w-r-0", id="a task in a container"),
        pytest.param(b"MY_REMUDA_TOKEN=x\0", "", "", id="another variable"),
        pytest.param(b"REMUDA_TOKEN=\0", "0::/user.slice", "", id="an empty token"),
        pytest.param(None, f"0::/docker/{HEX}\n", "container:0123456789ab", id="docker"),
        pytest.param(
            None, f"1:cpu:/kubepods/pod1/cri-containerd-{HEX}.scope", "container:0123456789ab", id="containerd"
        ),
        pytest.param(None, f"0::/machine.slice/libpod-{HEX}.scope", "container:0123456789ab", id="podman"),
        pytest.param(None, "", "", id="another user's"),
    ],
)
def test_whose_a_process_is(environ: bytes | None, cgroup: str, expected: str) -> None:
    assert owner_of(environ, cgroup) == expected


def test_a_process_is_asked_for_once_while_it_is_there(tmp_path: Path) -> None:
    place = tmp_path / "7"
    place.mkdir()
    (place / "environ").write_bytes(b"REMUDA_TOKEN=a\0")
    (place / "comm").write_text("train\n")
    owners = Owners(str(tmp_path))
    assert owners.of({7, 8}) == {7: Owner("train", "task:a"), 8: Owner("", "")}
    (place / "environ").write_bytes(b"REMUDA_TOKEN=b\0")
    assert owners.of({7})[7].owner == "task:a"
    owners.of(set())
    assert owners.of({7})[7].owner == "task:b"


FOUR = [Gpu(index, f"GPU-{letter}{letter}") for index, letter in ((0, "a"), (1, "b"), (2, "c"), (5, "d"))]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        pytest.param({}, [0, 1, 2, 5], id="all"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "2,0"}, [0, 2], id="numbers"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "3"}, [5], id="numbers count what this process may use"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-cc,GPU-a"}, [0, 2], id="UUIDs, also their beginnings"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1,9,0"}, [1], id="nothing after an invalid entry"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, [], id="none"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "-1"}, [], id="none, in another way"),
        pytest.param({"SLURM_JOB_GPUS": "1-2"}, [1, 2], id="a span of Slurm's"),
        pytest.param({"SLURM_JOB_GPUS": "1-2", "CUDA_VISIBLE_DEVICES": "0"}, [0], id="CUDA's before Slurm's"),
    ],
)
def test_which_gpus_are_given(env: dict[str, str], expected: list[int]) -> None:
    found, why = chosen(FOUR, env)
    assert [gpu.index for gpu in found] == expected
    assert bool(why) == (not expected)


def test_one_that_does_not_answer_hides_no_other() -> None:
    gpus = [Gpu(0, ""), *FOUR[1:]]
    assert [gpu.index for gpu in chosen(gpus, {"CUDA_VISIBLE_DEVICES": "GPU-aa,GPU-bb"})[0]] == [1]


def test_parts_of_a_gpu_stand_for_it() -> None:
    gpus = [Gpu(0, "GPU-aa", is_mig=True), Gpu(1, "GPU-bb")]
    for word in ("MIG-0123", "MIG-GPU-aa/1/0"):
        assert [gpu.index for gpu in chosen(gpus, {"CUDA_VISIBLE_DEVICES": word})[0]] == [0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, [], id="nothing is told"),
        pytest.param({"ecc_corrected": 900, "remapped_uncorrected": 1}, [], id="corrected"),
        pytest.param({"ecc_uncorrected": 2}, [("info", "ecc-uncorrected")], id="a count is information"),
        pytest.param({"remap_pending": 1}, [("info", "remap-pending")], id="pending"),
        pytest.param({"remap_failed": 1}, [("node", "remap-failed")], id="failed"),
        pytest.param({"ecc_uncorrected": 2, "recovery": 1}, [("info", "ecc-uncorrected"), ("node", "recovery-reset")],
                     id="until the driver says reset"),
        pytest.param({"recovery": 2}, [("node", "recovery-reboot")], id="reboot"),
        pytest.param({"recovery": 17}, [("info", "recovery-17")], id="what a newer driver says blames nobody"),
    ],
)  # fmt: skip
def test_what_values_say_of_a_gpu(values: dict[str, int], expected: list[tuple[str, str]]) -> None:
    found = faults.of_values(ONE, values, 5.0)
    assert [(fault.kind, fault.name) for fault in found] == expected
    assert {(fault.device, fault.at) for fault in found} <= {("0000:3b:00", 5.0)}


def test_what_codes_and_events_say_of_a_gpu() -> None:
    codes = {code: [fault.name for fault in faults.of_code(ONE, code, 0)] for code in (0, 3, LOST, RESET_REQUIRED)}
    assert codes == {0: [], 3: [], LOST: ["gpu-lost"], RESET_REQUIRED: ["gpu-reset-required"]}
    kinds = {number: faults.of_xid(ONE, number, 0).kind for number in (13, 31, 43, 45, 63, 79, 94, 9999)}
    assert kinds == {
        **dict.fromkeys((13, 31, 43, 45), "application"), 63: "info", 79: "node", 94: "ambiguous", 9999: "info",
    }  # fmt: skip
    assert faults.of_silence(Gpu(4, ""), 0).device == "4"


# --- thinning, and the bound of a spool ------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=60, unique=True).map(sorted))
def test_one_round_a_second_stays(times: list[int]) -> None:
    kept = kept_places(times)
    seconds = [times[place] // 1_000_000 for place in kept]
    assert seconds == sorted({at // 1_000_000 for at in times})
    assert kept[0] == 0


def test_what_is_told_once_a_second_stays_whatever_round_it_was_told_in() -> None:
    batch = Batch(10, 14, [1_000_000, 1_500_000, 2_000_000, 2_500_000], [None, -4, None, None])
    batch.gpus = [{"energy": [1, 2, 3, 4], "limits": [None, 8, None, None]}]
    batch.processes = [GpuProcess(1, 0, 5), GpuProcess(3, 0, 6)]
    batch.notes = [RecordingNote(1, "gap", "x")]
    small = thinned(batch)
    assert (small.first, small.end, small.times, small.clock) == (10, 14, [1_000_000, 2_000_000], [-4, None])
    assert small.gpus == [{"energy": [1, 3], "limits": [8, None]}]
    assert [(one.round, one.pid) for one in small.processes] == [(0, 5), (1, 6)]
    assert small.notes == batch.notes
    assert thinned(small) == small


def spooled(folder: Path, max_bytes: int, minutes: int) -> Spooling:
    header = Header("b", "m", "n", 0, 0, 100_000, (ONE,))
    spooling = Spooling(new_folder(folder), header, max_bytes)
    at = 0
    for _ in range(minutes):
        for _ in range(3):  # three frames of 20 s stand for a minute
            times = [at + place * 100_000 for place in range(200)]
            at += 20_000_000
            energy: list[int | None] = [place * place for place in times]
            spooling.add(encode(Batch(0, 200, times, [None] * 200, [{"energy": energy}]), NAMES))
    return spooling


def test_a_spool_at_its_bound_thins_its_oldest_minutes_and_then_gives_them_up(tmp_path: Path) -> None:
    hours = 3
    whole = spooled(tmp_path / "a", 1 << 40, hours * MINUTES_A_FILE)
    assert (whole.thinned, whole.end) == (0, hours * 60 * 600)
    bounded = spooled(tmp_path / "b", whole.size_bytes * 4 // 5, hours * MINUTES_A_FILE)
    assert bounded.thinned == MINUTES_A_FILE
    assert bounded.size_bytes <= whole.size_bytes * 4 // 5
    (spool,) = spools(tmp_path / "b")
    sizes = [len(batch.times) for batch in spool.batches()]
    assert sizes == [60] * 60 + [600] * 120
    tight = spooled(tmp_path / "c", whole.size_bytes // 50, hours * MINUTES_A_FILE)
    assert tight.dropped > 0


def test_minutes_that_cannot_be_closed_are_given_up_before_they_fill_memory_and_disk(tmp_path: Path) -> None:
    """Without a free inode `open` takes more, and no file of blocks can be made."""
    header = Header("b", "m", "n", 0, 0, 100_000, (ONE,))
    spooling = Spooling(new_folder(tmp_path), header, 1 << 40)
    (spooling.folder / "blocks-000000").mkdir()
    largest = 0
    for second in range(3600):
        times = [second * 1_000_000 + place * 100_000 for place in range(10)]
        assert spooling.add(encode(Batch(0, 10, times, [None] * 10, [{"energy": list(times)}]), NAMES)) is not None
        largest = max(largest, (spooling.folder / "open").stat().st_size)
    assert largest <= 310 * (spooling.folder / "open").stat().st_size / max(1, len(spooling._minute))
    assert len(spooling._minute) <= 310
    assert spooling.lost == 36_000 - 10 * len(spooling._minute)
    assert spooling.late == "Is a directory"
    (spooling.folder / "blocks-000000").rmdir()
    spooling.close(RecordingNote(2, "end", "over"))
    assert spooling.late == ""


def test_every_second_is_in_a_block_at_the_end_and_notes_have_numbers_of_their_own(tmp_path: Path) -> None:
    spooling = spooled(tmp_path, 1 << 40, 1)
    spooling.note(RecordingNote(1, "gap", "x"))
    spooling.add(encode(Batch(0, 1, [60_100_000], [None], [{"busy": [3]}]), NAMES))
    spooling.close(RecordingNote(2, "end", "over"))
    spooling.close(RecordingNote(3, "end", "again"))
    (spool,) = spools(tmp_path)
    batches = list(spool.batches())
    assert [(batch.first, batch.end) for batch in batches] == [(0, 600), (600, 603)]
    assert [note.text for note in joined(batches).notes] == ["x", "over"]
    assert new_folder(tmp_path).name == "001"


def test_a_clock_that_is_set_and_a_pause_are_noted_and_missed_rounds_counted(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, 0.1, {})
    spans = ((0, 0), (1_000_000, 3), (2_000_000, 3_600_000_000), (7_000_000, 3_600_000_001))
    for begin, offset in spans:
        recorder._look_at(Batch(0, 10, [5 + begin + 100_000 * place for place in range(10)], [offset, *[None] * 9]))
    texts = [(note.kind, note.text) for note in recorder._pending]
    assert texts == [("clock", "the wall clock was set by +3600.000 s"), ("gap", "nothing was looked at for 4.1 s")]
    assert recorder._missed == 40
