"""A script of a scheduler's job is told to end, and its `srun` is not; by a stand-in of each of Slurm's commands."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import until

from remuda.node.child.process import Child
from remuda.node.script.job_processes import Script

if TYPE_CHECKING:
    from collections.abc import Iterator

ME = str(os.getpid())
SCANCEL = '#!/bin/sh\n[ -e {folder}/asked ] || {{ touch {folder}/asked; exit 1; }}\nprintf "%s " "$@" > {folder}/told\n'


@pytest.fixture
def script(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that waits for its `srun`, in a process group of its own."""
    (tmp_path / "srun").symlink_to("/bin/sleep")
    (tmp_path / "scancel").write_text(SCANCEL.format(folder=tmp_path))
    (tmp_path / "scancel").chmod(0o755)
    words = ["/bin/sh", "-c", f"{tmp_path}/srun 600 & echo $!; wait"]
    process = subprocess.Popen(words, process_group=0, stdout=subprocess.PIPE)
    yield process
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        pytest.param({"SLURM_JOB_ID": "12"}, "12", id="a job"),
        pytest.param(
            {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}, "9_3", id="one of an array"
        ),
    ],
)
def test_the_steps_of_the_job_are_told_in_its_place(
    script: subprocess.Popen[bytes], tmp_path: Path, environ: dict[str, str], name: str
) -> None:
    """The controller is asked again where it gave no answer."""
    srun = srun_of(script)
    told = Script({**environ, "SLURM_TASK_PID": ME, "PATH": f"{tmp_path}:/usr/bin:/bin"})
    told.tell(Child(script), signal.SIGTERM)
    assert script.wait() == -signal.SIGTERM
    assert Path(f"/proc/{srun}/comm").read_text() == "srun\n", "it waits for its ranks"
    assert told.telling is not None
    assert told.telling.wait() == 0
    assert (tmp_path / "told").read_text() == f"--signal=TERM {name} "


@pytest.mark.parametrize(
    ("environ", "number"),
    [
        pytest.param({"SLURM_JOB_ID": "12", "SLURM_TASK_PID": ME}, signal.SIGUSR1, id="srun passes others on"),
        pytest.param({"SLURM_JOB_ID": "12", "SLURM_TASK_PID": "1"}, signal.SIGTERM, id="one beside others in a job"),
        pytest.param({}, signal.SIGTERM, id="no job"),
    ],
)
def test_else_all_of_its_group_are_told(
    script: subprocess.Popen[bytes], tmp_path: Path, environ: dict[str, str], number: int
) -> None:
    srun = srun_of(script)
    Script({**environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}).tell(Child(script), number)
    assert script.wait() == -number
    until(lambda: not Path(f"/proc/{srun}/comm").exists(), "its srun ends, too")
    assert not (tmp_path / "asked").exists()


def srun_of(script: subprocess.Popen[bytes]) -> int:
    """Its process, once it is one."""
    assert script.stdout is not None
    pid = int(script.stdout.readline())
    until(lambda: Path(f"/proc/{pid}/comm").read_text() == "srun\n", "it runs")
    return pid
