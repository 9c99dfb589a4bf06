"""What an earlier start has left as a step is ended before the next one; by stand-ins of Slurm's commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from remuda.node.script import steps
from remuda.wire.child import DEVICES, DEVICES_MARK

if TYPE_CHECKING:
    from pathlib import Path

#: Tells of the steps in a file. The first question is not answered, and each step ends at its second cancellation.
SQUEUE = '[ -e {folder}/asked ] || {{ touch {folder}/asked; echo "no controller" >&2; exit 1; }}\ncat {folder}/steps\n'
SCANCEL = """echo "$@" >> {folder}/cancelled
[ $(wc -l < {folder}/cancelled) -lt 2 ] || echo '47.batch batch' > {folder}/steps
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("squeue", SQUEUE), ("scancel", SCANCEL)):
        (tmp_path / name).write_text("#!/bin/sh\n" + text.format(folder=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(steps, "PAUSE_S", 0.0)
    return tmp_path


def test_it_waits_until_the_scheduler_says_that_none_is_left(slurm: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (slurm / "steps").write_text("47.batch batch\n47.0 w.r.0.1.u\n47.1 w.r.0.1.u2\n47.2 w.r.0.1.u\n")
    steps.clear("w.r.0.1.u", "47")
    assert (slurm / "cancelled").read_text() == "47.0 47.2\n" * 2
    assert "no controller" in capfd.readouterr().err


def test_one_that_does_not_listen_is_killed(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (slurm / "asked").touch()
    (slurm / "steps").write_text("47.0 a\n")
    monkeypatch.setattr(steps, "KINDLY", 1)
    steps.clear("a", "47")
    assert (slurm / "cancelled").read_text() == "47.0\n--signal=KILL 47.0\n"


def test_the_first_start_asks_nobody_and_the_next_one_does(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("remuda.node.script.steps.os.execvp", lambda _, words: became.append(words))
    monkeypatch.setenv(DEVICES, "2,3")
    monkeypatch.setenv("SLURM_JOB_ID", "47")
    (slurm / "steps").touch()
    for _ in range(2):
        steps.main(["a", str(slurm), "--", "srun", "env", f"{DEVICES}={DEVICES_MARK}", "serve"])
        assert (slurm / "asked").exists() is (len(became) == 2)
    assert became == [["srun", "env", f"{DEVICES}=2,3", "serve"]] * 2


@pytest.mark.parametrize("environ", [{}, {DEVICES: ""}])
def test_without_gpus_nothing_is_said_of_them(environ: dict[str, str]) -> None:
    assert steps.with_devices(["env", f"{DEVICES}={DEVICES_MARK}", "serve"], environ) == ["env", "serve"]
