"""GPUs in lines, from what a recorder tells; and a flag that may stand without its value."""

from __future__ import annotations

import pytest

from remuda.base.pages.charts import bar
from remuda.cli import taskview
from remuda.cli.look.gpuview import lines
from remuda.cli.staying import _completed
from remuda.client.recordings.profiler import Live
from remuda.supervise.facts import of_gpus
from remuda.wire.recording import Status

GPU = {"index": 0, "uuid": "GPU-1", "busy": 50, "memory": 20 << 30, "memory_bytes": 80 << 30, "power": 300_000,
       "temperature": 61, "processes": 2, "gone": ""}  # fmt: skip


def test_a_line_has_bars_memory_watts_and_what_runs() -> None:
    live = Live("exp1", Status("recording", 100.0, rounds=12, gpus=(GPU, {"index": 1, "gone": "it is lost"})), {})
    assert lines(live, 101.0) == [
        "exp1: recording, 12 samples, 0 B",
        "  GPU 0  ▕█████     ▏ 50%  ▕██▌       ▏ 20.0 of 80 GiB   300 W   61 °C  2 processes",
        "  GPU 1  it is lost",
    ]
    named = Live("exp1", live.status, {"GPU-1": ("train/script/0", "python (7)")})
    assert lines(named, 101.0)[1].endswith("  train/script/0, python (7)")
    assert "silent for 20s" in lines(live, 120.0)[0]


def test_what_is_not_known_is_not_0() -> None:
    (line,) = lines(Live("x", Status("recording", 0.0, gpus=({"index": 0},)), {}), 0.0)[1:]
    assert "0%" not in line
    assert line.split() == ["GPU", "0", "▕", "▏", "-", "▕", "▏", "-", "-", "W", "-", "°C"]


@pytest.mark.parametrize(("share", "shown"), [(0, "    "), (1, "████"), (0.5, "██  "), (0.53125, "██▏ "), (7, "████")])
def test_bar(share: float, shown: str) -> None:
    assert bar(share, 4) == shown


def test_several_gpus_are_one_figure_and_a_gap_in_one_is_a_gap_in_all() -> None:
    told = of_gpus([GPU, {**GPU, "busy": 100}])
    assert taskview.gpu(told) == "75 % · 40/160 GiB · 600 W"
    assert taskview.gpu(of_gpus([GPU, {"index": 1, "busy": None}])) == ""
    assert of_gpus([]) == {}
    task = {"metrics": told, "phase": "done"}
    assert taskview.cell(task, "GPU", 0.0) == "", "what has ended does nothing"
    view = {"kind": "gang", "tasks": [task]}
    assert taskview.columns(view, 0)[-2:] == ("GPU", "reason")


@pytest.mark.parametrize(("typed", "meant"), [
    ("--profile t.sh", "--profile=10Hz t.sh"),
    ("t.sh --profile", "t.sh --profile=10Hz"),
    ("--profile 5Hz t.sh", "--profile 5Hz t.sh"),
    ("--profile=5Hz t.sh", "--profile=5Hz t.sh"),
    ("t.sh --profile --gpus 1", "t.sh --profile=10Hz --gpus 1"),
])  # fmt: skip
def test_a_flag_without_its_value_does_not_take_the_script(typed: str, meant: str) -> None:
    assert list(_completed(typed.split(), {"profile": "10Hz"})) == meant.split()
