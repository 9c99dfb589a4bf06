from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.profile.invented import BEGIN_US, batch, header, looks, recorded, same, track, write_spool

from remuda.base.errors import Conflict, InputError, NotFound, Unwritable
from remuda.profile import CLOSED, FORMATS, close, export, files, read, rows
from remuda.profile.columns import MISSING
from remuda.wire import spool as wire
from remuda.wire.fault import INFO, NODE, Fault
from remuda.wire.recording import RecordingNote

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording: a spool with a whole minute and two seconds, and one of a recorder that began again."""
    write_spool(tmp_path / "exp1/000", header(), 2, minutes=1)
    write_spool(tmp_path / "exp1/001", header(70), 3)
    return tmp_path / "exp1"


def test_spools_become_one_file_with_the_same_samples(folder: Path) -> None:
    before = read(folder)
    assert [len(one.times) for one in before.tracks] == [650, 650]
    assert before.name == "exp1"
    path = close(folder)
    assert path == folder / CLOSED
    assert path.stat().st_mode & 0o777 == 0o600
    assert same(read(folder), before)
    assert same(read(path), before)
    assert read(path).notes == before.notes
    assert [name for _, _, names in os.walk(folder) for name in names if name != CLOSED] == ["header.json"] * 2
    file = pq.ParquetFile(path)
    assert file.num_row_groups == 3
    assert file.schema_arrow.field("time").type == pa.timestamp("us", "UTC")
    assert same(read(close(folder)), before)


def test_a_spool_that_is_cut_at_any_byte_has_the_samples_before(tmp_path: Path) -> None:
    of = header(gpus=1)
    whole = write_spool(tmp_path / "whole", of, 4)
    data = (whole / wire.OPEN).read_bytes()
    times = read(whole).tracks[0].times.tolist()
    lengths = set()
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / wire.HEADER).write_text(of.to_json())
    for end in range(0, len(data), 7):
        (cut / wire.OPEN).write_bytes(data[:end])
        try:
            found = read(cut).tracks[0].times.tolist()
        except NotFound:
            found = []
        assert found == times[: len(found)]
        lengths.add(len(found))
    assert lengths == {0, 10, 20, 30}


STEPS = ("replace", "unlink", "fsync", "writer")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", range(4))
def test_killed_while_it_is_closed_nothing_is_lost_and_it_goes_on(
    folder: Path, step: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read(folder)
    with monkeypatch.context() as patched:
        _die(patched, step, after)
        try:
            close(folder)
        except _Killed:
            pass
        else:
            assert after > 0
    assert same(read(folder), before)
    assert same(read(close(folder)), before)


class _Killed(BaseException):
    """As `kill -9`: nothing that is prepared for errors sees it."""


def _die(patched: pytest.MonkeyPatch, step: str, after: int) -> None:
    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        left = [after]

        def call(*args: Any, **kwargs: Any) -> Any:
            if left[0] == 0:
                raise _Killed
            left[0] -= 1
            return real(*args, **kwargs)

        return call

    if step == "writer":
        patched.setattr(pq.ParquetWriter, "write_table", dying(pq.ParquetWriter.write_table))
    elif step == "fsync":
        patched.setattr(os, "fsync", dying(os.fsync))
    else:
        patched.setattr(Path, step, dying(getattr(Path, step)))


def test_what_a_killed_one_left_is_removed_after_an_hour(folder: Path) -> None:
    for name, age_s in (("new", 0), ("old", 3700)):
        left = folder / f".{CLOSED}.{name}"
        left.touch()
        os.utime(left, (time.time() - age_s,) * 2)
    close(folder)
    assert [path.name for path in folder.glob(".*")] == [f".{CLOSED}.new"]


def test_what_is_still_recorded_is_not_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rows.minutes

    def recording(*args: Any) -> Any:
        yield from real(*args)
        with (folder / "001" / wire.OPEN).open("ab") as file:
            file.write(wire.frame(batch(header(70), 30, 10), header().values))

    monkeypatch.setattr(files, "minutes", recording)
    with pytest.raises(Conflict, match="still being recorded"):
        close(folder)
    monkeypatch.undo()
    assert not (folder / CLOSED).exists()
    assert [len(one.times) for one in read(folder).tracks] == [660, 660]


def test_what_is_closed_while_it_is_read_is_read_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(folder)
    real = rows.minutes

    def closing(*args: Any) -> Any:
        monkeypatch.setattr(files, "minutes", real)
        close(folder)
        yield from real(*args)

    monkeypatch.setattr(files, "minutes", closing)
    assert same(read(folder), before)


def test_a_recorder_that_begins_after_it_was_closed_is_added(folder: Path) -> None:
    close(folder)
    write_spool(folder / "002", header(90), 2)
    before = read(folder)
    assert [len(one.times) for one in before.tracks] == [670, 670]
    close(folder)
    assert same(read(folder), before)
    assert same(read(folder / CLOSED), before)


def test_the_disk_is_full_and_everything_is_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(folder)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(Unwritable, match="No space left"):
            close(folder)
    assert same(read(folder), before)
    assert sorted(path.name for path in folder.iterdir()) == ["000", "001"]


def test_a_value_that_is_told_later_is_a_column_from_then_on(tmp_path: Path) -> None:
    of = header(gpus=1)
    folder = write_spool(tmp_path / "exp1/000", of, 0, minutes=1).parent
    more = batch(of, 600, 600)
    more.gpus[0]["temperature"] = [50] * 600
    with (folder / "000" / f"{wire.BLOCKS}000000").open("ab") as file:
        file.write(wire.block(more, of.values))
    before = read(folder)
    assert same(read(close(folder)), before)
    (one,) = before.tracks
    assert np.isnan(one.values["temperature"][:600]).all()
    assert (one.values["temperature"][600:] == 50).all()


def test_a_gpu_that_told_nothing_has_no_samples(tmp_path: Path) -> None:
    of = header(gpus=2)
    folder = tmp_path / "000"
    folder.mkdir()
    (folder / wire.HEADER).write_text(of.to_json())
    some = batch(of, 0, 10)
    some.gpus[0] = {name: [*column[:5], *[None] * 5] for name, column in some.gpus[0].items()}
    rest = batch(of, 10, 10)
    rest.gpus[0] = {}
    (folder / wire.OPEN).write_bytes(wire.frame(some, of.values) + wire.frame(rest, of.values))
    assert [len(one.times) for one in read(folder).tracks] == [5, 20]


def test_gpus_without_a_sample_and_faults_are_told(tmp_path: Path) -> None:
    of = header(gpus=2)
    folder = tmp_path / "000"
    folder.mkdir()
    (folder / wire.HEADER).write_text(of.to_json())
    one = batch(of, 0, 10)
    one.gpus[1] = {}
    fault = Fault(NODE, "xid-79", "it has fallen off the bus", "0000:3b:00")
    harmless = Fault(INFO, "ecc", "corrected")
    one.notes = [RecordingNote(one.times[0], "fault", json.dumps(told.to_dict())) for told in (fault, harmless)]
    (folder / wire.OPEN).write_bytes(wire.frame(one, of.values))
    for path in (folder, close(folder)):
        whole = read(path)
        assert [gpu.index for _, gpu in whole.unseen] == [1]
        assert sorted(note[2:] for note in whole.notes) == [
            ("fault", "xid-79 on 0000:3b:00: it has fallen off the bus"), ("seen", "ecc: corrected"),
        ]  # fmt: skip


def test_a_clock_that_was_set_moves_the_recording_and_tears_nothing(tmp_path: Path) -> None:
    of = header(gpus=1)
    folder = write_spool(tmp_path / "000", of, 1)
    late = batch(of, 10, 10)
    late.clock[0] = (of.wall_ns - of.monotonic_ns) // 1000 + 3_600_000_000
    with (folder / wire.OPEN).open("ab") as file:
        file.write(wire.frame(late, of.values))
    (one,) = read(folder).tracks
    assert one.gaps == []
    assert BEGIN_US + 3_600_000_000 <= one.times[0] < BEGIN_US + 3_601_000_000
    before = read(folder)
    close(folder)
    assert same(read(folder), before)


@pytest.mark.parametrize(("last_s", "decoded"), [(1.5, 0), (30, 1), (61.5, 1), (90, 2), (1000, 3)])
def test_the_last_seconds_are_read_without_what_is_before(
    last_s: float, decoded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_spool(tmp_path / "000", header(gpus=1), 2, minutes=3)
    whole = read(folder)
    minutes = []

    def counted(data: bytes, values: tuple[str, ...]) -> Any:
        found = wire.decode(data, values)
        minutes.append(len(found.times) > 10)
        return found

    monkeypatch.setattr(rows, "decode", counted)
    assert same(read(folder, last_s=last_s), whole.last(last_s))
    assert sum(minutes) == max(1, decoded)


def test_nodes_and_attempts_are_one_timeline(tmp_path: Path) -> None:
    first = write_spool(tmp_path / "a/000", header(token="t-1"), 2)
    second = write_spool(tmp_path / "b/000", header(50, node="n2", token="t-2", boot="c"), 2)
    whole = read(first, second)
    assert [one.node for one in whole.tracks] == ["n1", "n1", "n2", "n2"]
    assert 51.5 < whole.span_s < 52.5
    close(first)
    assert same(read(first, second.parent), whole)


def test_a_copy_of_a_spool_doubles_nothing(tmp_path: Path) -> None:
    one = write_spool(tmp_path / "a/000", header(), 2)
    shutil.copytree(one, tmp_path / "b/000")
    assert same(read(tmp_path / "a", tmp_path / "b"), read(one))


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_every_format_is_written_whole_or_not_at_all(kind: str, folder: Path, tmp_path: Path) -> None:
    whole = read(folder)
    path = tmp_path / f"out{FORMATS[kind]}"
    export(whole, kind, path)
    assert path.stat().st_size > 1000
    with pytest.raises(Unwritable, match="cannot be written"):
        export(whole, kind, tmp_path / "nowhere/out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["exp1", path.name]


def test_parquet_out_is_what_came_in(folder: Path, tmp_path: Path) -> None:
    whole = read(folder)
    export(whole, "parquet", tmp_path / "out.parquet")
    again = read(tmp_path / "out.parquet")
    assert same(again, whole)
    assert (again.notes, again.name) == (whole.notes, whole.name)


def test_parquet_of_several_nodes_with_shares(tmp_path: Path) -> None:
    seen = looks([(0, "a", 60.0), (0, "b", None), (1, "a", 5.0)])
    whole = recorded(
        track({"busy": [1, None], "energy": [5, None]}, looks=seen),
        track({"power": [3000.0]}, [7.5], node="n2", token="x"),
    )
    export(whole, "parquet", tmp_path / "out.parquet")
    again = read(tmp_path / "out.parquet")
    assert len(again.tracks) == 2
    assert again.tracks[0].looks.busy.tolist()[0::2] == [60.0, 5.0]
    assert again.tracks[0].values["energy"].tolist() == [5, MISSING]


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("a.parquet", b"PAR1 no", InputError), ("a.parquet", None, NotFound), ("a.json", b'{"frames": 3}', InputError),
        ("a.json", b"{", InputError), ("folder", None, NotFound), ("a.txt", b"hello", InputError),
    ],
)  # fmt: skip
def test_what_is_no_recording_is_said_in_a_sentence(
    name: str, data: bytes | None, error: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    elif "." not in name:
        path.mkdir()
    with pytest.raises(error) as caught:
        read(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_parquet_of_others_is_no_recording(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="not a recording of remuda"):
        read(tmp_path / "a.parquet")


def _forged(path: Path, **changes: Any) -> Path:
    """A Parquet file that says it is a recording of remuda."""
    head = json.loads(header().to_json()) | changes.pop("header", {})
    words = {"version": 1, "recordings": [{"header": head, "notes": [], "offsets": [], "names": [], **changes}]}
    row = {"recording": [0], "node": ["n1"], "gpu": ["GPU-n1-0"], "time": [BEGIN_US], "round": [0]}
    row |= changes.pop("row", {})
    table = pa.table({name: column for name, column in row.items() if column is not None})
    pq.write_table(table.replace_schema_metadata({"remuda": json.dumps(words)}), path)
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {"row": {"time": None}}, {"row": {"gpu": [3]}}, {"row": {"recording": [7]}}, {"row": {"time": [2**62]}},
        {"row": {"time": ["now"]}}, {"row": {"recording": ["x"]}}, {"header": {"wall_ns": "abc"}},
        {"header": {"monotonic_ns": -(2**70)}}, {"header": {"interval_us": None}}, {"header": {"gpus": [{"index": 0}]}},
        {"notes": [[2**64, "gpu", "x"]]}, {"notes": [3]}, {"offsets": [[0, 2**80]]}, {"names": 3},
    ],
    ids=str,
)  # fmt: skip
def test_a_recording_that_nobody_recorded_is_a_sentence(changes: dict[str, Any], tmp_path: Path) -> None:
    path = _forged(tmp_path / "a.parquet", **changes)
    with pytest.raises(InputError, match=r"it is (not|no) (a )?recording"):
        read(path)


def test_an_unknown_format_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        export(recorded(), "chrom", tmp_path / "x")
    assert "chrome" in caught.value.hint
