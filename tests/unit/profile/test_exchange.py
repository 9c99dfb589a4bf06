"""gswarm's layout in and out, and traces for Perfetto."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.unit.profile.invented import BEGIN_US, looks, recorded, track

from remuda.profile import Attempt, analyse, chrome, export, read
from remuda.profile.columns import Said
from remuda.profile.thinning import means, thin

if TYPE_CHECKING:
    from pathlib import Path

    from remuda.profile.columns import Recorded

#: As gswarm's profiler writes it: numbers are strings, times have no zone.
SEED: dict[str, Any] = {
    "frames": [
        {"frame_id": 1, "time": "2026-11-25T10:00:00.000000", "gpu_id": ["n1:0:NVIDIA A100", "n2:3:Tesla: V100"],
         "gpu_util": ["100.00", "0.00"], "gpu_memory": ["50.25", "0.00"], "dram_util": [], "disk_util": [],
         "dram_bandwidth": ["3.00", "0.00"], "dram_bandwidth_rx": ["1.00", "0.00"],
         "dram_bandwidth_tx": ["2.00", "0.00"], "gpu_bandwidth": []},
        {"frame_id": 2, "time": "2026-11-25T10:00:01.000000", "gpu_id": ["n1:0:NVIDIA A100"],
         "gpu_util": ["50.00"], "gpu_memory": ["50.75"], "dram_bandwidth": ["3.00"], "dram_bandwidth_rx": ["1.00"],
         "dram_bandwidth_tx": ["2.00"]},
        {"frame_id": 3, "time": "2026-11-25T10:00:02.000000", "gpu_id": ["n1:0:NVIDIA A100"],
         "gpu_util": ["0.00"], "gpu_memory": ["50.00"]},
    ],
    "summary_by_device": {},
}  # fmt: skip


def test_a_recording_of_gswarm_is_read(tmp_path: Path) -> None:
    (tmp_path / "exp1.json").write_text(json.dumps(SEED))
    whole = read(tmp_path / "exp1.json")
    first, second = analyse(whole).gpus
    assert whole.name == "exp1"
    assert (first.node, first.index, first.name) == ("n1", 0, "NVIDIA A100")
    assert (second.node, second.index, second.name, second.use.samples) == ("n2", 3, "Tesla: V100", 1)
    assert first.use.stats["busy"] == (50.0, 50.0, 100.0, 100.0)
    assert first.use.stats["memory_percent"].max == pytest.approx(50.75)
    assert first.use.stats["pcie_received"].mean == pytest.approx(1000.0)
    assert first.use.joules is None
    export(whole, "parquet", tmp_path / "exp1.parquet")
    assert analyse(read(tmp_path / "exp1.parquet")).gpus == (first, second)


def test_what_goes_out_in_its_layout_comes_back(tmp_path: Path) -> None:
    one = track({"busy": [10, 20, 30], "memory": [8.0 * 2**30] * 3})
    other = track({"busy": [70, 80], "memory": [2.0**30] * 2}, [1, 2], index=1)
    export(recorded(one, other), "json", tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text())
    assert [frame["gpu_util"] for frame in data["frames"]] == [["10.00"], ["20.00", "70.00"], ["30.00", "80.00"]]
    assert data["frames"][0]["gpu_memory"] == ["10.00"]
    assert [frame["frame_id"] for frame in data["frames"]] == [1, 2, 3]
    assert data["frames"][0]["gpu_id"] == ["n1:0:H100"]
    assert not [name for name in data["frames"][0] if "bandwidth" in name]
    assert data["summary_by_device"]["n1:1:H100"]["avg_gpu_util"] == "75.00"
    assert data["summary_by_client"] == {}
    again = read(tmp_path / "out.json")
    assert [track.values["busy"].tolist() for track in again.tracks] == [[10, 20, 30], [70, 80]]
    assert again.tracks[0].times.tolist() == one.times.tolist()


def test_bandwidths_are_there_where_they_were_recorded(tmp_path: Path) -> None:
    export(recorded(track({"busy": [1, 1], "pcie_sent": [0, 2 * 10**9]})), "json", tmp_path / "out.json")
    frame = json.loads((tmp_path / "out.json").read_text())["frames"][0]
    assert (frame["dram_bandwidth_tx"], frame["dram_bandwidth"], frame["gpu_bandwidth"]) == (["2.00"], ["2.00"], [])


def test_nodes_that_are_not_in_step_have_no_frames_of_their_own(tmp_path: Path) -> None:
    one, other = track({"busy": [1] * 5}), track({"busy": [2] * 5}, [0.3, 1.3, 2.3, 3.3, 4.3], node="n2")
    export(recorded(one, other), "json", tmp_path / "out.json")
    frames = json.loads((tmp_path / "out.json").read_text())["frames"]
    assert [len(frame["gpu_id"]) for frame in frames] == [1, 2, 2, 2, 2]


# Perfetto


def traced(whole: Recorded, path: Path) -> list[dict[str, Any]]:
    export(whole, "chrome", path)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events: list[dict[str, Any]] = json.loads(data)["traceEvents"]
    return events


def test_a_slice_a_task_attempt(tmp_path: Path) -> None:
    tracks = [
        track({"busy": [50] * 5}, token="t-1", index=0), track({"busy": [50] * 5}, token="t-1", index=1),
        track({"busy": [50] * 5}, [9, 10, 11, 12, 13], token="t-2", node="n2"),
        track({"busy": [50] * 5}, index=2, looks=looks([(1, "u-1", 5.0), (2, "u-1", 5.0), (2, "", 1.0)])),
    ]  # fmt: skip
    whole = recorded(*tracks, attempt_of=lambda token: Attempt(token[0], int(token[-1])))
    events = traced(whole, tmp_path / "t.json")
    slices = {event["name"]: event for event in events if event["ph"] == "X"}
    assert set(slices) == {"t attempt 1", "t attempt 2", "u attempt 1"}
    assert (slices["t attempt 1"]["ts"], slices["t attempt 1"]["dur"]) == (0, 5_000_000)
    assert len(slices["t attempt 1"]["args"]["gpus"]) == 2
    assert slices["t attempt 2"]["ts"] == 9_000_000
    assert slices["u attempt 1"]["dur"] == 2_000_000
    assert {event["args"]["name"] for event in events if event["name"] == "process_name"} == {"n1", "n2"}


def test_counters_are_told_where_they_change_and_gaps_are_slices(tmp_path: Path) -> None:
    one = track({"busy": [5, 5, 7, None]}, [0, 1, 100, 101])
    whole = recorded(one, notes=(Said(BEGIN_US + 5, "n1", "gap", "the node slept"),))
    events = traced(whole, tmp_path / "t.json.gz")
    assert [(event["ts"], event["args"]["%"]) for event in events if event["ph"] == "C"] == [(0, 5), (100_000_000, 7)]
    (gap,) = [event for event in events if event["ph"] == "X"]
    assert (gap["name"], gap["ts"], gap["dur"]) == ("not sampled", 1_000_000, 99_000_000)
    assert [event["name"] for event in events if event["ph"] == "i"] == ["gap: the node slept"]


@pytest.fixture
def events(tmp_path: Path) -> list[dict[str, Any]]:
    """Of two attempts of a task that cross on one node, the later one first, of one on another, and of notes."""
    later = track({"busy": [5, 9, 7, 8], "power": [3e5, 2e5, None, 1e5]}, [0, 1, 100, 101], token="t-2")
    first = track({"busy": [50] * 3}, [-5.0, -3.0, -1.0], interval_s=2.0, token="t-1", index=1)
    other = track({"memory": [2.0**33] * 2, "temperature": [60, 61]}, node="n2", token="t-3")
    notes = (
        Said(BEGIN_US + 7, "n2", "end", ""), Said(BEGIN_US - 9_000_000, "n1", "start", "every 1 s"),
        Said(BEGIN_US + 3, "n3", "gpu", "the driver does not answer"),
    )  # fmt: skip
    whole = recorded(later, first, other, notes=notes, attempt_of=lambda token: Attempt(token[0], int(token[-1])))
    return traced(whole, tmp_path / "t.json")


def test_events_have_what_viewers_need(events: list[dict[str, Any]]) -> None:
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert sorted(named.values()) == ["n1", "n2", "n3"]
    for event in events:
        assert (type(event["pid"]), type(event["tid"]), type(event["name"])) == (int, int, str)
        assert event["pid"] in named
        if event["ph"] != "M":
            assert type(event["ts"]) is int
            assert event["ts"] >= 0, "Perfetto drops it"
        if event["ph"] == "C":
            (value,) = event["args"].values()
            assert type(value) in (int, float)
    assert {event["ph"] for event in events} == {"M", "X", "C", "i"}
    assert {event["s"] for event in events if event["ph"] == "i"} == {"p"}


def test_tracks_are_in_the_order_of_time_and_slices_do_not_cross(events: list[dict[str, Any]]) -> None:
    counters: dict[Any, list[int]] = {}
    slices: dict[Any, list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "C":
            counters.setdefault((event["pid"], event["name"]), []).append(event["ts"])
        elif event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            slices.setdefault((event["pid"], event["tid"]), []).append(span)
    assert len(counters) == 5
    assert all(times == sorted(set(times)) for times in counters.values())
    assert slices.keys() == {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    assert all(end <= begin for spans in slices.values() for (_, end), (begin, _) in pairwise(spans))
    assert all(begin < end for spans in slices.values() for begin, end in spans)
    tasks = [event["name"] for event in events if event.get("cat") == "task"]
    assert tasks == ["t attempt 1", "t attempt 2", "t attempt 3"]


def test_a_trace_has_no_more_than_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chrome, "MOST_BYTES", 100_000)
    chance = np.random.default_rng(1)
    tracks = [
        track({"busy": chance.integers(0, 100, 3000).tolist(), "power": chance.integers(0, 700_000, 3000).tolist()},
              index=index)
        for index in range(4)
    ]  # fmt: skip
    events = traced(recorded(*tracks), tmp_path / "t.json")
    assert 50_000 < (tmp_path / "t.json").stat().st_size < 100_000
    assert len({event["name"] for event in events if event["ph"] == "C"}) == 8


def test_nothing_is_a_trace_too(tmp_path: Path) -> None:
    assert traced(recorded(), tmp_path / "t.json") == []


# Shorter


def test_means_are_over_time_and_gaps_stay() -> None:
    one = track({"busy": [0, 100, 100, 40]}, [0, 1, 2, 100])
    values = one.gauge("busy")
    assert values is not None
    assert means(one, values, BEGIN_US, 2_000_000, 2).tolist() == [50, 100]
    found = means(one, values, BEGIN_US, 10_000_000, 11)
    assert np.isnan(found[1:10]).all()
    assert (found[0], found[10]) == (pytest.approx(200 / 3), 40)


def test_a_sample_holds_until_the_next_one() -> None:
    one = track({"busy": [10, 20]})
    assert means(one, np.array([10.0, 20.0]), BEGIN_US, 250_000, 9).tolist()[:8] == [10] * 4 + [20] * 4


def test_what_is_short_enough_is_left_as_it_is() -> None:
    one = track({"busy": [10, 20]})
    times, values = thin(one, np.array([10.0, 20.0]), 2)
    assert (times.tolist(), values.tolist()) == (one.times.tolist(), [10, 20])
    assert len(thin(one, np.array([10.0, 20.0]), 1)[0]) == 1
