"""Points on disk: whole or not at all, never overwritten, found by the beginning of their name."""

from __future__ import annotations

import os
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow.parquet as pq
import pytest

from remuda.base.errors import InputError, NotFound, Unwritable
from remuda.bench.generator.reading import RequestRow
from remuda.bench.judging.verdict import Check
from remuda.bench.load import Load
from remuda.bench.point import Point, address
from remuda.bench.store import POINT, REQUESTS, PointStore

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    RequestRow(0, sent=5, first=7, last=9, ended=10, n_out=3, chunks=array("I", [2, 3, 4])),
    RequestRow(1, error="gone"),
]


def point(point_id: str = "ab" * 32, **changes: Any) -> Point:
    made = Point(
        id=point_id, repeat=0, source="remuda", endpoint="http://h:1", model='a "model" <\nof', engine="vllm",
        load=Load(), metrics={"ttft": {"p50": 0.1, "p99": None}, "output_tok_s": 12.5},
        checks=(Check("V1", "ok"), Check("V2", "suspect", "one failed", "look")), verdict="suspect",
    )  # fmt: skip
    return replace(made, **changes)


def test_a_point_is_written_whole_and_read_back(tmp_path: Path) -> None:
    store = PointStore(tmp_path / "bench")
    written = store.write(point(), ROWS)
    assert store.points() == [written]
    assert written.name == "abababab-1"
    table = pq.read_table(store.folder(written) / REQUESTS)
    assert table["chunks"].to_pylist() == [[2, 3, 4], []]
    assert table["error"].to_pylist() == ["", "gone"]
    assert (tmp_path / "bench").stat().st_mode & 0o077 == 0


def test_what_a_killed_writer_left_is_removed_after_an_hour_and_files_are_the_user_s_alone(tmp_path: Path) -> None:
    store = PointStore(tmp_path / "bench")
    before = os.umask(0)
    try:
        written = store.write(point(), ROWS)
        old, young = (tmp_path / "bench" / f".part-{name}" for name in ("old", "young"))
        for folder in (old, young):
            folder.mkdir()
            (folder / REQUESTS).touch()
        os.utime(old, (0, 0))
        store.write(point(), ROWS)
    finally:
        os.umask(before)
    assert (old.exists(), young.exists()) == (False, True)
    files = [path for path in store.folder(written).iterdir() if path.stat().st_mode & 0o077]
    assert files == []


def test_another_measurement_is_a_repeat(tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    assert [store.write(point(), []).repeat for _ in range(3)] == [1, 2, 3]
    assert [one.repeat for one in store.of("ab" * 32)] == [1, 2, 3]


def test_two_benchmarks_write_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: PointStore(tmp_path).write(point(), ROWS).repeat, range(24)))
    assert sorted(found) == list(range(1, 25))
    assert len(PointStore(tmp_path).points()) == 24
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_load_that_was_begun_is_counted_whatever_became_of_it(tmp_path: Path) -> None:
    store = PointStore(tmp_path / "bench")
    assert [store.begin("load", "http://h:1") for _ in range(3)] == [0, 1, 2]
    assert store.begin("load", "http://h:2") == store.begin("other", "http://h:1") == 0
    assert store.points() == []
    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(lambda _: store.begin("both", "u"), range(24))) == list(range(24))
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unwritable, match=r"file cannot be written: "):
        PointStore(tmp_path / "file").begin("load", "u")


def test_other_points_are_not_read_for_the_repeats_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PointStore(tmp_path)
    read: list[str] = []
    for one in ("ab" * 32, "ab" * 32, "cd" * 32):
        store.write(point(one), [])
    whole = Point.from_json

    def counted(data: dict[str, Any]) -> Point:
        read.append(data["id"])
        return whole(data)

    monkeypatch.setattr(Point, "from_json", counted)
    assert len(store.of("ab" * 32)) == 2
    assert read == ["ab" * 32] * 2


