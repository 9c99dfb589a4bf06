"""What `explain` says of a GPU that a task does not have for itself: who is there now, and that somebody was."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.profile.invented import batch, gpu, header

from remuda.backends.base import TaskKey, make_token
from remuda.client.recordings.gpu_views import energy, sentences
from remuda.wire import spool
from remuda.wire.recording import GpuProcess, Status

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = make_token(TaskKey("train", "script", 0), 1, "u1")
OTHER = make_token(TaskKey("eval", "script", 2), 1, "u2")
NOBODYS = ["processes that belong to no task"]
NOT_ALONE = "GPU 0 had {} at the same time; joules are split by their shares"


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path))
    folder = tmp_path / "workloads/train/script-0/attempt-1-u1/recording"
    (folder / "000").mkdir(parents=True)
    return folder


def record(folder: Path, owners: list[str], state: str) -> None:
    """Two seconds of one GPU, each with a process of the task and one of each of these."""
    of = header(gpus=1, token=TRAIN)
    frames = []
    for second in range(2):
        one = batch(of, 10 * second, 10)
        one.processes = [GpuProcess(0, 0, 40 + place, 1 << 30, 20, None, "python", owner)
                         for place, owner in enumerate([f"task:{TRAIN}", *owners])]  # fmt: skip
        frames.append(spool.frame(one, of.values))
    (folder / "000" / spool.HEADER).write_text(of.to_json())
    (folder / "000" / spool.OPEN).write_bytes(b"".join(frames))
    told = ({"index": 0, "uuid": gpu().uuid},)
    (folder / spool.STATUS).write_text(Status(state, time.time(), spool="000", gpus=told).to_json())


@pytest.mark.parametrize(
    ("owners", "now", "ever"),
    [
        pytest.param([], [], [], id="nobody"),
        pytest.param([""], ["python (41)"], NOBODYS, id="another user"),
        pytest.param(["container:0123456789ab"], ["python (41)"], NOBODYS, id="a container"),
        pytest.param([f"task:{OTHER}"], ["eval/script/2"], ["several tasks"], id="another task"),
        pytest.param([f"task:{OTHER}", ""], ["eval/script/2, python (42)"], NOBODYS, id="both"),
    ],
)  # fmt: skip
def test_who_else_is_on_its_gpus(recording: Path, owners: list[str], now: list[str], ever: list[str]) -> None:
    of_now, of_all = [f"GPU 0 is shared with {who}" for who in now], [NOT_ALONE.format(who) for who in ever]
    record(recording, owners, "recording")
    told = [line.strip() for line in sentences("train")]
    assert [line for line in told if "shared" in line or "same time" in line] == [*of_all, *of_now]
    record(recording, owners, "ended")
    told = [line.strip() for line in sentences("train")]
    assert [line for line in told if "shared" in line or "same time" in line] == of_all


def test_without_pyarrow_it_says_what_to_install(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(recording, [], "ended")
    for name in [name for name in sys.modules if name.startswith("remuda.profile")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("remuda.profile", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (heading, told) = sentences("train")
    assert heading == "its GPUs:"
    assert told == "  recordings cannot be read without pyarrow: pip install 'remuda[batch]'"
    assert energy({"name": "train", "phase": "DONE"}) == ""
