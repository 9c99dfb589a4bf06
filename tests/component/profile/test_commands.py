"""`remuda profiler` as a person types it, without a host: what is under way, what became of it, pictures, tables."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until
from tests.fakes.nvml import GIB, Driver
from tests.unit.profile.invented import header, write_spool

from remuda.cli import main
from remuda.cli.look import profiler as face
from remuda.client.recordings import profiler
from remuda.enter import words
from remuda.wire.recording import Status
from remuda.wire.spool import OPEN, STATUS

if TYPE_CHECKING:
    from pathlib import Path

GPU = {"index": 1, "uuid": "GPU-n1-1", "busy": 50, "memory": 20 * GIB, "memory_bytes": 80 * GIB, "power": 300_000,
       "temperature": 61, "processes": 1, "gone": ""}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a recording `exp1`, beside nothing."""
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home/recordings/exp1"


@pytest.fixture
def recorded(folder: Path) -> Path:
    """A minute and two seconds of two GPUs, 10 times a second."""
    write_spool(folder / "000", header(), 2, minutes=1)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    assert main(["profiler", *words]) == code
    out, err = capsys.readouterr()
    return err if code else out


@pytest.mark.parametrize(
    ("ending", "begins"),
    [("html", b"<!doctype html>"), ("png", b"\x89PNG\r\n\x1a\n"), ("pdf", b"%PDF-")],
    ids=["html", "png", "pdf"],
)
def test_a_picture(recorded: Path, ending: str, begins: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    out = recorded.parents[2] / f"out.{ending}"
    said(capsys, "analyze", "exp1", "--plot", str(out))
    assert out.read_bytes().startswith(begins)
    assert len(out.read_bytes()) > 5000


@pytest.mark.parametrize("ending", ["html", "png", "pdf"])
def test_a_picture_is_never_written_through_a_planted_link(
    recorded: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = recorded.parents[2] / "mine"
    mine.write_text("kept")
    out = recorded.parents[2] / f"out.{ending}"
    out.symlink_to(mine)
    said(capsys, "analyze", "exp1", "--plot", str(out))
    assert mine.read_text() == "kept"
    assert not out.is_symlink()
    assert len(out.read_bytes()) > 5000


def test_a_picture_that_cannot_be_written_is_a_sentence(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = recorded.parents[2] / "missing/out.html"
    assert "cannot be written: no such file" in said(capsys, "analyze", "exp1", "--plot", str(missing), code=2)


def test_an_ending_that_is_no_picture_is_refused_before_anything_is_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "must end with .html, .png, .pdf" in said(capsys, "analyze", "exp1", "-p", "x.bmp", code=2)


def test_a_recording_goes_out(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = recorded.parents[2] / "trace.json"
    assert said(capsys, "export", "exp1", "--format", "chrome", "-o", str(out)) == f"{out}\n"
    assert json.loads(out.read_text())["traceEvents"]
    assert said(capsys, "export", "exp1") == "exp1.parquet\n"
    assert said(capsys, "analyze", "--data", "exp1.parquet") == said(capsys, "analyze", "exp1")


def test_a_name_that_is_taken_is_refused(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = said(capsys, "start", "--name", recorded.name, code=4)
    assert refused.startswith("error: there is a recording 'exp1' already")


@pytest.mark.usefixtures("recorded")
def test_tables_csv_and_json_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys, "analyze", "exp1").splitlines()
    assert lines[0] == "exp1: 2 GPUs, 1m 2s"
    at = lines.index("GPUs")
    assert lines[at + 1].split()[:4] == ["GPU", "IDLE", "ENERGY", "BUSY,"]
    assert [line.split()[0] for line in lines[at + 2 : at + 4]] == ["0", "1"]
    assert [line.split()[-3] for line in lines[at + 2 : at + 4]] == ["620", "620"]
    assert {"Tasks", "Processes"} <= set(lines)
    data = json.loads(said(capsys, "analyze", "exp1", "--json"))
    rows = list(csv.DictReader(said(capsys, "analyze", "exp1", "--csv").splitlines()))
    of_gpus = [row for row in rows if row["row"] == "gpu"]
    assert len(rows) == sum(len(data[part]) for part in ("gpus", "tasks", "processes"))
    for row, gpu in zip(of_gpus, data["gpus"], strict=True):
        assert float(row["joules"]) == pytest.approx(gpu["joules"])


def test_what_is_recorded_now(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profiler, "running", lambda: ["exp1"])
    assert said(capsys, "status").strip() == "nothing is recorded; begin with: remuda profiler start"
    status = Status("recording", time.time(), rounds=620, gpus=({**GPU, "index": 0, "uuid": "", "gone": "lost"}, GPU))
    (recorded / STATUS).write_text(status.to_json())
    shown = said(capsys, "status").splitlines()
    assert shown[0].startswith("exp1: recording, 620 samples, ")
    assert shown[1:] == [
        "  GPU 0  lost",
        "  GPU 1  ▕█████     ▏ 50%  ▕██▌       ▏ 20.0 of 80 GiB   300 W   61 °C  t",
    ]
    (live,) = json.loads(said(capsys, "status", "--name", "exp1", "--json"))
    assert (live["name"], live["state"], live["users"]["GPU-n1-1"]) == ("exp1", "recording", ["t"])
    refused = said(capsys, "status", "--name", "exp2", code=3)
    assert refused.splitlines()[1].strip() == "under way: exp1"

    answers = iter((["exp1"], ["exp1"]))

    def pressed() -> list[str]:
        try:
            return next(answers)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(profiler, "running", pressed)
    monkeypatch.setattr(face, "_AGAIN_S", 0.0)
    assert main(["profiler", "status", "-w"]) == 130
    assert capsys.readouterr().out.splitlines() == shown * 2


def test_what_a_killed_recorder_left_becomes_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder.parents[2] / "driver"
    place.mkdir()
    with Driver(place, 2) as driver:
        command = [sys.executable, *words("recorder"), str(folder), "--interval-s", "0.05"]
        with subprocess.Popen(command, env={**os.environ, **driver.environment}) as recorder:
            until(lambda: (told := profiler.status_of(folder)) and told.rounds >= 20, "a second is recorded")
            recorder.send_signal(signal.SIGKILL)
    last = profiler.status_of(folder)
    assert last is not None
    (folder / STATUS).write_text(last._replace(at=last.at - 60).to_json())
    assert json.loads(said(capsys, "sessions", "--json"))[0]["state"] == "crashed"
    before = json.loads(said(capsys, "analyze", "exp1", "--json"))["gpus"]
    assert said(capsys, "recover").startswith("exp1: 2 GPUs, ")
    assert (folder / "recording.parquet").exists()
    assert not list(folder.glob(f"*/{OPEN}"))
    assert json.loads(said(capsys, "sessions", "--json"))[0]["state"] == "complete"
    assert json.loads(said(capsys, "analyze", "exp1", "--json"))["gpus"] == before
    assert min(gpu["samples"] for gpu in before) >= 20
    assert said(capsys, "recover") == ""
