"""Flags of sbatch that people type for `run` mean what they mean there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remuda.cli import main
from remuda.look.kinds.run import _as_sbatch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flag", "value", "means"),
    [
        ("time", "90", {"time_limit": 5400.0}),
        ("time", "1:30:00", {"time_limit": 5400.0}),
        ("time", "2-12", {"time_limit": 216000.0}),
        ("gres", "gpu:4", {"gpus": 4}),
        ("gres", "gpu:a100:2", {"gpus": 2, "gpu_type": "a100"}),
        ("gres", "gpu", {"gpus": 1}),
        ("job-name", "My Job", {"name": "my-job"}),
    ],
)
def test_what_it_means(flag: str, value: str, means: dict[str, object]) -> None:
    said = [*_as_sbatch(f"--{flag}", value)]
    assert {one.path: one.value for one in said} == means
    assert {one.origin for one in said} == {f"--{flag}"}


def test_short_flags_of_sbatch_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    (tmp_path / "t.sh").write_text("#!/bin/bash\ntrue\n")
    words = ("-J", "My Job", "-t", "90", "-c", "4", "-A", "us", "-q", "low", "-p", "a", "-N", "1")
    assert main(["run", "t.sh", "--backend", "slurm", *words, "--dry-run", "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)
    argv = " ".join(item["argv"])
    assert item["token"].startswith("my-job.script.0.1.")
    for word in ("--time=01:30:00", "--cpus-per-task=4", "--account=us", "--qos=low", "--partition=a"):
        assert word in argv, argv


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-t", "soon"), "--time: 'soon' is not a time as Slurm writes it"),
        (("--gres", "shard:1"), "--gres: 'shard:1' is not a number of GPUs of one type"),
    ],
)
def test_what_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...],
    sentence: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.sh").write_text("#!/bin/bash\ntrue\n")
    assert main(["run", "t.sh", *words, "--dry-run"]) == 2
    assert f"error: {sentence}\n" in capsys.readouterr().err
