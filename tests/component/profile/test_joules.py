"""From a driver to joules: recorder, spool, file and analysis together."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.fakes.nvml import Driver

from remuda.enter import words
from remuda.profile import analyse, close, read
from remuda.wire.recording import Status
from remuda.wire.spool import STATUS

if TYPE_CHECKING:
    from pathlib import Path


def rounds(folder: Path) -> int:
    try:
        return Status.from_json((folder / STATUS).read_text()).rounds
    except (OSError, ValueError):
        return 0


def works(stack: ExitStack, token: str) -> int:
    """A process of a task; returns its pid."""
    env = {**os.environ, "REMUDA_TOKEN": token}
    child = stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE))
    stack.callback(child.kill)
    return child.pid


def test_a_wave_is_counted_to_a_thousandth_and_split_between_two_tasks(tmp_path: Path) -> None:
    (tmp_path / "driver").mkdir()
    folder = tmp_path / "exp1"
    with ExitStack() as stack:
        driver = stack.enter_context(Driver(tmp_path / "driver", gpus=1))
        gpu = driver.gpus[0]
        gpu.runs((works(stack, "a"), 2 << 30, 60), (works(stack, "b"), 1 << 30, 20))
        before = gpu.energy
        recorder = stack.enter_context(subprocess.Popen(
            [sys.executable, *words("recorder"), str(folder), "--name", "exp1"],
            env={**os.environ, **driver.environment},
        ))  # fmt: skip
        stack.callback(recorder.kill)
        until(lambda: rounds(folder) >= 15, "it records", 60)
        gpu.waves(300_000, 0, 0.37)
        time.sleep(2.2)  # The wave is the driver's, by the clock of the kernel: it begins and ends between two rounds.
        gpu.rests()
        used = (gpu.energy - before) / 1000
        after = rounds(folder)
        until(lambda: rounds(folder) >= after + 20, "it goes on", 60)
        live = read(folder, last_s=1.0)
        recorder.terminate()
        assert recorder.wait(60) == 0
    analysis = analyse(read(folder))
    assert 0 < live.span_s < 1.5
    assert used > 250
    assert analysis.joules == pytest.approx(used, rel=1e-3)
    joules = {row.task: row.use.joules or 0.0 for row in analysis.tasks}
    assert sum(joules.values()) == pytest.approx(used, rel=1e-3)
    assert joules["a"] == pytest.approx(3 * joules["b"], rel=0.01)
    assert all(row.use.is_shared for row in analysis.tasks if row.task)
    close(folder)
    assert analyse(read(folder)) == analysis
