"""Recordings as their user has them: begun, seen, killed in the middle, ended, read; on GPUs that are none."""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.fakes.nvml import GIB, Driver

from remuda.base.errors import NotFound
from remuda.profile import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Home


@pytest.fixture
def driver(home: Home) -> Iterator[Driver]:
    folder = home.root / "driver"
    folder.mkdir()
    with Driver(folder, 2) as driver:
        driver.gpus[0].seed, driver.gpus[0].used = 7, 20 * GIB
        driver.gpus[1].power = 80_000
        home.run("host", "start")  # without the library: only what records needs it
        yield driver


def times(folder: Path) -> list[int]:
    with suppress(NotFound):  # until the first second is written
        return [int(at) for track in read(folder).tracks if track.gpu.index == 0 for at in track.times]
    return []


def test_a_recording_survives_its_recorder_and_its_host(home: Home, driver: Driver) -> None:
    folder = home.paths.recordings / "exp1"
    words = ("profiler", "start", "--name", "exp1", "--freq", "50ms")
    assert home.run(*words, env=driver.environment).stdout == "exp1\n"
    driver.gpus[0].runs((os.getpid(), 3 * GIB, 40))
    until(lambda: len(times(folder)) > 20, "a second is recorded")
    shown = home.run("profiler", "status").stdout
    assert shown.startswith("exp1: recording, ")
    assert "20.0 of 80 GiB" in shown
    assert "80 W" in shown

    (before,) = json.loads(home.run("profiler", "status", "--json").stdout)
    os.kill(before["pid"], signal.SIGKILL)
    until((folder / "001" / "open").exists, "a new recorder goes on")
    home.kill_host()
    seen = len(times(folder))
    until(lambda: len(times(folder)) > seen + 20, "it goes on without a host")
    assert "exp1" in home.run("status").stdout, "the next host has it"

    assert home.run("profiler", "stop").stdout == "exp1\n"
    assert driver.machine.lost == 0
    recorded = times(folder)
    assert len(recorded) == len(set(recorded)), "doubled"
    assert sorted(path.name for path in folder.glob("*/open")) == []
    handed = {one.value for one in driver.handed(gpu=0) if one.what == 1083}
    (track,) = (track for track in read(folder).tracks if track.gpu.index == 0)
    energy = [int(value) for value in track.values["energy"]]
    assert set(energy) <= handed, "a value that nobody said"
    assert len(energy) == len(set(energy)), "doubled"

    analysis = json.loads(home.run("profiler", "analyze", "exp1", "--json").stdout)
    assert [gpu["index"] for gpu in analysis["gpus"]] == [0, 1]


def test_a_run_says_what_its_gpus_did(home: Home, driver: Driver) -> None:
    script = home.root / "train.sh"
    script.write_text("#!/bin/bash\n#REMUDA --heartbeat-interval 1s\nuntil [ -e done ]; do sleep 0.1; done\n")
    driver.xid(1, 79)
    words = ("--backend", "local", "--gpus", "1", "--no-gpu-check", "--profile", "train.sh")
    home.run("run", *words, env={**driver.environment, "CUDA_VISIBLE_DEVICES": "0,1"})
    until(lambda: "gpu_power" in home.task("train", "script/0")["metrics"], "its report tells")
    assert " W" in next(line for line in home.run("status", "train").stdout.splitlines() if line.startswith("GPUs"))
    driver.xid(0, 79)
    asked = ("nodes", "history", os.uname().nodename, "--backend", "local", "--json")
    history = until(lambda: json.loads(home.run(*asked).stdout), "evidence")
    assert [(item["kind"], item["workload"]) for item in history] == [("xid-79", "train")]
    assert home.view("train")["phase"] == "RUNNING", "a finding ends nothing"
    (home.root / "done").touch()
    until(lambda: home.view("train")["phase"] == "DONE", "it is done")
    assert "its GPUs:" in home.run("explain", "train").stdout
    assert re.search(r"\d (J|kJ|kWh)\b", home.run("status", "train").stdout)
    rows = json.loads(home.run("profiler", "analyze", "train", "--json").stdout)
    assert [gpu["index"] for gpu in rows["gpus"]] == [0], "only its own"
    assert [row["task"] for row in rows["tasks"]] == ["train/script/0"]


def test_without_a_driver_there_is_one_sentence(home: Home) -> None:
    home.run("host", "start")
    for words, env in ((("--name", "x"), {"LD_LIBRARY_PATH": str(home.root)}), (("--freq", "often"), {})):
        refused = home.run("profiler", "start", *words, check=False, env=env)
        assert refused.returncode != 0
        assert refused.stderr.startswith("error: ")
        assert len(refused.stderr.strip().splitlines()) <= 2
    assert "no recordings" in home.run("profiler", "sessions").stdout
    assert "nothing runs" in home.run("status").stdout
