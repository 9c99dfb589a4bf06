"""`make gpu` where there is no GPU, and its first steps beside a fake driver."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.live import run_gpu
from tests.live.gpu import pretend
from tests.live.gpu.report import FAILED, PASSED

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/live/run_gpu.py"
SMALL = {"device": "cpu", "seconds": 4.0, "half": 1.0, "pairs": 3, "block": 0.1}


def run(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kit = [] if "--kit" in words else ["--kit", "/nowhere"]  # A checkout may have one, for another Python.
    argv = [sys.executable, str(SCRIPT), *kit, *words]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def no_gpu(tmp_path: Path) -> dict[str, str]:
    """An environment in whose PATH there are few programs, and no `nvidia-smi`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("nproc", "uname"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return {**os.environ, "PATH": str(folder)}


@pytest.fixture
def gpu(tmp_path: Path) -> Iterator[dict[str, str]]:
    folder = tmp_path / "driver"
    folder.mkdir()
    with pretend.driver(folder) as made:
        yield {**pretend.environment(made), "DRIVER": str(folder)}


def test_make_says_that_there_is_no_gpu_and_reports_code_3(no_gpu: dict[str, str]) -> None:
    make = [str(shutil.which("make")), "--no-print-directory", "-C", str(ROOT), "gpu", f"PYTHON={sys.executable}"]
    done = subprocess.run(make, env=no_gpu, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "There is no NVIDIA GPU here: nvidia-smi is not in PATH.\n"
    assert "gpu] Error 3" in done.stderr
    assert done.returncode == 2  # make's own code for a recipe that fails, whatever that ended with
    assert run(env=no_gpu).returncode == 3


def test_a_driver_that_does_not_answer_is_no_gpu(no_gpu: dict[str, str], tmp_path: Path) -> None:
    program = tmp_path / "bin/nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    done = run(env=no_gpu)
    assert (done.returncode, done.stdout) == (
        3,
        "There is no NVIDIA GPU here: nvidia-smi says «NVIDIA-SMI has failed».\n",
    )


def test_a_kit_for_another_python_is_refused(gpu: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "kit.json").write_text('{"python": "3.7"}')
    done = run("--kit", str(tmp_path), env=gpu)
    assert done.returncode == 2
    assert done.stdout.endswith("make PYTHON=python3.7 gpu\n")


def test_without_its_packages_the_kit_is_asked_for(gpu: dict[str, str], tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    argv = [str(tmp_path / "bare/bin/python"), str(SCRIPT), "--kit", str(tmp_path)]
    done = subprocess.run(argv, env=gpu, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("remuda cannot be imported (ModuleNotFoundError: No module named 'aiohttp')")


def test_steps_beside_a_fake_driver(gpu: dict[str, str], tmp_path: Path) -> None:
    settings = json.dumps(SMALL | {"driver": gpu["DRIVER"]})
    out = tmp_path / "out"
    done = run("--only", "cuda,recording,cost", "--settings", settings, "--out", str(out), env=gpu)
    told = json.loads((out / "gpu.json").read_text())
    assert told["card"]["name"] == "NVIDIA H100 80GB HBM3", done.stderr
    steps: dict[str, Any] = {one["step"]: one for one in told["steps"]}
    assert list(steps) == ["cuda", "recording", "cost"]
    assert steps["cuda"]["result"] == PASSED, steps
    # Whether these two pass depends on what else the machine does meanwhile; that they have their numbers does not.
    numbers = steps["recording"]["numbers"]
    assert numbers["counter_J"] > 0.95 * 4 * 195, steps  # more where the end was read late
    assert numbers["recorded_J"] == pytest.approx(numbers["counter_J"], rel=0.3)
    assert numbers["analyze_J"] > numbers["recorded_J"]
    assert numbers["on_W"] > numbers["off_W"]
    assert numbers["smi_samples"] > 4
    assert steps["cost"]["numbers"]["low_%"] <= steps["cost"]["numbers"]["median_%"]
    assert sorted(path.name for path in out.iterdir()) == ["cost.log", "cuda.log", "gpu.json", "recording.log"]
    assert "\ncuda       passed" in done.stdout


def test_a_step_that_fails_stops_no_other(gpu: dict[str, str], tmp_path: Path) -> None:
    settings = json.dumps(SMALL | {"driver": str(tmp_path / "gone")})
    done = run("--only", "recording,cuda", "--settings", settings, "--out", str(tmp_path / "out"), env=gpu)
    told = json.loads((tmp_path / "out/gpu.json").read_text())["steps"]
    assert done.returncode == 1
    assert [one["result"] for one in told] == [FAILED, PASSED]
    assert told[0]["words"].startswith("FileNotFoundError")


def test_a_step_ends_when_its_time_is_over(gpu: dict[str, str], tmp_path: Path) -> None:
    env = gpu | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    settings = SMALL | {"seconds": 600.0, "driver": gpu["DRIVER"]}
    outcome = run_gpu.run_step("recording", tmp_path / "step", 6.0, settings, env)
    assert (outcome.result, outcome.words) == (FAILED, "Late: it was not done within 6 s")