def test_finding(tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    for one in ("ab" * 32, "ac" * 32, "ab" * 32):
        store.write(point(one), [])
    assert store.find("ac").id == "ac" * 32
    assert store.find("abab").repeat == 2
    assert store.find("abababab-1").repeat == 1
    with pytest.raises(InputError, match="'a' is the beginning of several points"):
        store.find("a")
    for name in ("f", "ab-7", "", "-1"):
        with pytest.raises(NotFound):
            store.find(name)


def test_what_is_no_point_is_passed_over(tmp_path: Path) -> None:
    store = PointStore(tmp_path)
    store.write(point(), [])
    for name, data in (("torn-1", b'{"id"'), ("empty-1", b""), ("list-1", b"[]"), ("old-1", b'{"id": "x"}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / POINT).write_bytes(data)
    (tmp_path / "file").write_text("x")
    assert len(store.points()) == 1


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bench").write_text("a file")
    with pytest.raises(Unwritable, match=r"the point cannot be stored in .*bench"):
        PointStore(tmp_path / "bench").write(point(), [])


def test_a_kill_in_the_middle_leaves_no_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """Stands for the end of the process: nothing behind it runs."""

    def killed(*_: object) -> None:
        raise Killed

    monkeypatch.setattr(os, "fsync", killed)
    monkeypatch.setattr("remuda.bench.store.shutil.rmtree", lambda *_, **__: None)
    with pytest.raises(Killed):
        PointStore(tmp_path).write(point(), ROWS)
    monkeypatch.undo()
    assert PointStore(tmp_path).points() == []
    assert PointStore(tmp_path).write(point(), ROWS).repeat == 1


def test_the_address_says_what_was_measured() -> None:
    from remuda.bench.point import Hardware

    def of(**changes: Any) -> str:
        base: dict[str, Any] = {
            "load": Load(), "endpoint": "http://h:1", "model": "m", "engine": "vllm 1", "hardware": Hardware(),
            "rules": {},
        }  # fmt: skip
        return address(**{**base, **changes})

    others = [
        of(load=Load(concurrency=2)), of(load=Load(seed=1)), of(endpoint="http://h:2"), of(model="n"),
        of(engine="vllm 2"), of(hardware=Hardware(8, "h100")), of(rules={"slo": {"ttft_p99": 0.5}}),
    ]  # fmt: skip
    assert len({of(), *others}) == 8
    assert of() == of()


def test_the_address_of_what_was_not_brought_up_here_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from remuda.bench.point import Hardware

    monkeypatch.setattr("remuda.bench.point.__version__", "0.1.0")
    monkeypatch.setattr("remuda.bench.point.VERSION", 2)
    found = address(Load(), "http://h:1", "m", "vllm 1", Hardware(8, "h100", 2), {"slo": {"ttft_p99": 0.5}})
    assert found == "67b33cb9f32a076c91343070f737f0ff3303f20b698f90661993d7dbd430d476"


def test_the_address_of_what_was_brought_up_here_is_known_beforehand() -> None:
    from remuda.bench.point import Hardware

    def of(config: str, **changes: Any) -> str:
        base: dict[str, Any] = {
            "load": Load(), "endpoint": "http://h:1", "model": "m", "engine": "vllm 1", "hardware": Hardware(),
            "rules": {}, "config": config,
        }  # fmt: skip
        return address(**{**base, **changes})

    assert of("c", endpoint="", engine="") == of("c") == of("c", endpoint="http://h:2", engine="vllm 2")
    others = [of(""), of("d"), of("c", model="n"), of("c", load=Load(seed=1)), of("c", rules={"slo": {}})]
    assert len({of("c"), *others, of("c", hardware=Hardware(replicas=2))}) == 7


def test_points_of_earlier_versions_are_read() -> None:
    said = point().to_json()
    del said["config"]
    assert Point.from_json(said) == point()


def test_bounds_are_met_missed_or_unknown() -> None:
    assert point().slo_met() is None
    assert point(slo={"ttft_p50": 0.2}).slo_met() is True
    assert point(slo={"ttft_p50": 0.05}).slo_met() is False
    assert point(slo={"ttft_p50": 0.2, "ttft_p99": 0.5}).slo_met() is None
    assert point(slo={"ttft_p50": 0.05, "ttft_p99": 0.5}).slo_met() is False


def test_json_gives_the_same_point_back() -> None:
    assert Point.from_json(orjson.loads(orjson.dumps(point().to_json()))) == point()
